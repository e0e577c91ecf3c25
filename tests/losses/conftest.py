from tests.training.conftest import make_recipe, recipe_file, teacher

__all__ = ["make_recipe", "recipe_file", "teacher"]
