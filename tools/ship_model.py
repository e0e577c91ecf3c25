"""Adds a model to those that ship with the package, or replaces one: its file and its entry in models/manifest.json.

Its model card, models/NAME.md, must exist. The entry is taken from the description inside the model, which must name
the training data and the terms of use.

    facerts export RUN --out facerts-small.onnx --precision fp16
    facerts calibrate --model facerts-small.onnx --data FACES
    python tools/ship_model.py facerts-small.onnx --name facerts-small --summary "small, for CPUs" --default
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from measuring import parser_of
from pydantic import ValidationError

from facerts.cli.ending import ending
from facerts.embedding.shipped import read_facts
from facerts.errors import Error, problems_text
from facerts.hub.registry import MANIFEST, ShippedModel, read_manifest
from facerts.io.files import atomic_write
from facerts.onnx.contract import METADATA_KEY, parse_description
from facerts.onnx.session import metadata_of, open_session

MODELS = Path(__file__).parents[1] / "models"

# Every user downloads the models with the wheel.
SMALL, SMALL_BYTES = "-small", 12_000_000


def main() -> None:
    parser = parser_of(
        __doc__,
        {
            "--default": (False, "make it the default model"),
            "--models": (MODELS, "folder with the manifest"),
        },
    )
    parser.add_argument("model", type=Path, help="ONNX file written by facerts export")
    parser.add_argument("--name", required=True, help="for users; the model's description must have the same")
    parser.add_argument("--summary", required=True, help="purpose of the model, in one line")
    parser.add_argument("--commercial", choices=["yes", "no", "disputed"], default="no", help="use of it")
    options = parser.parse_args()
    with ending():
        facts = {"summary": options.summary, "commercial": options.commercial}
        entry = ship(options.model, options.models, options.name, facts, default=options.default)
    print(f"{options.models / entry.file}: {entry.bytes:,} bytes, SHA-256 {entry.sha256}")


def ship(model: Path, folder: Path, name: str, facts: Mapping[str, str], *, default: bool) -> ShippedModel:
    """Check a model, copy it into the folder of the manifest and add it there; the first becomes the default.

    Args:
        facts: of the manifest's entry, that the model's description does not have.

    Raises:
        Error: the model cannot ship as it is; nothing was written.
    """
    entry = check(model, folder, name, facts)
    manifest = read_manifest(folder)
    models = {shipped.name: shipped for shipped in manifest.models} | {name: entry}
    default_name = name if default or manifest.default is None else manifest.default
    updated = manifest.model_copy(update={"default": default_name, "models": tuple(models.values())})
    target = folder / entry.file
    if target.resolve() != model.resolve():
        with model.open("rb") as source, atomic_write(target) as file:
            shutil.copyfileobj(source, file)
    with atomic_write(folder / MANIFEST, "w") as file:
        file.write(updated.model_dump_json(by_alias=True, indent=1) + "\n")
    return entry


def check(model: Path, folder: Path, name: str, others: Mapping[str, str]) -> ShippedModel:
    """The manifest entry of a model.

    Raises:
        Error: the model cannot ship as it is.
    """
    entry = metadata_of(open_session(model, inference=False), model).get(METADATA_KEY)
    if entry is None:
        raise Error(f"{model}: contains no description; use a file written by facerts export")
    description, facts = parse_description(entry, str(model)), read_facts(model)
    if facts["name"] != name:
        raise Error(
            f"{model}: its description has the name {facts['name']!r}; export the model as {name}.onnx, so that "
            "results have that name"
        )
    for field in ("training_data", "terms"):
        if not getattr(description, field).strip():
            raise Error(f"{model}: its description has no {field}; set data.name and data.terms in its recipe")
    if name.endswith(SMALL) and facts["bytes"] > SMALL_BYTES:
        raise Error(
            f"{model}: has {facts['bytes']:,} bytes, but the limit for models with a name ending in {SMALL} is "
            f"{SMALL_BYTES:,}; export it with --precision fp16 or int8"
        )
    card = folder / f"{name}.md"
    if not card.is_file():
        raise Error(f"{card}: no such model card; write it first, with training data, terms, results and limitations")
    try:
        return ShippedModel(**facts, **others, file=f"{name}.onnx", card=card.name)
    except ValidationError as error:
        raise Error(f"{model}: {problems_text(error.errors())}") from error


if __name__ == "__main__":
    main()
