"""Models by name: those that ship, and those that are fetched."""
