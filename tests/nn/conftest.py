from tests.training.conftest import make_recipe, recipe_file

__all__ = ["make_recipe", "recipe_file"]
