"""The settings of recipes and training methods as Markdown tables, for docs/settings.md; from their classes."""

from __future__ import annotations

import inspect
import re
from typing import Any

from pydantic import BaseModel

from facerts.losses import LOSSES
from facerts.losses.face_loss import setting_names
from facerts.training.recipe import Augmentation, Recipe, Teacher

# ``name, other: text`` and its continuation, in the section "Args" or "Attributes" of a docstring.
ENTRY = re.compile(r"^    (\w+(?:, \w+)*): (.*(?:\n        .*)*)", re.MULTILINE)


def descriptions(documented: type) -> dict[str, str]:
    """What the docstrings of a class, and of those that it derives from, say about each setting."""
    found: dict[str, str] = {}
    for each in reversed(documented.__mro__):
        parts = re.split(r"^(?:Args|Attributes):\n", inspect.cleandoc(each.__doc__ or ""), flags=re.MULTILINE)
        for names, text in ENTRY.findall(parts[1]) if len(parts) > 1 else ():
            found |= dict.fromkeys(names.split(", "), " ".join(text.split()))
    return found


def recipe_tables() -> str:
    """A table for each section of a recipe."""
    fields = Recipe.model_fields
    sections = {name: field.annotation for name, field in fields.items()}
    sections |= {"data.augmentation": Augmentation, "teacher": Teacher}
    return "\n".join(
        table(name, section, {key: field.get_default(call_default_factory=True) for key, field in own.items()})
        for name, section in sections.items()
        if isinstance(section, type) and issubclass(section, BaseModel) and (own := section.model_fields)
    )


def method_tables() -> str:
    """A table for each method that has settings."""
    return "\n".join(
        table(name, method, {key: method.__dataclass_fields__[key].default for key in setting_names(method)})
        for name, method in LOSSES.items()
        if setting_names(method)
    )


def table(name: str, documented: type, defaults: dict[str, Any]) -> str:
    """Each setting, its default, and what its class says about it; sections have tables of their own."""
    texts = descriptions(documented)
    rows = [
        f"| `{key}` | {shown(default)} | {texts.get(key, '').replace('|', chr(92) + '|').replace('``', '`')} |"
        for key, default in defaults.items()
        if not isinstance(default, BaseModel)
    ]
    return "\n".join([f"### `{name}`\n", "| setting | default | meaning |", "|---|---|---|", *rows, ""])


def shown(default: Any) -> str:
    """A default as a recipe has it."""
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, str | int | float) and default != "":
        return f"{default:g}" if isinstance(default, float) else str(default)
    return "" if default in (None, []) else "required"
