"""ONNX files from PyTorch modules: the exporter, the description inside, and the check that comes before a file."""

from __future__ import annotations

import logging
import os
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from facerts.data import Source
from facerts.data.drawn import draw_face, draw_non_face
from facerts.embedder import FaceOutputs
from facerts.embedder.description import METADATA_KEY, Description
from facerts.errors import MissingExtraError, ModelError
from facerts.files import writing
from facerts.image import CROP_SIZE

OPSET = 18
CHECKED_PICTURES = 64


@dataclass(frozen=True)
class Limits:
    """How far ONNX Runtime may be from PyTorch.

    Attributes:
        cosine: the smallest between the two embeddings of a crop.
        quality_error: the largest difference of qualities.
        spreads: or this many standard deviations of the checked crops' quality, where that is more: what a
            difference means depends on the method's scale.
    """

    cosine: float
    quality_error: float
    spreads: float = 0.0


EXACT = Limits(cosine=0.99999, quality_error=1e-3)


@dataclass(frozen=True)
class Parity:
    """How far ONNX Runtime is from PyTorch on the checked crops.

    Attributes:
        crops: compared.
        cosine: the smallest between the two embeddings of a crop.
        quality_error: the largest difference of qualities; None where the file has none.
        quality_spread: standard deviation of the checked crops' quality, by PyTorch; None where there is none.
    """

    crops: int
    cosine: float
    quality_error: float | None
    quality_spread: float | None


def compare(wanted: FaceOutputs, got: FaceOutputs, limits: Limits = EXACT) -> Parity:
    """Compare what a written file computes with what PyTorch computes on the same crops.

    Raises:
        ModelError: they are further apart than the limits allow: by default a cosine below 0.99999, or qualities more
            than 1e-3 apart.
    """
    cosine = float(np.einsum("nd,nd->n", wanted.embedding.astype(np.float64), got.embedding).min())
    error = spread = None
    allowed = limits.quality_error
    if got.quality is not None and wanted.quality is not None:
        error = float(np.abs(wanted.quality - got.quality).max())
        spread = float(wanted.quality.std())
        allowed = max(allowed, limits.spreads * spread)
    if not cosine >= limits.cosine or not (error is None or error <= allowed):
        quality = "no quality" if error is None else f"qualities {error:.3g} apart"
        raise ModelError(
            f"the exported network is not the trained one: on {len(wanted)} crops the smallest cosine is "
            f"{cosine:.7f} (at least {limits.cosine} is wanted) and {quality} (at most {allowed:.3g}); "
            "no file was written"
        )
    return Parity(len(wanted), cosine, error, spread)


def check_crops(source: Source | None) -> NDArray[np.uint8]:
    """Real pictures where there are any, drawn ones, things that are no faces, and noise."""
    crops = [draw_face(number, 0) for number in range(16)] + [draw_non_face(number) for number in range(8)]
    crops += list(np.random.default_rng(0).integers(0, 256, (8, CROP_SIZE, CROP_SIZE, 3), dtype=np.uint8))
    if source is not None:
        for index in np.unique(np.linspace(0, len(source) - 1, CHECKED_PICTURES).astype(int)):
            crops.append(source.crop(int(index)))
    return np.stack(crops)


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
