"""Lint the documentation (links, lines, words, commands, names, generated files) and the structure of the package.

python tools/lint.py

prints each fault as ``file:line: what is wrong`` and exits with status 1 if there is any. ``make check`` runs it.
"""

from __future__ import annotations

import ast
import importlib
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import lint_structure
import typer
import yaml
from typer.exceptions import TyperException

from facerts.cli.app import build_app
from facerts.errors import Error
from facerts.evaluation.measure import ResultPart
from facerts.losses import LOSSES
from facerts.losses.face_loss import setting_names
from facerts.training.recipe import load_recipe, require_values
from facerts.version import __version__

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r"^ *```")
LINK = re.compile(r"\]\(([^)#\s]+)")
LINE_LENGTH = 120
# Words that the field does not use, or spells otherwise in American English.
UNUSUAL = re.compile(
    r"picture|colour|grey|centre|licence|neighbour|labelled|favour|behaviour"
    r"|(?:normal|optim|recogn|quant|initial|maxim|minim|synchron|vector)is(?:e|ed|er|ers|es|ing|ation)\b",
    re.IGNORECASE,
)
# Code, links and quotations, in which words are not the page's own.
QUOTED = re.compile(r"`[^`]*`|\]\([^)]*\)|\"[^\"\n]*\"")
# Commands with alternatives, dots or columns are summaries, not commands.
SUMMARY = re.compile(r"\.\.\.|…|[|\[\]]|\s{3,}\S")
# Pages whose trainings are ones that facerts would run; others have placeholders.
TRAINING_PAGES = {"README.md", "training.md", "training-at-scale.md", "train-on-your-faces.md"}

# File, line and what is wrong there.
Fault = tuple[Path, int, str]


def main() -> None:
    for variable in ("FACERTS_DATA", "FACERTS_MODELS"):  # which recipes name
        os.environ.setdefault(variable, variable.lower())
    faults = [
        *(fault for page in pages() for fault in page_faults(page)),
        *(fault for page in pages() for fault in command_faults(page, commands(page))),
        *(fault for page in pages() for fault in name_faults(page)),
        *(fault for page in pages() for fault in script_faults(page, commands(page, "python "))),
        *recipe_file_faults(ROOT / "docs" / "training.md"),
        *setting_faults(ROOT / "docs" / "methods.md"),
        *reference_faults(ROOT / "docs" / "api"),
        *cited_page_faults(ROOT / "facerts", ROOT / "docs"),
        *schema_faults(),
        *citation_faults(ROOT / "CITATION.cff"),
    ]
    for path, line, message in faults:
        print(f"{path.relative_to(ROOT) if path.is_relative_to(ROOT) else path}:{line}: {message}")
    structure = lint_structure.faults(ROOT)
    for problem in structure:
        print(problem)
    sys.exit(bool(faults or structure))


def pages() -> list[Path]:
    """The Markdown files that people read."""
    return [
        *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
        *sorted((ROOT / "docs").rglob("*.md")),
        *sorted((ROOT / "models").glob("*.md")),
        ROOT / "eval" / "README.md",
    ]


def lines(page: Path) -> Iterator[tuple[int, str, bool]]:
    """Each line with its number, and whether it is code."""
    in_code = False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        fence = FENCE.match(line) is not None
        yield number, line, in_code or fence
        in_code ^= fence


def page_faults(page: Path) -> Iterator[Fault]:
    """Links that lead nowhere in the repository, long lines outside tables, and unusual words.

    Links to anchors are checked when the site is built.
    """
    for number, line, code in lines(page):
        if len(line) > LINE_LENGTH and not line.lstrip().startswith("|"):
            yield page, number, f"{len(line)} characters"
        for target in LINK.findall(line):
            if not target.startswith("http") and not (page.parent / target).exists():
                yield page, number, f"leads nowhere: {target}"
        if not code:
            for word in UNUSUAL.findall(QUOTED.sub("", line)):
                yield page, number, f"not a word of the field, or not American English: {word}"


# In messages and comments of the package.
DOCUMENT = re.compile(r"(?<![\w/])docs/[\w/.-]*\w")


