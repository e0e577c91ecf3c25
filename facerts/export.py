"""A trained network as an ONNX file that describes itself, written only if it computes what PyTorch computes."""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from facerts.data import Source, open_source
from facerts.data.drawn import draw_face, draw_non_face
from facerts.embedder import OnnxEmbedder
from facerts.embedder.description import METADATA_KEY, SCHEMA, Description
from facerts.errors import DataError, MissingExtraError, ModelError
from facerts.image import CROP_SIZE
from facerts.train.checkpoint import TrainedNetwork, load_network
from facerts.train.embedder import NetworkEmbedder
from facerts.version import __version__

OPSET = 18
SMALLEST_COSINE = 0.99999
LARGEST_QUALITY_ERROR = 1e-3
CHECKED_PICTURES = 64


@dataclass(frozen=True)
class Parity:
    """How far ONNX Runtime is from PyTorch on the checked crops.

    Attributes:
        crops: compared.
        cosine: the smallest between the two embeddings of a crop.
        quality_error: the largest difference of qualities; None where the file has none.
    """

    crops: int
    cosine: float
    quality_error: float | None


class _Scored(nn.Module):
    """Network and score in one graph, outputs in a fixed order."""

    def __init__(self, trained: TrainedNetwork, names: Sequence[str]) -> None:
        super().__init__()
        self.network = trained.network
        self.state = trained.method.state
        self._score = trained.method.score
        self._names = tuple(names)

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        scored = self._score(self.network(image))
        return tuple(scored[name] for name in self._names)


def export_run(
    run: str | Path,
    out: str | Path,
    *,
    embedding_only: bool = False,
    data: Sequence[str] = (),
    licence: str = "",
) -> Parity:
    """Export the network of a training run.

    Args:
        run: the run's folder, or a checkpoint file.
        out: the .onnx file; it appears only if it passes the check.
        embedding_only: one output, so that other packages' ArcFace loaders accept the file.
        data: pictures for the check; by default the recipe's held-out or training pictures where they are within
            reach, and drawn ones.
        licence: of the weights; written into the description.

    Raises:
        ModelError: no checkpoint, or ONNX Runtime and PyTorch disagree.
        MissingExtraError: the exporter's packages are not installed.
    """
    out = Path(out)
    trained = load_network(run)
    names = ["embedding"] if embedding_only else _output_names(trained)
    crops = _check_crops(trained, data)
    out.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{out.name}.", suffix=".part.onnx", dir=out.parent)
    os.close(handle)
    part = Path(name)
    try:
        _write(trained, names, part)
        _describe(part, describe(trained, names, name=out.stem, licence=licence))
        parity = check_parity(trained, OnnxEmbedder(part), crops)
        part.chmod(0o644)
        part.replace(out)
    finally:
        part.unlink(missing_ok=True)
    return parity


def check_parity(trained: TrainedNetwork, exported: OnnxEmbedder, crops: NDArray[np.uint8]) -> Parity:
    """Compare an exported file with the network that it came from.

    Raises:
        ModelError: a cosine below 0.99999, or qualities more than 1e-3 apart.
    """
    wanted, got = NetworkEmbedder(trained.network, trained.method)(crops), exported(crops)
    cosine = float(np.einsum("nd,nd->n", wanted.embedding.astype(np.float64), got.embedding).min())
    error = None
    if got.quality is not None and wanted.quality is not None:
        error = float(np.abs(wanted.quality - got.quality).max())
    if not cosine >= SMALLEST_COSINE or not (error is None or error <= LARGEST_QUALITY_ERROR):
        quality = "no quality" if error is None else f"qualities {error:.3g} apart"
        raise ModelError(
            f"the exported network is not the trained one: on {len(crops)} crops the smallest cosine is "
            f"{cosine:.7f} (at least {SMALLEST_COSINE} is wanted) and {quality} (at most "
            f"{LARGEST_QUALITY_ERROR}); no file was written"
        )
    return Parity(len(crops), cosine, error)


def describe(trained: TrainedNetwork, names: Sequence[str], *, name: str, licence: str) -> Description:
    """The description that the file carries."""
    recipe = trained.recipe
    return Description(
        schema=SCHEMA,
        name=name,
        method=trained.method.name,
        backbone=f"{recipe.backbone.name} width {recipe.backbone.width:g}",
        embedding_size=recipe.backbone.embedding_size,
        outputs={role: role for role in names},
        quality="output:quality" if "quality" in names else "none",
        training_data=recipe.data.name,
        recipe_sha256=hashlib.sha256(recipe.to_yaml().encode()).hexdigest(),
        licence=licence,
        terms=recipe.data.terms,
        facerts_version=__version__,
    )


@torch.no_grad()
def _output_names(trained: TrainedNetwork) -> list[str]:
    scored = trained.method.score(trained.network(torch.zeros(2, 3, CROP_SIZE, CROP_SIZE)))
    return list(scored)


def _write(trained: TrainedNetwork, names: Sequence[str], path: Path) -> None:
    module = _Scored(trained, names).eval()
    # Two crops stand for any number: with one, the exporter would take the batch size for a constant.
    example = torch.zeros(2, 3, CROP_SIZE, CROP_SIZE)
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("export needs onnx and onnxscript: pip install 'facerts[train]'") from error
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        # The exporter's notes are for its own developers.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            (example,),
            str(path),
            input_names=["image"],
            output_names=list(names),
            dynamic_shapes={"image": {0: torch.export.Dim("N")}},
            opset_version=OPSET,
            dynamo=True,
            external_data=False,
            verbose=False,
        )


def _describe(path: Path, description: Description) -> None:
    import onnx

    model = onnx.load(str(path))
    entry = model.metadata_props.add()
    entry.key, entry.value = METADATA_KEY, description.to_json()
    onnx.save(model, str(path))


def _check_crops(trained: TrainedNetwork, data: Sequence[str]) -> NDArray[np.uint8]:
    """Real pictures where there are any, drawn ones, things that are no faces, and noise."""
    crops = [draw_face(number, 0) for number in range(16)] + [draw_non_face(number) for number in range(8)]
    crops += list(np.random.default_rng(0).integers(0, 256, (8, CROP_SIZE, CROP_SIZE, 3), dtype=np.uint8))
    source = open_source(data) if data else _own_pictures(trained)
    if source is not None:
        for index in np.unique(np.linspace(0, len(source) - 1, CHECKED_PICTURES).astype(int)):
            crops.append(source.crop(int(index)))
    return np.stack(crops)


def _own_pictures(trained: TrainedNetwork) -> Source | None:
    settings = trained.recipe
    try:
        return open_source(settings.validation.heldout or settings.data.train)
    except DataError:  # exported elsewhere than trained: the drawn pictures must do
        return None
