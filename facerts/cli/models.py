"""``facerts models``: the models that ship, and those of the catalog."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import typer
from rich.text import Text

from facerts.cli.option_groups import Commands
from facerts.cli.output import (
    EXIT_UNUSABLE,
    Column,
    number,
    print_raw,
    print_result,
    stdout,
    warn,
)
from facerts.cli.settings import read_settings
from facerts.cli.shared_options import Json
from facerts.errors import Error

# Columns of a terminal from which there is room for both benchmarks.
WIDE = 100
# A model as JSON.
Entry: TypeAlias = dict[str, Any]
NO_MODELS = "no model ships with this copy of facerts"
FOOTNOTE = (
    "LFW and CFP-FP: accuracy in percent, as published, or † as we measured it, without mirror images. time: of a "
    "crop, with mobilefacenet as 1, where we ran the file. --from FILE: pull takes it from where you have it. More: "
    "facerts models show NAME"
)

models = Commands(no_args_is_help=True, help="Bundled models, and others by name.")

Name = Annotated[str, typer.Argument(metavar="NAME")]


@models.command("list")
def list_models(
    *,
    commercial: Annotated[bool, typer.Option("--commercial")] = False,
    kind: Literal["recognizer", "quality", "detector", "pack"] | None = None,
    json: Json = False,
) -> None:
    """List the bundled models, the default one first, and the models that can be downloaded, with their license terms.

    Example: facerts models list --commercial --kind recognizer

    Args:
        commercial: Only models that may be used commercially.
        kind: Only models of this kind; a pack holds several networks, one of them a recognizer.
    """
    entries = _entries()
    listed = [
        entry
        for entry in entries
        if kind in (None, entry["kind"]) and not (commercial and entry["commercial"] != "yes")
    ]
    if not listed:
        warn("no model is like that")
    if not any(entry["ships"] and entry["kind"] != "detector" for entry in entries):
        warn(NO_MODELS)
    print_result({}, json, listed, _columns(), name="models")
    if not json:
        stdout.print(FOOTNOTE, style="dim", highlight=False)


@models.command()
def show(name: Name, json: Json = False) -> None:
    """Show all that is known of a model: terms, source, hash, input, accuracy as published and as measured.

    Example: facerts models show edgeface-xs

    Args:
        name: Name of the model.
    """
    found = [entry for entry in _entries() if entry["name"] == name]
    if not found:
        from facerts.hub.catalog import in_catalog

        in_catalog(name)
    (entry,) = found
    print_result(entry if json else _facts(entry), json)


@models.command()
def verify(json: Json = False) -> None:
    """Check that every bundled or downloaded model is unchanged and loads.

    Exits with status 2 if any does not.

    Example: facerts models verify
    """
    from facerts.embedding.shipped import verify_installed, verify_shipped

    shipped = verify_shipped()
    problems = {**shipped, **verify_installed()}
    rows = [{"name": name, "ok": not found, "problems": found} for name, found in problems.items()]
    state = ("state", lambda row: "intact" if row["ok"] else "broken")
    print_result({}, json, rows, ["name", state], name="models")
    if not shipped:
        warn(NO_MODELS)
    for name, found in problems.items():
        for problem in found:
            warn(f"{name}: {problem}")
    if any(problems.values()):
        raise typer.Exit(EXIT_UNUSABLE)


@models.command()
def pull(
    name: Name,
    *,
    source: Annotated[Path | None, typer.Option("--from")] = None,
    mirror: str | None = None,
    json: Json = False,
) -> None:
    """Download a model of the catalog, check its SHA-256, and write its description beside it.

    The publisher's file is not changed. An interrupted download continues where it stopped.

    Example: facerts models pull edgeface-xs

    Args:
        name: Name of the model.
        source: File to install, downloaded on another machine.
        mirror: Address where the file is looked for first, such as https://mirror.example/models.
    """
    from facerts.hub.catalog import in_catalog
    from facerts.hub.installed import install

    entry = in_catalog(name)
    path = install(name, source, mirror)
    result: dict[str, object] = {"name": name, "file": str(path)}
    result |= {"commercial use": entry.commercial, "terms": entry.terms}
    print_result(result, json)


@models.command()
def remove(name: Name, json: Json = False) -> None:
    """Delete a downloaded model.

    Example: facerts models remove edgeface-xs

    Args:
        name: Name of the model.
    """
    from facerts.hub.installed import uninstall

    removed = list(map(str, uninstall(name)))
    if not removed:
        raise Error(f"{name} is not on this machine, or not below FACERTS_CACHE; nothing was deleted")
    if name == read_settings().recognizer:
        warn(f"{name} is still the setting recognizer; facerts config unset recognizer goes back to the one that ships")
    print_result({"removed": removed}, json)


@models.command()
def path(name: Annotated[str | None, typer.Argument()] = None) -> None:
    """Print the path of a model file, for programs that read ONNX files themselves.

    Example: facerts models path facerts-small

    Args:
        name: Name of the model; by default the recognizer that commands use.
    """
    from facerts.hub.catalog import catalog_models
    from facerts.hub.fetch import find_file
    from facerts.hub.find import find_model

    if name in {model.name for model in catalog_models() if model.kind == "detector"}:
        print_raw(find_file(str(name)))
    else:
        print_raw(find_model(name or read_settings().recognizer))


def _entries() -> list[dict[str, object]]:
    """All models as JSON: those that ship, the default one first, and those of the catalog."""
    from facerts.hub.catalog import catalog_models
    from facerts.hub.find import default_model
    from facerts.hub.installed import installed_file
    from facerts.hub.registry import shipped_models

    default = read_settings().recognizer or default_model()
    entries: list[dict[str, object]] = [
        {
            **model.model_dump(),
            "kind": "recognizer" if model.embedding_size else "quality",
            "size": f"{model.bytes / 1e6:.1f} MB",
            "published": {},
            "ships": True,
            "default": model.name == default,
            "where": "ships",
            "path": None,
        }
        for model in shipped_models()
    ]
    for entry in catalog_models():
        file, ships = installed_file(entry), entry.packaged.is_file()
        where = "ships" if ships else "pulled" if file else "to pull" if entry.urls else "--from FILE"
        entries.append(
            {
                **entry.model_dump(mode="json", by_alias=True),
                "size": entry.size,
                "ships": ships,
                "default": entry.name == default,
                "where": where,
                "path": None if file is None else str(file),
            }
        )
    return sorted(entries, key=lambda entry: (not entry["default"], not entry["ships"], entry["where"] != "pulled"))


def _columns() -> list[Column]:
    """What the list shows of each model, on a terminal of this width."""
    benchmarks = ("LFW", "CFP-FP") if stdout.width >= WIDE else ()
    return [
        # To be typed again, so it is never cut.
        ("name", lambda entry: Text(f"{entry['name']}{' (default)' * entry['default']}", no_wrap=True)),
        "kind",
        "commercial",
        ("size", lambda entry: number(entry["size"])),
        *((benchmark, partial(_accuracy, benchmark=benchmark)) for benchmark in benchmarks),
        ("time", _time),
        "where",
    ]


def _time(entry: Entry) -> Text:
    if "time" in entry["measured"]:
        return number(f"{entry['measured']['time']:.2f}")
    return Text("run" if entry["ships"] or entry["measured_with"] else "not run", justify="right")


def _facts(entry: Entry) -> dict[str, object]:
    """What is known of a model, for people."""
    shown = {key: value for key, value in entry.items() if value not in (None, {}, "", [], ()) and key != "default"}
    for key in ("published", "measured"):
        if key in shown:
            shown[key] = ", ".join(f"{benchmark} {value:g}" for benchmark, value in shown[key].items())
    if "description" in shown:
        spec = shown.pop("description")["input"]
        height, width = spec["size"]
        normalized = f"(x - {spec['mean'][0]:g}) / {spec['std'][0]:g}"
        shown["input"] = f"{height} x {width} {spec['color']}, {normalized}, {spec['layout']}"
    if "urls" in shown:
        shown["urls"] = " or ".join(shown["urls"])
    return shown


def _accuracy(entry: Entry, benchmark: str) -> Text:
    if benchmark in entry["published"]:
        return number(f"{entry['published'][benchmark]:.2f}")
    measured = entry["measured"].get(benchmark)
    return number("" if measured is None else f"{100 * measured:.2f}†")
