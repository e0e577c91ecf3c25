"""Commands in the documentation are ones that the command line takes; links and names lead somewhere."""

from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from facerts.cli.app import build_app
from facerts.training.methods import METHODS
from facerts.training.recipe import load_recipe

ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "models").glob("*.md")),
]
FENCE = re.compile(r"^ *```[^\n`]*\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)


@cache
def command_line() -> Any:
    """The tree of commands."""
    return typer.main.get_command(build_app())


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def commands() -> list[tuple[str, str]]:
    """Whole `facerts` commands in code blocks; those with alternatives or dots are summaries, not commands."""
    found = []
    for page in PAGES:
        for block in FENCE.findall(page.read_text(encoding="utf-8")):
            for line in re.sub(r"\\\n *", " ", block).splitlines():
                for command in re.split(r"\s{3,}(?=facerts)", line.split("  #")[0].strip()):
                    if command.startswith("facerts ") and not re.search(
                        r"\.\.\.|…|[|\[\]]|\s{3,}\S", command
                    ):
                        found.append((name_of(page), re.sub(r" >>? \S+$", "", command)))
    return found


def test_there_are_commands_to_check() -> None:
    assert len(commands()) >= 80


@pytest.mark.parametrize(("page", "command"), commands())
def test_a_documented_command_parses(page: str, command: str) -> None:
    group = command_line()
    arguments = shlex.split(re.sub(r"\s+\(.*\)$", "", command))[1:]
    ends = arguments[-1] in {"--help", "--version"}  # they end the command
    arguments = arguments[:-1] if ends else arguments
    while hasattr(group, "commands") and arguments:
        known = arguments[0] in group.commands
        assert known or "METHOD" in group.commands, command  # of facerts posthoc
        group = group.commands[arguments.pop(0) if known else "METHOD"]
    if not ends:
        group.make_context(command, list(arguments))


def trainings() -> list[list[str]]:
    """What follows `facerts train` in the code blocks of the pages that say how to train."""
    found = []
    for name in ("README.md", "docs/training.md", "docs/training-at-scale.md"):
        for block in re.findall(
            r"```(?:\w*)\n(.*?)```", (ROOT / name).read_text(encoding="utf-8"), re.DOTALL
        ):
            for line in block.replace("\\\n", " ").splitlines():
                if command := re.search(r"(?<!')facerts train ([a-z].*?)( >>.*)?$", line):
                    found.append(shlex.split(command[1], comments=True))
    return found


def test_there_are_trainings_to_check() -> None:
    assert len(trainings()) >= 10


@pytest.mark.parametrize("arguments", trainings(), ids=" ".join)
def test_a_documented_training_has_a_complete_recipe(arguments: list[str]) -> None:
    train = command_line().commands["train"]
    given = train.make_context("train", arguments).params
    load_recipe(given["recipe"], given["overrides"] or ())


def test_the_documented_recipe_file_is_one(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```yaml\n(base: .*?)```", page, re.DOTALL)
    (tmp_path / "mine.yaml").write_text(text, encoding="utf-8")
    recipe = load_recipe(tmp_path / "mine.yaml")
    assert (recipe.name, recipe.method["name"], recipe.method["logit_scale"]) == ("mine", "cosface", 32)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    """In the repository; the site's links are checked when it is built."""
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("method", METHODS)
def test_every_method_and_its_settings_are_documented(method: str) -> None:
    text = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    assert f"## `{method}`" in text
    for setting in METHODS[method].Config.model_fields:
        assert f"`{setting}`" in text


def test_an_unknown_option_would_be_noticed() -> None:
    score = command_line().commands["score"]
    with pytest.raises(Exception, match=r"No such option.*--modle"):
        score.make_context("score", ["a", "--modle", "x"])


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_lines_are_short(page: Path) -> None:
    """So that a diff of them can be read; a row of a table is one line."""
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        assert len(line) <= 120 or line.lstrip().startswith("|"), f"{name_of(page)}:{number}"


# Words that the field does not use, or spells otherwise in American English.
UNUSUAL = re.compile(
    r"picture|colour|grey|centre|licence|neighbour|labelled|favour|behaviour"
    r"|(?:normal|optim|recogn|quant|initial|maxim|minim|synchron|vector)is(?:e|ed|er|ers|es|ing|ation)\b",
    re.IGNORECASE,
)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_words_are_the_fields_in_american_english(page: Path) -> None:
    """Outside code, whose names and messages are the program's."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    text = re.sub(r"`[^`]*`|\]\([^)]*\)|\"[^\"\n]*\"", "", text)
    assert not UNUSUAL.findall(text)
