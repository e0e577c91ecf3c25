"""Check that models are as they were shipped or pulled."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from facerts.embedding.onnx_embedder import load_model
from facerts.embedding.outputs import FaceOutputs
from facerts.errors import Error
from facerts.hub.catalog import catalog_models
from facerts.hub.installed import find_installed
from facerts.hub.registry import ShippedModel, intact_file, shipped_models
from facerts.images import CROP_SIZE


def read_facts(path: Path) -> dict[str, object]:
    """Facts about a model from its file and description, by the keys of ``ShippedModel``."""
    model = load_model(path)
    outputs = model(np.empty((0, CROP_SIZE, CROP_SIZE, 3), dtype=np.uint8))
    return {
        "name": model.name,
        "sha256": model.sha256,
        "bytes": path.stat().st_size,
        "embedding_size": outputs.embedding.shape[1] if isinstance(outputs, FaceOutputs) else 0,
        "method": model.description.method,
        "terms": model.description.terms,
    }


def verify_shipped() -> dict[str, list[str]]:
    """Problems of each shipped model by name; an empty list if its file is intact, loads, and matches the manifest."""
    return {model.name: _problems(model) for model in shipped_models()}


def verify_installed() -> dict[str, list[str]]:
    """Problems of each model that was pulled, by name; an empty list if its file is intact and loads."""
    problems: dict[str, list[str]] = {}
    for entry in catalog_models():
        try:
            path = find_installed(entry.name)
            if path is None:
                continue
            problems[entry.name] = []
            if entry.kind != "detector":
                load_model(path)
        except Error as error:
            problems[entry.name] = [str(error)]
    return problems


def _problems(model: ShippedModel) -> list[str]:
    try:
        path = intact_file(model)
        facts = read_facts(path)
    except Error as error:
        return [str(error)]
    problems = [
        f"{key} is {value!r} in the file, but {getattr(model, key)!r} in the manifest"
        for key, value in facts.items()
        if getattr(model, key) != value
    ]
    if not path.with_name(model.card).is_file():
        problems.append(f"its card {model.card} is missing")
    return problems
