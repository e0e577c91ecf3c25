"""Examples in docstrings run, and tools/lint.py finds what is wrong in a page."""

import doctest
import importlib
import runpy
from email.message import Message
from pathlib import Path

import pytest

from facerts.errors import documentation_page
from facerts.hub.registry import shipped_models

ROOT = Path(__file__).parents[1]


def test_examples_run(tmp_path, monkeypatch):
    if not shipped_models():
        pytest.skip("no model ships with this copy of facerts")
    monkeypatch.chdir(tmp_path)
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in sorted((ROOT / "facerts").rglob("*.py"))
        if ">>> " in path.read_text(encoding="utf-8")
    ]
    assert len(modules) >= 10
    results = {name: doctest.testmod(importlib.import_module(name)) for name in modules}
    assert {name: result for name, result in results.items() if result.failed or not result.attempted} == {}


def test_lint_finds_faults_with_their_lines(tmp_path, monkeypatch):
    pytest.importorskip("torch")  # lint.py loads recipes
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    lint = runpy.run_path(str(ROOT / "tools" / "lint.py"))
    page = tmp_path / "training.md"
    page.write_text(
        f"[gone](nowhere.md)\n{'long ' * 30}\nA picture, in `colour`.\n\n"
        "```\nfacerts score a.jpg \\\n    --modle x\nfacerts score a.jpg --keep 0.95  # good\nfacerts tain x\n"
        "facerts train casia method=rst\nfacerts score … --modle x\n```\n",
        encoding="utf-8",
    )
    faults = [*lint["page_faults"](page), *lint["command_faults"](page, lint["commands"](page))]
    assert [(line, message.split(":")[0]) for _, line, message in faults[:3]] == [
        (1, "leads nowhere"),
        (2, "150 characters"),
        (3, "not a word of the field, or not American English"),
    ]
    assert [
        (line, words) for _, line, message in faults[3:] for words in ["--modle", "tain", "rst"] if words in message
    ] == [(6, "--modle"), (9, "tain"), (10, "rst")]
    assert len(faults) == 6


def test_lint_finds_pages_that_the_package_names_and_that_do_not_exist(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    lint = runpy.run_path(str(ROOT / "tools" / "lint.py"))
    for page in ("docs/there.md", "facerts/a.py", "facerts/cli/b.py"):
        (tmp_path / page).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / page).touch()
    (tmp_path / "facerts" / "a.py").write_text(
        '"""See docs/there.md."""\n# docs/gone.md\nGOOD = documentation_page("there")\n'
        'BAD = documentation_page("renamed")\nTEXT = f"{BAD}: see docs/there.md"\n'
    )
    (tmp_path / "facerts" / "cli" / "b.py").write_text('def b():\n    """Help; see docs/there.md."""\n')
    faults = lint["cited_page_faults"](tmp_path / "facerts", tmp_path / "docs")
    assert {(path.name, line): message for path, line, message in faults} == {
        ("a.py", 2): "no such page: docs/gone.md",
        ("a.py", 4): "no such page: renamed",
        ("a.py", 5): "a message names docs/there.md; use facerts.errors.documentation_page",
        ("b.py", 2): "a message names docs/there.md; use facerts.errors.documentation_page",
    }


def test_messages_name_pages_by_their_address_where_the_package_states_one(monkeypatch):
    stated = Message()
    monkeypatch.setattr("importlib.metadata.metadata", lambda _: stated)
    assert documentation_page("foreign-models") == "the page 'foreign-models' of the documentation"
    stated["Project-URL"] = "Source, https://example.org/code"
    stated["Project-URL"] = "Documentation, https://example.org/facerts/"
    assert documentation_page("foreign-models") == "https://example.org/facerts/foreign-models/"
