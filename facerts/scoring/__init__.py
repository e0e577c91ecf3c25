"""Pictures in, rows out."""
