"""Models that ship with the package: `facerts models list`."""
