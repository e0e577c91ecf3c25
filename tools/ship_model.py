"""Add a model to those that ship with the package, or replace one: its file and its entry in models/manifest.json.

Its card, models/NAME.md, must be there. What the manifest says of a model is read from the model itself, whose
description must name its training data and their terms.

    facerts export RUN --out facerts-small.onnx --precision fp16
    facerts calibrate --model facerts-small.onnx --faces FACES
    python tools/ship_model.py facerts-small.onnx --name facerts-small --summary "small, for CPUs" --default
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from pydantic import ValidationError

from facerts.cli.ending import ending
from facerts.embedding.shipped import read_facts
from facerts.errors import Error
from facerts.hub.registry import MANIFEST, Manifest, ShippedModel, read_manifest
from facerts.io.files import atomic_write
from facerts.onnx.contract import METADATA_KEY, parse_description
from facerts.onnx.metadata import read_entry

MODELS = Path(__file__).parents[1] / "models"

# What a wheel may grow by for everybody.
SMALL, SMALL_BYTES = "-small", 12_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model", type=Path, help="an .onnx file of facerts export")
    parser.add_argument("--name", required=True, help="that users ask for; the model must carry it")
    parser.add_argument("--summary", required=True, help="what it is for, in a line")
    parser.add_argument("--default", action="store_true", help="it is used where no model is named")
    parser.add_argument("--models", type=Path, default=MODELS, help="the folder with the manifest")
    options = parser.parse_args()
    with ending():
        entry = ship(
            options.model,
            options.models,
            name=options.name,
            summary=options.summary,
            default=options.default,
        )
    print(f"{options.models / entry.file}: {entry.bytes:,} bytes, SHA-256 {entry.sha256}")


def ship(model: Path, folder: Path, *, name: str, summary: str, default: bool) -> ShippedModel:
    """Check a model, copy it and enter it into the manifest; the first model of a manifest is its default.

    Raises:
        Error: it must not ship as it is; nothing was written.
    """
    entry = check(model, folder, name=name, summary=summary)
    manifest = read_manifest(folder)
    models = {shipped.name: shipped for shipped in manifest.models} | {name: entry}
    chosen = name if default or manifest.default is None else manifest.default
    written = Manifest(default=chosen, models=tuple(models.values()))
    target = folder / entry.file
    if target.resolve() != model.resolve():
        with model.open("rb") as source, atomic_write(target) as file:
            shutil.copyfileobj(source, file)
    with atomic_write(folder / MANIFEST, "w") as file:
        file.write(written.model_dump_json(by_alias=True, indent=1) + "\n")
    return entry


def check(model: Path, folder: Path, *, name: str, summary: str) -> ShippedModel:
    """The entry of a model that may ship."""
    said = read_entry(model, METADATA_KEY)
    if said is None:
        raise Error(f"{model}: it carries no description; what ships is a file of facerts export")
    told, facts = parse_description(said, str(model)), read_facts(model)
    if facts["name"] != name:
        raise Error(
            f"{model}: it calls itself {facts['name']!r}; export it as {name}.onnx, so that results name it so"
        )
    for field in ("training_data", "terms"):
        if not getattr(told, field).strip():
            raise Error(
                f"{model}: its description has no {field}; set data.name and data.terms in its recipe"
            )
    if name.endswith(SMALL) and facts["bytes"] > SMALL_BYTES:
        raise Error(
            f"{model}: {facts['bytes']:,} bytes, and a model whose name ends in {SMALL} has at most {SMALL_BYTES:,}; "
            "export it with --precision fp16 or int8"
        )
    card = folder / f"{name}.md"
    if not card.is_file():
        raise Error(f"{card}: no such card; write down data, terms, numbers and limits first")
    try:
        return ShippedModel(**facts, file=f"{name}.onnx", summary=summary, card=card.name)
    except ValidationError as error:
        problems = "; ".join(f"{problem['loc'][0]}: {problem['msg']}" for problem in error.errors())
        raise Error(f"{model}: {problems}") from error


if __name__ == "__main__":
    main()
