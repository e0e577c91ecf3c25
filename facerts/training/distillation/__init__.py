"""Learning from trained embedders."""
