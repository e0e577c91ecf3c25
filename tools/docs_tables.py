"""Write the parts of docs/ that are made from the code: tables of settings and packages, and the schemas of results.

python tools/docs_tables.py

``make check`` compares them with the code. A page shows a table by a link to its file, in a paragraph of its own.
"""

from __future__ import annotations

import ast
import csv
import inspect
import io
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from facerts.cli.settings import keys
from facerts.evaluation.comparison import Comparison
from facerts.evaluation.result import Result
from facerts.io.files import atomic_write
from facerts.losses import LOSSES
from facerts.losses.face_loss import setting_names
from facerts.training.recipe import Augmentation, Recipe, Teacher

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
# ``name, other: text`` and its continuation, in the section "Args" or "Attributes" of a docstring.
ENTRY = re.compile(r"^    (\w+(?:, \w+)*): (.*(?:\n        .*)*)", re.MULTILINE)

Row = tuple[str, ...]


def main() -> None:
    for path, text in written().items():
        with atomic_write(path, "w") as file:
            file.write(text)


def written() -> dict[Path, str]:
    """The text of each file."""
    setting = ("setting", "default", "meaning")
    tables: dict[str, tuple[Row, Iterator[Row]]] = {
        "settings": (setting, settings()),
        "packages": (("package", "contents"), packages()),
        "recipe": (setting, recipe()),
        "methods": (("method", *setting), methods()),
    }
    files = {DOCS / "tables" / f"{name}.csv": csv_text(header, rows) for name, (header, rows) in tables.items()}
    for name, model in {"result": Result, "comparison": Comparison}.items():
        schema = json.dumps(model.model_json_schema(), indent=1, ensure_ascii=False)
        files[DOCS / f"{name}.schema.json"] = f"{schema}\n"
    return files


def settings() -> Iterator[Row]:
    """What ``facerts config list`` shows."""
    for key, (_, default, meaning) in keys().items():
        yield f"`{key}`", shown(None if default == () else default), meaning


def packages() -> Iterator[Row]:
    for init in sorted(ROOT.glob("facerts/*/__init__.py")):
        contents = ast.get_docstring(ast.parse(init.read_text(encoding="utf-8"))) or ""
        yield f"`{init.parent.name}`", " ".join(contents.partition("\n\n")[0].split()).replace("``", "`")


def recipe() -> Iterator[Row]:
    fields = Recipe.model_fields
    sections: dict[str, Any] = {name: field.annotation for name, field in fields.items()}
    sections |= {"data.augmentation": Augmentation, "teacher": Teacher}
    for name, section in sections.items():
        if isinstance(section, type) and issubclass(section, BaseModel):
            defaults = {key: each.get_default(call_default_factory=True) for key, each in section.model_fields.items()}
            yield from described(section, {f"{name}.{key}": value for key, value in defaults.items()})


def methods() -> Iterator[Row]:
    for name, method in LOSSES.items():
        defaults = {f"method.{key}": method.__dataclass_fields__[key].default for key in setting_names(method)}
        yield from ((f"`{name}`", *row) for row in described(method, defaults))


def described(documented: type, defaults: Mapping[str, Any]) -> Iterator[Row]:
    """Each setting, its default, and what its class says about it; sections have rows of their own."""
    texts = descriptions(documented)
    for key, default in defaults.items():
        if not isinstance(default, BaseModel):
            yield f"`{key}`", shown(default), texts.get(key.rpartition(".")[2], "").replace("``", "`")


def descriptions(documented: type) -> dict[str, str]:
    """What the docstrings of a class, and of those that it derives from, say about each setting."""
    found: dict[str, str] = {}
    for each in reversed(documented.__mro__):
        parts = re.split(r"^(?:Args|Attributes):\n", inspect.cleandoc(each.__doc__ or ""), flags=re.MULTILINE)
        for names, text in ENTRY.findall(parts[1]) if len(parts) > 1 else ():
            found |= dict.fromkeys(names.split(", "), " ".join(text.split()))
    return found


def shown(default: Any) -> str:
    """A default as a recipe has it."""
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, str | int | float) and default != "":
        return f"{default:.10g}" if isinstance(default, float) else str(default)
    return "" if default in (None, []) else "required"


def csv_text(header: Row, rows: Iterator[Row]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    return text.getvalue()


if __name__ == "__main__":
    main()