def cited_page_faults(package: Path, docs: Path) -> Iterator[Fault]:
    """Pages of the documentation that the package's code names and that do not exist.

    Messages and the help of commands name pages by ``documentation_page``, because installed packages come without
    ``docs/``; only comments and other docstrings name the files.
    """
    for source in sorted(package.rglob("*.py")):
        tree = ast.parse(source.read_text(encoding="utf-8"))
        documented = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and node.body
            and isinstance(node.body[0], ast.Expr)
            and source.parent.name != "cli"  # where docstrings are the help of commands
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "documentation_page":
                (name,) = (argument.value for argument in node.args if isinstance(argument, ast.Constant))
                if not (docs / f"{name}.md").is_file():
                    yield source, node.lineno, f"no such page: {name}"
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented:
                for page in DOCUMENT.findall(node.value):
                    yield (
                        source,
                        node.lineno,
                        f"a message names {page}; use facerts.errors.documentation_page",
                    )
        for number, line in enumerate(source.read_text(encoding="utf-8").splitlines(), start=1):
            for page in DOCUMENT.findall(line):
                if not (docs.parent / page).is_file():
                    yield source, number, f"no such page: {page}"


NAMED_PATH = re.compile(r"`((?:docs|eval|facerts|recipes|tests|tools)/[\w./-]+)`")
NAMED_OBJECT = re.compile(r"`(facerts\.[a-z][\w.]*\w)\b[^`/]*`|^from (facerts[\w.]*) import (\w+(?:, \w+)*)")


def name_faults(page: Path) -> Iterator[Fault]:
    """Files that a page names and that do not exist, and modules, functions and classes likewise."""
    for number, line, _ in lines(page):
        # A placeholder; the method that docs/adding-a-loss.md adds.
        if "NAME" in line or "normface" in line:
            continue
        for path in NAMED_PATH.findall(line):
            if not (ROOT / path).exists():
                yield page, number, f"no such file: {path}"
        for name, module, imported in NAMED_OBJECT.findall(line):
            for each in [name] if name else [f"{module}.{part}" for part in imported.split(", ")]:
                try:
                    resolve(each)
                except ImportError:
                    yield page, number, f"no such name: {each}"


def commands(page: Path, program: str = "facerts ") -> Iterator[tuple[int, str]]:
    """Whole commands of a program in code blocks, with their first lines."""
    start, whole = 0, ""
    for number, line, code in lines(page):
        if not code or FENCE.match(line):
            whole = ""
            continue
        start = start if whole else number
        whole += line.strip()
        if whole.endswith("\\"):
            whole = whole.removesuffix("\\")
            continue
        for command in re.split(r"\s{3,}(?=facerts)", whole.split("  #")[0].strip()):
            if command.startswith(program) and not SUMMARY.search(re.sub(r"'[^']*'|\"[^\"]*\"", "", command)):
                yield start, re.sub(r" >>? \S+$|\s+\(.*\)$", "", command)
        whole = ""


def command_faults(page: Path, documented: Iterator[tuple[int, str]]) -> Iterator[Fault]:
    """Commands that the command line would not take, and trainings whose recipe is not complete."""
    for number, command in documented:
        try:
            parse(shlex.split(command, comments=True)[1:], recipes=page.name in TRAINING_PAGES)
        except (TyperException, Error, ValueError) as error:
            yield page, number, f"{command}: {error}"


def script_faults(page: Path, documented: Iterator[tuple[int, str]]) -> Iterator[Fault]:
    """Commands ``python SCRIPT …`` whose script does not exist, or does not name an option in its code."""
    for number, command in documented:
        _, name, *arguments = shlex.split(command, comments=True)
        if name.startswith("-"):
            continue
        script = ROOT / name
        if not script.exists():
            yield page, number, f"no script {name}"
            continue
        code = script.read_text("utf-8")
        for argument in arguments:
            if argument.startswith("--") and f'"{argument.partition("=")[0]}"' not in code:
                yield page, number, f"{name} has no option {argument}"


APP: Any = typer.main.get_command(build_app())


