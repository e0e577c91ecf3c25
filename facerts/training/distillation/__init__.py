"""Distillation from trained embedders."""
