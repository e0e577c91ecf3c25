"""The recipe fixture of the training tests."""

from tests.training.conftest import make_recipe

__all__ = ["make_recipe"]
