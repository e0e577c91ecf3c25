"""facerts behind the calls that other packages' users know."""
