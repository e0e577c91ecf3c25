"""Recipes made of others: a base, a method's file, a recipe's own fields, and what the command line says.

Each covers what lies below it, section by section and field by field. What comes out is complete: checkpoints, models
and runs hold that, and depend on nothing it was made of. A recipe without a base is taken as it is written.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Sequence
from copy import deepcopy
from importlib import resources
from pathlib import Path
from typing import Any

from facerts.errors import RecipeError, did_you_mean
from facerts.losses import LOSSES
from facerts.losses.face_loss import setting_names
from facerts.training.plain_yaml import parse_yaml

Fields = dict[str, Any]

SHIPPED = resources.files("facerts.recipes")
SUFFIXES = (".yaml", ".yml")
# A recipe, its base, the base of that and so on; nobody can follow more.
MAXIMUM_RECIPES = 5
# Sections around a field; the deepest have two.
MAX_PARENTS = 10


def compose(recipe: str | Path, overrides: Sequence[str] = ()) -> tuple[Fields, str]:
    """Put a complete recipe together: its fields, not yet checked, and what errors about them call the recipe.

    Args:
        recipe: a YAML file, the name of a recipe that ships, or BASE_METHOD, which is short for ``method=METHOD`` on
            the recipe BASE.
        overrides: ``dotted.key=value`` each, the value in YAML; ``method=NAME`` chooses the method.
    """
    (own, _), *bases = recipes = _with_bases(recipe)
    where = f"{own}: based on {', '.join(str(base) for base, _ in bases)}" if bases else str(own)
    _, fields = recipes.pop()
    for _, above in reversed(recipes):
        below = fields
        fields = _merge(with_method(below, _named(above.get("method"))), above)
        data = above.get("data")
        _check_images(where, below, fields, {f"data.{key}" for key in data} if isinstance(data, dict) else ())
    below = fields
    fields = _override(below, overrides)
    # Validation sets are left out where they are not found, so they may name variables that are not set.
    complete = {
        name: _substitute(value, os.environ.get if name == "validation" else _environment)
        for name, value in fields.items()
    }
    _check_images(where, below, fields, {text.partition("=")[0] for text in overrides})
    method = complete.get("method", {})
    if isinstance(method, dict) and "name" not in method:
        raise RecipeError(f"{where}: names no method; add method=NAME, one of {', '.join(sorted(LOSSES))}")
    data = complete.get("data", {})
    if isinstance(data, dict) and "train" not in data:
        raise RecipeError(
            f"{where}: names no training images; add data.train=people/, with a folder of faces for each person"
        )
    return complete, where


def with_method(fields: Fields, name: str | None) -> Fields:
    """The recipe with another method: what ``recipes/methods/NAME.yaml`` says covers what the recipe said.

    Of the settings of the recipe's own method, those stay that the new one has too and its file leaves open.
    ``${base}`` in that file is the recipe's name, and the new recipe's is BASE_METHOD. A name that is no method's, or
    that of the recipe's own, changes nothing.
    """
    before = fields.get("method")
    settings = before if isinstance(before, dict) else {}
    if name not in LOSSES or settings.get("name") == name:
        return fields
    file, base = SHIPPED / "methods" / f"{name}.yaml", fields.get("name")
    special = _parse(file.read_bytes(), file.name) if file.is_file() else {}
    special = _substitute(special, lambda variable: str(base) if variable == "base" else None)
    known = setting_names(LOSSES[name])
    kept = {key: value for key, value in settings.items() if key in known}
    changed = {**fields, "method": {"name": name, **kept}}
    if base is not None:
        changed["name"] = f"{base}_{name}"
    return _merge(changed, special)


def _substitute(value: Any, lookup: Callable[[str], str | None]) -> Any:
    """Replace each ``${NAME}`` in texts by what ``lookup`` gives for NAME, unless that is None."""
    if isinstance(value, dict):
        return {key: _substitute(entry, lookup) for key, entry in value.items()}
    if isinstance(value, list):
        return [_substitute(entry, lookup) for entry in value]
    if not isinstance(value, str):
        return value

    def replacement(match: re.Match[str]) -> str:
        value = lookup(match[1])
        return match[0] if value is None else value

    return re.sub(r"\$\{(\w+)\}", replacement, value)


def _environment(name: str) -> str:
    value = os.environ.get(name)
    if value is None:
        raise RecipeError(f"the recipe needs the environment variable {name}, which is not set")
    return value


def shipped_recipes() -> list[str]:
    """The names of the recipes that ship."""
    return sorted(Path(file.name).stem for file in SHIPPED.iterdir() if file.name.endswith(".yaml"))


def _with_bases(recipe: str | Path) -> list[tuple[str | Path, Fields]]:
    """The recipe's own fields, those of its base, and so on."""
    recipes: list[tuple[str | Path, Fields]] = []
    at: str | Path | None = _file_or_name(recipe)
    while at is not None:
        try:
            fields = _read(at)
        except RecipeError as error:
            raise RecipeError(f"{recipes[-1][0]}: base: {error}" if recipes else str(error)) from error
        if _resolved(at) in [_resolved(name) for name, _ in recipes]:
            circle = " -> ".join(str(name) for name, _ in recipes)
            raise RecipeError(f"{recipe}: its bases go in a circle: {circle} -> {at}")
        if len(recipes) == MAXIMUM_RECIPES:
            raise RecipeError(f"{recipe}: more than {MAXIMUM_RECIPES} recipes are based on each other")
        recipes.append((at, fields))
        at = _base(fields, at)
    return recipes


