from tests.training.conftest import make_recipe

__all__ = ["make_recipe"]
