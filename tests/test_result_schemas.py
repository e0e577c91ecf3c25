"""The documentation of result.json and comparison.json is what the models say."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from facerts.evaluation.results import Comparison, Result
from facerts.evaluation.results.base import ResultPart

SCRIPT = Path(__file__).parents[1] / "tools" / "result_schemas.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("result_schemas", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def parts(part: type[ResultPart] = ResultPart) -> Iterator[type[ResultPart]]:
    for below in part.__subclasses__():
        yield below
        yield from parts(below)


def test_the_page_and_the_schemas_are_up_to_date(script: ModuleType) -> None:
    for path, text in script.generated().items():
        message = f"{path.name} is not what the models say: python tools/result_schemas.py"
        assert path.read_text(encoding="utf-8") == text, message


def test_every_key_is_described() -> None:
    assert {Result, Comparison} < set(parts())
    for part in parts():
        assert part.__doc__, part
        for name, field in part.model_fields.items():
            assert field.description, f"{part.__name__}.{name}"
            assert field.description.endswith("."), f"{part.__name__}.{name}"


def test_the_page_has_a_table_for_every_part_and_a_row_for_every_key(script: ModuleType) -> None:
    page = script.PAGE.read_text(encoding="utf-8")
    for name in ("result", "comparison"):
        schema = json.loads((script.DOCS / f"{name}.schema.json").read_text(encoding="utf-8"))
        for part in (schema, *(part for part in schema["$defs"].values() if "description" in part)):
            section = page.split(f"### {part['title']}\n")[1].split("\n#")[0]
            for key in part["properties"]:
                assert f"\n| `{key}`" in section


def test_names_of_earlier_versions_are_read_and_not_documented_as_keys(script: ModuleType) -> None:
    page = script.PAGE.read_text(encoding="utf-8")
    for today, earlier in (("corruptions", "ladder"), ("images", "pictures"), ("severity", "strength")):
        assert f"\n| `{today}`" in page
        assert f"\n| `{earlier}`" not in page
