"""Examples in docstrings run, and the API reference names things that exist."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path
from types import ModuleType

import pytest

from facerts.hub.registry import shipped_models

ROOT = Path(__file__).parents[1]
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in (ROOT / "facerts").rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)
NAMES = sorted(
    name
    for page in (ROOT / "docs" / "api").glob("*.md")
    for name in re.findall(r"^::: (\S+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
)


def resolve(name: str) -> object:
    """A module, or a name in one."""
    parent, _, last = name.rpartition(".")
    module = importlib.import_module(parent)
    return getattr(module, last) if hasattr(module, last) else importlib.import_module(name)


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not shipped_models():
        pytest.skip("no model ships with this copy of facerts")
    monkeypatch.chdir(tmp_path)
    failed, tried = doctest.testmod(importlib.import_module(name))
    assert tried > 0
    assert failed == 0


@pytest.mark.parametrize("name", NAMES)
def test_what_the_reference_names_exists_and_says_what_it_is(name: str) -> None:
    found = resolve(name)
    assert isinstance(found, ModuleType) or callable(found)
    assert found.__doc__


def test_there_are_examples_and_names_to_check() -> None:
    assert len(MODULES) >= 10
    assert len(NAMES) >= 10