def _file_or_name(recipe: str | Path) -> str | Path:
    return Path(recipe) if Path(recipe).suffix in SUFFIXES else str(recipe)


def _resolved(recipe: str | Path) -> str | Path:
    return recipe.resolve() if isinstance(recipe, Path) else recipe


def _base(fields: Fields, at: str | Path) -> str | Path | None:
    """Take the base out of a recipe's fields: a name, or a file whose path begins where the recipe's file lies."""
    if "base" not in fields:
        return None
    base = fields.pop("base")
    if not isinstance(base, str):
        raise RecipeError(
            f"{at}: base: the name of a recipe that ships or the path of a YAML file, not {base!r}"
        )
    if not isinstance(at, Path):
        return base
    fields.setdefault("name", at.stem)
    recipe = _file_or_name(base)
    return at.parent / recipe if isinstance(recipe, Path) else recipe


def _read(recipe: str | Path) -> Fields:
    """A recipe's own fields, its base among them."""
    if isinstance(recipe, Path):
        try:
            if not recipe.is_file():
                raise RecipeError(f"{recipe}: no such recipe file")
            return _parse(recipe.read_bytes(), recipe)
        except OSError as error:
            raise RecipeError(f"{recipe}: cannot be read ({error.strerror})") from error
    names = shipped_recipes()
    if recipe in names:
        return _parse((SHIPPED / f"{recipe}.yaml").read_bytes(), recipe)
    short = {f"{base}_{method}": (base, method) for base in names for method in LOSSES}
    if recipe in short:
        base, method = short[recipe]
        return {"name": recipe, "base": base, "method": {"name": method}}
    raise RecipeError(
        f"no recipe {recipe!r}{did_you_mean(recipe, [*names, *short])}; there are {', '.join(names)}"
    )


def _parse(text: bytes, where: object) -> Fields:
    fields = parse_yaml(text, where, error=RecipeError)
    if not isinstance(fields, dict):
        raise RecipeError(f"{where}: a recipe is a mapping of fields, see recipes/ for complete ones")
    if isinstance(fields.get("method"), str):
        fields["method"] = {"name": fields["method"]}
    return fields


def _named(method: Any) -> str | None:
    """The method that a recipe's ``method`` names, if it does."""
    name = method.get("name") if isinstance(method, dict) else None
    return name if isinstance(name, str) else None


def _merge(below: Fields, above: Fields) -> Fields:
    merged = dict(below)
    for key, value in above.items():
        covered = merged.get(key)
        both = isinstance(covered, dict) and isinstance(value, dict)
        merged[key] = _merge(covered, value) if both else value  # type: ignore[arg-type]
    return merged


def _override(fields: Fields, overrides: Sequence[str]) -> Fields:
    """Change one field after the other; the method first, so that its file covers none of the others."""
    chosen = None
    for text in overrides:
        alone: Fields = {}
        _change(alone, text)
        chosen = _named(alone.get("method")) or chosen
    changed = deepcopy(with_method(fields, chosen))
    for text in overrides:
        _change(changed, text)
    return changed


def _change(fields: Fields, override: str) -> None:
    key, equals, text = override.partition("=")
    if not equals:
        raise RecipeError(f"{override!r}: an override reads key=value, e.g. optim.lr=0.05")
    value = parse_yaml(text, f"{override!r}", error=RecipeError)
    if key == "method" and isinstance(value, str):
        key = "method.name"
    *parents, last = key.split(".")
    if len(parents) > MAX_PARENTS:
        raise RecipeError(f"{override[:100]!r}…: recipes have no fields that deep")
    for parent in parents:
        fields = fields.setdefault(parent, {})
        if not isinstance(fields, dict):
            raise RecipeError(f"{override!r}: {parent!r} has no fields below it")
    fields[last] = value


def _check_images(where: str, below: Fields, fields: Fields, given: Collection[str]) -> None:
    """Other images than those of the base need another name and terms, which exported models carry."""
    missing = [key for key in ("data.name", "data.terms") if key not in given and "data" not in given]
    if missing and any(_images(below)) and _images(fields) not in ([], _images(below)):
        raise RecipeError(
            f"{where}: its data.name and data.terms, which exported models carry, are about other images than these; "
            f'give {" and ".join(f"{key}=…" for key in missing)} too, for example "data.name=my faces" '
            '"data.terms=for internal use"'
        )


def _images(fields: Fields) -> list[Any]:
    """Where the images come from that a model is trained on."""
    data = fields.get("data")
    return [data.get(name) for name in ("train", "unlabeled")] if isinstance(data, dict) else []
