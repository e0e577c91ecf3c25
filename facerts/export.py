"""A trained network as an ONNX file that describes itself, written only if it computes what PyTorch computes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from facerts.data import Source, open_source
from facerts.embedder import OnnxEmbedder
from facerts.embedder.description import SCHEMA, Description
from facerts.errors import DataError
from facerts.image import CROP_SIZE
from facerts.onnx_file import Parity, add_description, appearing, check_crops, compare, write_module
from facerts.train.checkpoint import TrainedNetwork, load_network
from facerts.train.embedder import NetworkEmbedder
from facerts.version import __version__


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
    crops = check_crops(open_source(data) if data else _own_pictures(trained))
    with appearing(out) as part:
        _write(trained, names, part)
        add_description(part, describe(trained, names, name=out.stem, licence=licence))
        return check_parity(trained, OnnxEmbedder(part), crops)


def check_parity(trained: TrainedNetwork, exported: OnnxEmbedder, crops: NDArray[np.uint8]) -> Parity:
    """Compare an exported file with the network that it came from.

    Raises:
        ModelError: a cosine below 0.99999, or qualities more than 1e-3 apart.
    """
    return compare(NetworkEmbedder(trained.network, trained.method)(crops), exported(crops))


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
    example = torch.zeros(2, 3, CROP_SIZE, CROP_SIZE)
    write_module(_Scored(trained, names).eval(), {"image": example}, names, path)


def _own_pictures(trained: TrainedNetwork) -> Source | None:
    settings = trained.recipe
    try:
        return open_source(settings.validation.heldout or settings.data.train)
    except DataError:  # exported elsewhere than trained: the drawn pictures must do
        return None
