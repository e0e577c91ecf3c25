from tests.training.conftest import make_recipe, teacher

__all__ = ["make_recipe", "teacher"]