def parse(arguments: list[str], recipes: bool) -> None:
    """Parse the arguments of ``facerts``, and with ``recipes`` load the recipe of a training.

    Raises:
        TyperException: the command line does not take them.
        Error: the recipe is not complete.
    """
    group, ends = APP, arguments[-1] in {"--help", "--version"}
    arguments = arguments[:-1] if ends else arguments
    name = "facerts"
    while hasattr(group, "commands") and arguments:
        name = arguments[0] if arguments[0] in group.commands else "METHOD"  # of facerts posthoc
        if name not in group.commands:
            raise ValueError(f"no command {arguments[0]}")
        group = group.commands[name]
        arguments = arguments if name == "METHOD" else arguments[1:]
    if ends:
        return
    given = group.make_context(name, list(arguments)).params
    if name == "train" and recipes:
        recipe = load_recipe(given["recipe"], given["overrides"] or ())
        if not given["show"]:
            require_values(recipe)


def recipe_file_faults(page: Path) -> Iterator[Fault]:
    """Recipe files in a page that facerts would not take."""
    text = page.read_text(encoding="utf-8")
    for block in re.finditer(r"```yaml\n(base: .*?)```", text, re.DOTALL):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "mine.yaml"
            path.write_text(block[1], encoding="utf-8")
            try:
                load_recipe(path)
            except Error as error:
                yield page, text.count("\n", 0, block.start()) + 1, str(error)


def setting_faults(page: Path) -> Iterator[Fault]:
    """Methods that the page of methods leaves out, and settings that no docstring explains."""
    text = page.read_text(encoding="utf-8")
    descriptions = importlib.import_module("docs_tables").descriptions
    for name, method in LOSSES.items():
        if f"## `{name}`" not in text:
            yield page, 1, f"the method {name} is missing"
        for setting in set(setting_names(method)) - set(descriptions(method)):
            yield (
                ROOT / f"{method.__module__.replace('.', '/')}.py",
                1,
                f"the docstring of {name} does not explain {setting}",
            )


def reference_faults(folder: Path) -> Iterator[Fault]:
    """Names in the API reference that do not exist, or have no docstring."""
    for page in sorted(folder.glob("*.md")):
        for number, line, _ in lines(page):
            if not line.startswith("::: "):
                continue
            name = line.removeprefix("::: ").strip()
            try:
                documented = resolve(name)
            except ImportError as error:
                yield page, number, str(error)
                continue
            if not (isinstance(documented, ModuleType) or callable(documented)) or not documented.__doc__:
                yield page, number, f"{name} has no docstring"


def resolve(name: str) -> object:
    """A module, or a name in one, or a name in that."""
    parent, _, last = name.rpartition(".")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        if not parent or not hasattr(resolve(parent), last):
            raise
        return getattr(resolve(parent), last)


def schema_faults() -> Iterator[Fault]:
    """Tables and schemas that are not what the code says, and keys of results without a description."""
    sys.path.insert(0, str(ROOT / "tools"))
    for path, text in importlib.import_module("docs_tables").written().items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            yield path, 1, "is not what the code says: python tools/docs_tables.py"
    for part in parts(ResultPart):
        source = ROOT / f"{part.__module__.replace('.', '/')}.py"
        if not part.__doc__:
            yield source, 1, f"{part.__name__} has no docstring"
        for key, field in part.model_fields.items():
            if not (field.description or "").endswith("."):
                yield source, 1, f"{part.__name__}.{key} has no description that ends with a full stop"


def parts(part: type[ResultPart]) -> Iterator[type[ResultPart]]:
    for below in part.__subclasses__():
        yield below
        yield from parts(below)


def citation_faults(path: Path) -> Iterator[Fault]:
    """What CITATION.cff lacks of version 1.2.0 of its format, and whether it names this version and license.

    https://github.com/citation-file-format/citation-file-format
    """
    citation: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    for entry in (citation, *citation.get("references", [])):
        required = {"title", "authors", *(("cff-version", "message") if entry is citation else ("type",))}
        if missing := required - set(entry):
            yield path, 1, f"lacks {', '.join(sorted(missing))}"
        if any(not {"name", "family-names"} & set(author) for author in entry.get("authors", [])):
            yield path, 1, f"an author of {entry.get('title')} without a name"
    if (citation.get("cff-version"), citation.get("version")) != ("1.2.0", __version__):
        yield (
            path,
            1,
            f"is not of version 1.2.0 of the format, or not of version {__version__} of the package",
        )
    if f"license = {citation.get('license')}\n" not in (ROOT / "setup.cfg").read_text(encoding="utf-8"):
        yield path, 1, "names another license than setup.cfg"


if __name__ == "__main__":
    main()
