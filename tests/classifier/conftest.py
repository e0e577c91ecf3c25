"""Recipes on the drawn faces, as the tests of training have them."""

from tests.train.conftest import make_recipe

__all__ = ["make_recipe"]
