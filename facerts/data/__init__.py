"""Labelled pictures on disk, read the same way whatever their layout."""
