"""Photos to boxes, five points and scores."""
