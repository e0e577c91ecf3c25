"""Recipes on the drawn faces, as the tests of training have them."""

from tests.training.conftest import make_recipe

__all__ = ["make_recipe"]
