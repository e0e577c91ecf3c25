"""Writes ONNX files from PyTorch modules."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from facerts.errors import MissingExtraError

OPSET = 18


def write_module(
    module: nn.Module, examples: Mapping[str, Tensor], outputs: Sequence[str], path: Path
) -> None:
    """Export a module with a dynamic batch size.

    Args:
        examples: example inputs by name, in the order of ``forward``, with two rows each: with a single row, the
            exporter would treat the batch size as a constant.
    """
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("export needs onnx and onnxscript: pip install 'facerts[train]'") from error
    rows = torch.export.Dim("N")
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        # The exporter's warnings are meant for its own developers.
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
    _remove_source_locations(path)


def _remove_source_locations(path: Path) -> None:
    """Remove the exporter's metadata of each node, which contains source paths of the exporting machine."""
    import onnx

    model = onnx.load(str(path))
    graph = model.graph
    for part in (graph, *graph.node, *graph.initializer, *graph.input, *graph.output, *graph.value_info):
        del part.metadata_props[:]
        part.doc_string = ""
    onnx.save(model, str(path))
