"""Thresholds of quality and similarity, measured on a user's own faces."""
