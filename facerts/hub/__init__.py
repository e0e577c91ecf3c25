"""Models by name: those shipped with facerts, and those that can be downloaded."""
