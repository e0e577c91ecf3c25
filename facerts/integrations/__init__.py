"""facerts with the interfaces of other packages."""
