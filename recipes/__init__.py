"""Complete recipes, one per run that a person would start: `facerts train NAME`."""
