"""Backbones and their heads."""
