"""Metrics: NumPy arrays in, numbers out; no files, no models."""
