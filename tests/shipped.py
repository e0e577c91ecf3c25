"""Folders of shipped models, for the tests."""

import hashlib
import json

import onnx

from tests.foreign import SIZE, write_embedder


def write_model(path, **changes):
    """A small model with its description inside; keyword arguments replace fields of the description."""
    description = {
        "schema": "facerts.model/1",
        "name": path.stem,
        "method": "rts",
        "input": {"name": "face"},
        "outputs": {"embedding": "vector", "quality": "bright"},
        "normalize_embedding": True,
        "quality": "output:bright",
        "training_data": "drawn faces",
        "terms": "none",
    }
    write_embedder(path, quality=True)
    model = onnx.load(str(path))
    onnx.helper.set_model_props(model, {"facerts": json.dumps(description | changes)})
    onnx.save(model, str(path))
    return path


def write_entry(folder, name, **changes):
    """Write a model and its card to a folder, and return its manifest entry; keyword arguments replace fields of it."""
    path = write_model(folder / f"{name}.onnx")
    (folder / f"{name}.md").write_text(f"# {name}\n")
    content = path.read_bytes()
    return {
        "name": name,
        "file": path.name,
        "sha256": hashlib.sha256(content).hexdigest(),
        "bytes": len(content),
        "embedding_size": SIZE,
        "method": "rts",
        "summary": f"{name}, for tests",
        "terms": "none",
        "commercial": "no",
        "card": f"{name}.md",
    } | changes


def write_manifest(folder, *entries, default=None, **changes):
    """Write the manifest of a folder."""
    path = folder / "manifest.json"
    path.write_text(json.dumps({"schema": "facerts.models/1", "default": default, "models": entries} | changes))
    return path
