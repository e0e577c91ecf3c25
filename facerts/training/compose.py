"""Recipes made of others: a base, a method's file, a recipe's own fields, and what the command line says.

Each covers what lies below it, section by section and field by field. What comes out is complete: checkpoints, models
and runs hold that, and depend on nothing it was made of. A recipe file without a base is taken as it is written.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Hashable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from facerts.errors import Error, RecipeError, did_you_mean
from facerts.io.files import reading
from facerts.losses import LOSSES
from facerts.losses.face_loss import setting_names

Fields = dict[str, Any]

SHIPPED = resources.files("facerts.recipes")
# On bases that leave the method open.
DEFAULT_METHOD = "rts"
# Sections around a field; the deepest have two.
MAX_PARENTS = 10
# A value that is still to be given, and what errors say of it.
TO_BE_GIVEN = "???"
REQUESTS = {
    "data.train": "name your training images: data.train=people/",
    "data.name": 'name these images, for the description of the model: "data.name=my faces"',
    "data.terms": 'state the terms of these images: "data.terms=for internal use"',
}
# Recipes have a few thousand bytes; PyYAML takes seconds for a million.
MAX_BYTES = 1 << 16
VARIABLE = re.compile(r"\$\{(\w+)\}")


def compose(recipe: str | Path, overrides: Sequence[str] = ()) -> tuple[Fields, str]:
    """Put a complete recipe together: its fields, not yet checked, and what errors about them call the recipe.

    Variables of the environment, ``${NAME}``, are replaced if they are set.

    Args:
        recipe: a YAML file, the name of a recipe that ships, or BASE_METHOD, which is short for ``method=METHOD`` on
            the recipe BASE.
        overrides: ``dotted.key=value`` each, the value in YAML; ``method=NAME`` chooses the method.
    """
    changes: Fields = {}
    for text in overrides:
        override(changes, text)
    fields, where = _complete(str(recipe), _method_of(changes))
    # The method first, so that its file covers none of the other overrides.
    fields, before = with_method(fields, _method_of(changes)), _images(fields)
    for text in overrides:
        override(fields, text)
    _request_terms(before, fields, {text.partition("=")[0] for text in overrides})
    return _replaced(fields, lambda _, text: _substituted(text, os.environ.get)), where


def missing_values(fields: Fields) -> list[str]:
    """What is still to be given, ``???``, and which environment variables are not set, each with its fields."""
    problems: dict[str, list[str]] = {}

    def check(name: str, text: str) -> None:
        missing = [f"the environment variable {variable} is not set" for variable in VARIABLE.findall(text)]
        for problem in [REQUESTS.get(name, "still to be given")] if text == TO_BE_GIVEN else missing:
            problems.setdefault(problem, []).append(name)

    _replaced(fields, check)
    return [f"{', '.join(dict.fromkeys(names))}: {problem}" for problem, names in problems.items()]


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
    known = setting_names(LOSSES[name])
    kept = {key: value for key, value in settings.items() if key in known}
    changed = {**fields, "method": {"name": name, **kept}}
    if base is not None:
        changed["name"] = f"{base}_{name}"
        special = _replaced(special, lambda _, text: _substituted(text, {"base": str(base)}.get))
    return _merge(changed, special)


def shipped_recipes() -> list[str]:
    """The names of the recipes that ship: NAME, and ours/NAME of those that made the models that ship."""
    folders = {"": SHIPPED, "ours/": SHIPPED / "ours"}
    files = [(prefix, Path(file.name)) for prefix, folder in folders.items() for file in folder.iterdir()]
    return sorted(prefix + file.stem for prefix, file in files if file.suffix == ".yaml")


def _complete(recipe: str, method: str | None, *, is_base: bool = False) -> tuple[Fields, str]:
    """The recipe's fields on those of its base, and what errors call it.

    A base that leaves the method open gets the default one, unless a ``method`` will be chosen.
    """
    names = shipped_recipes()
    short = {f"{base}_{each}": (base, each) for base in names for each in LOSSES}
    if recipe in names:
        own = _parse((SHIPPED / f"{recipe}.yaml").read_bytes(), recipe)
    elif recipe in short:
        base, method = short[recipe]
        return with_method(_complete(base, method, is_base=is_base)[0], method), recipe
    elif _is_file(recipe):
        own = _read(Path(recipe))
    else:
        near = did_you_mean(recipe, [*names, *short])
        raise RecipeError(f"no recipe {recipe!r}{near}; there are {', '.join(names)}")
    where = recipe
    if "base" in own:
        if is_base:
            raise RecipeError(f"{recipe}: has a base itself, {own['base']!r}, and may not be one")
        base = _base(own, recipe)
        try:
            below, where = _complete(base, None, is_base=True)[0], f"{recipe}: based on {base}"
        except RecipeError as error:
            raise RecipeError(f"{recipe}: base: {error}") from error
    elif is_base or _is_file(recipe):
        return own, where
    else:
        below, own = own, {}
    leaves_open = isinstance(settings := below.get("method", {}), dict) and "name" not in settings
    below = with_method(below, _method_of(own) or (DEFAULT_METHOD if leaves_open and not method else None))
    fields, data = _merge(below, own), own.get("data")
    _request_terms(_images(below), fields, {f"data.{key}" for key in data} if isinstance(data, dict) else ())
    return fields, where


def _is_file(recipe: str) -> bool:
    return Path(recipe).suffix in (".yaml", ".yml")


def _base(own: Fields, recipe: str) -> str:
    """Take the base out of a recipe's fields: a name, or a file whose path begins where the recipe's file lies."""
    base = own.pop("base")
    if not isinstance(base, str):
        raise RecipeError(f"{recipe}: base: the name of a recipe that ships or the path of a YAML file, not {base!r}")
    if _is_file(recipe):
        own.setdefault("name", Path(recipe).stem)
    return str(Path(recipe).parent / base) if _is_file(base) else base


def _read(file: Path) -> Fields:
    with reading(file, RecipeError):
        if not file.is_file():
            raise RecipeError(f"{file}: no such recipe file")
        return _parse(file.read_bytes(), file)


def _parse(text: bytes, where: object) -> Fields:
    fields = parse_yaml(text, where, error=RecipeError)
    if not isinstance(fields, dict):
        raise RecipeError(f"{where}: a recipe is a mapping of fields, see recipes/ for complete ones")
    if isinstance(fields.get("method"), str):
        fields["method"] = {"name": fields["method"]}
    return fields


def _method_of(fields: Fields) -> str | None:
    """The method that a recipe names, if it does."""
    method = fields.get("method")
    name = method.get("name") if isinstance(method, dict) else None
    return name if isinstance(name, str) else None


def _replaced(value: Any, change: Callable[[str, str], Any], name: str = "") -> Any:
    """The value with each text in it replaced by what ``change`` makes of the dotted name of its field, and of it."""
    if isinstance(value, dict):
        return {key: _replaced(entry, change, f"{name}.{key}".lstrip(".")) for key, entry in value.items()}
    if isinstance(value, list):
        return [_replaced(entry, change, name) for entry in value]
    return change(name, value) if isinstance(value, str) else value


def _substituted(text: str, lookup: Callable[[str], str | None]) -> str:
    """The text with each ``${NAME}`` replaced by what ``lookup`` gives for NAME, unless that is None."""
    return VARIABLE.sub(lambda match: match[0] if (found := lookup(match[1])) is None else found, text)


def _merge(below: Fields, above: Fields) -> Fields:
    merged = dict(below)
    for key, value in above.items():
        covered = merged.get(key)
        both = isinstance(covered, dict) and isinstance(value, dict)
        merged[key] = _merge(covered, value) if both else value  # type: ignore[arg-type]
    return merged


def override(fields: Fields, text: str, prefix: str = "") -> None:
    """Set the field that ``dotted.key=value`` names, with a prefix to its key."""
    key, equals, content = text.partition("=")
    if not equals:
        raise RecipeError(f"{text!r}: not of the form key=value")
    value = parse_yaml(content, f"{text!r}", error=RecipeError)
    if key == "method" and isinstance(value, str):
        key = "method.name"
    *parents, last = f"{prefix}{key}".split(".")
    if len(parents) > MAX_PARENTS:
        raise RecipeError(f"{text[:100]!r}…: recipes have no fields that deep")
    for parent in parents:
        fields = fields.setdefault(parent, {})
        if not isinstance(fields, dict):
            raise RecipeError(f"{text!r}: {parent!r} has no fields below it")
    fields[last] = value


def _request_terms(before: list[Any], fields: Fields, given: Collection[str]) -> None:
    """Leave name and terms of other images than ``before`` to be given: exported models carry them."""
    if before and _images(fields) not in ([], before) and "data" not in given:
        fields["data"] |= {key: TO_BE_GIVEN for key in ("name", "terms") if f"data.{key}" not in given}


def _images(fields: Fields) -> list[Any]:
    """Where the images come from that a model is trained on, as far as it is given."""
    data = fields.get("data")
    sources = [data.get(key) for key in ("train", "unlabeled")] if isinstance(data, dict) else []
    return [source for source in sources if source not in (None, TO_BE_GIVEN)]


class _Loader(yaml.SafeLoader):
    """A safe loader that rejects references, with which a few lines can expand to billions of values, and keys given
    twice, of which PyYAML would silently take the last.
    """

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(
                None, None, "references (*name) are not allowed; write out the value", event.start_mark
            )
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key in [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]:
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{key.value!r} is given twice; keep one", key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def parse_yaml(text: str | bytes, where: object, *, error: type[Error] = Error) -> Any:
    """The value of a YAML text."""
    if len(text) > MAX_BYTES:
        raise error(f"{where}: {len(text):,} bytes exceed the limit of {MAX_BYTES:,} bytes")
    try:
        return yaml.load(text.decode("utf-8-sig") if isinstance(text, bytes) else text, Loader=_Loader)
    except RecursionError as reason:
        raise error(f"{where}: not valid YAML: nested too deeply") from reason
    except UnicodeDecodeError as reason:
        raise error(f"{where}: not UTF-8 text ({reason}); save it as UTF-8") from reason
    except (yaml.YAMLError, ValueError, OverflowError) as reason:
        # Impossible dates and numbers with thousands of digits raise errors that are not YAMLErrors.
        raise error(f"{where}: not valid YAML: {' '.join(str(reason).split())}") from reason
