"""ONNX files from PyTorch modules: the exporter, the description inside, and how they appear."""

from __future__ import annotations

import logging
import os
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from facerts.errors import MissingExtraError
from facerts.io.files import writing
from facerts.onnx.contract import METADATA_KEY, Description

OPSET = 18


@contextmanager
def appearing(out: Path) -> Iterator[Path]:
    """A path to write to, which becomes ``out`` if the block ends without an error, and else is removed.

    Raises:
        WriteError: it cannot be written.
    """
    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{out.name}.", suffix=".part.onnx", dir=out.parent)
        os.close(handle)
        part = Path(name)
        try:
            yield part
            part.chmod(0o644)
            part.replace(out)
        finally:
            part.unlink(missing_ok=True)


def write_module(
    module: nn.Module, examples: Mapping[str, Tensor], outputs: Sequence[str], path: Path
) -> None:
    """Export a module for any number of rows.

    Args:
        module: in evaluation mode.
        examples: its inputs by name, in the order of ``forward``. Two rows stand for any number: with one, the
            exporter would take the batch size for a constant.
        outputs: names of what it gives.
        path: of the file.

    Raises:
        MissingExtraError: the exporter's packages are not installed.
    """
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("export needs onnx and onnxscript: pip install 'facerts[train]'") from error
    rows = torch.export.Dim("N")
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        # The exporter's notes are for its own developers.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            tuple(examples.values()),
            str(path),
            input_names=list(examples),
            output_names=list(outputs),
            dynamic_shapes={name: {0: rows} for name in examples},
            opset_version=OPSET,
            dynamo=True,
            external_data=False,
            verbose=False,
        )
    _forget_where(path)


def _forget_where(path: Path) -> None:
    """Take out what the exporter notes of each node: the paths and lines of the exporting machine's sources."""
    import onnx

    model = onnx.load(str(path))
    graph = model.graph
    for part in (graph, *graph.node, *graph.initializer, *graph.input, *graph.output, *graph.value_info):
        del part.metadata_props[:]
        part.doc_string = ""
    onnx.save(model, str(path))


def add_description(path: Path, description: Description) -> None:
    """Write a description into an ONNX file, in place of one that it has."""
    import onnx

    model = onnx.load(str(path))
    kept = [entry for entry in model.metadata_props if entry.key != METADATA_KEY]
    del model.metadata_props[:]
    model.metadata_props.extend(kept)
    entry = model.metadata_props.add()
    entry.key, entry.value = METADATA_KEY, description.to_json()
    onnx.save(model, str(path))
