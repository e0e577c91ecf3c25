"""A trained network as an ONNX file that describes itself, written only if it computes what PyTorch computes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from facerts.datasets import Source, open_source
from facerts.embedding import OnnxEmbedder
from facerts.errors import DataError, Error, ModelError, did_you_mean
from facerts.export.parity import EXACT, Parity, Tolerance, check_crops, compare_outputs
from facerts.export.quantize import quantize, store_half
from facerts.images import CROP_SIZE
from facerts.io.files import sha256_file
from facerts.onnx.contract import SCHEMA, Description
from facerts.training.checkpoint import ReadyNetwork, TrainedNetwork
from facerts.training.export.onnx_file import add_description, appearing, write_module
from facerts.training.network_embedder import NetworkEmbedder
from facerts.training.nn import fold_branches
from facerts.training.pretrained import PublishedNetwork, open_network
from facerts.version import __version__

# How far a file of each precision may be from PyTorch. Measured: ten times less than is allowed for fp16 and int8; they
# are there to notice a network that does not bear it.
TOLERANCES = {
    "fp32": EXACT,
    "fp16": Tolerance(cosine=0.9999, quality_error=1e-3, quality_spreads=0.01),
    "int8": Tolerance(cosine=0.95, quality_error=1e-3, quality_spreads=1.0),
}

# Faces that int8 finds the ranges of its activations on.
CALIBRATED, LEAST_CALIBRATED = 256, 16


class _Scored(nn.Module):
    """Network and score in one graph, outputs in a fixed order."""

    def __init__(self, trained: ReadyNetwork, names: Sequence[str]) -> None:
        super().__init__()
        self.network = fold_branches(trained.network)
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
    precision: str = "fp32",
    embedding_only: bool = False,
    averaged: bool = True,
    data: Sequence[str] = (),
    license: str = "",
    terms: str = "",
) -> Parity:
    """Export the network of a training run, or one whose weights were published.

    Args:
        run: the run's folder, a checkpoint file, or a file of published weights (``facerts.training.nn.pretrained``).
        out: the .onnx file; it appears only if it passes the check.
        precision: "fp32"; "fp16", weights stored in half the size; or "int8", convolutions in 8 bits. See
            ``facerts.export.quantize``.
        embedding_only: one output, so that other packages' ArcFace loaders accept the file.
        averaged: the moving average of the weights where the run kept one (``optim.average``), else the last step's.
        data: pictures for the check, aligned faces for int8; by default the recipe's held-out or training pictures
            where they are within reach, and drawn ones.
        license: of the weights; written into the description.
        terms: on which they may be used, likewise; by default the recipe's. Published weights come with none, and need
            them said.

    Raises:
        ModelError: no checkpoint, or ONNX Runtime and PyTorch are further apart than ``TOLERANCES`` allow.
        DataError: too few faces for int8, or none within reach.
        Error: an unknown precision, or published weights without terms.
        MissingExtraError: the exporter's packages are not installed.
    """
    if precision not in TOLERANCES:
        raise Error(
            f"no precision {precision!r}{did_you_mean(precision, TOLERANCES)}; there are {', '.join(TOLERANCES)}"
        )
    out = Path(out)
    trained = open_network(run, averaged=averaged)
    names = ["embedding"] if embedding_only else _output_names(trained)
    description = describe(trained, names, name=out.stem, license=license, terms=terms, precision=precision)
    source = open_source(data) if data else _own_pictures(trained)
    faces = _calibration_faces(source) if precision == "int8" else None
    crops = check_crops(source)
    with appearing(out) as part:
        _write(trained, names, part)
        if precision == "fp16":
            store_half(part)
        if faces is not None:
            quantize(part, faces)
        add_description(part, description)
        return check_parity(trained, OnnxEmbedder(part), crops)


def check_parity(trained: ReadyNetwork, exported: OnnxEmbedder, crops: NDArray[np.uint8]) -> Parity:
    """Compare an exported file with the network that it came from.

    Raises:
        ModelError: they are further apart than ``TOLERANCES`` allow for the file's precision.
    """
    precision = exported.description.precision
    try:
        return compare_outputs(
            NetworkEmbedder(trained.network, trained.method)(crops), exported(crops), TOLERANCES[precision]
        )
    except ModelError as error:
        if precision == "fp32":
            raise
        raise ModelError(f"{error}: the network does not bear {precision}, export it as fp32") from error


def describe(
    trained: TrainedNetwork | PublishedNetwork,
    names: Sequence[str],
    *,
    name: str,
    license: str = "",
    terms: str = "",
    precision: str = "fp32",
) -> Description:
    """The description that the file carries.

    Raises:
        Error: the weights were published, and no terms are given.
    """
    training_data = recipe_sha256 = source = ""
    if isinstance(trained, TrainedNetwork):
        recipe = trained.recipe
        training_data = recipe.data.name
        recipe_sha256 = hashlib.sha256(recipe.to_yaml().encode()).hexdigest()
        terms = terms or recipe.data.terms
    elif terms:
        source = f"{trained.file.name}, SHA-256 {sha256_file(trained.file)}"
    else:
        raise Error(
            f"{trained.file}: published weights; say with --terms on which terms they may be used (insightface's: for "
            "non-commercial research only)"
        )
    backbone = trained.backbone
    return Description(
        schema=SCHEMA,
        name=name,
        method=trained.method.name,
        backbone=f"{backbone.name} width {backbone.width:g}",
        embedding_size=backbone.embedding_size,
        precision=precision,
        outputs={role: role for role in names},
        quality="output:quality" if "quality" in names else "none",
        training_data=training_data,
        recipe_sha256=recipe_sha256,
        license=license,
        terms=terms,
        source=source,
        facerts_version=__version__,
    )


@torch.no_grad()
def _output_names(trained: ReadyNetwork) -> list[str]:
    scored = trained.method.score(trained.network(torch.zeros(2, 3, CROP_SIZE, CROP_SIZE)))
    return list(scored)


def _write(trained: ReadyNetwork, names: Sequence[str], path: Path) -> None:
    example = torch.zeros(2, 3, CROP_SIZE, CROP_SIZE)
    write_module(_Scored(trained, names).eval(), {"image": example}, names, path)


def _calibration_faces(source: Source | None) -> NDArray[np.uint8]:
    """Some of the pictures, evenly spaced.

    Raises:
        DataError: there are none, or too few.
    """
    if source is None:
        raise DataError(
            "int8 needs faces to find the ranges of its activations on, and there are none of a recipe within reach; "
            "name some with --data"
        )
    if len(source) < LEAST_CALIBRATED:
        raise DataError(
            f"{source.name}: int8 finds the ranges of its activations on at least {LEAST_CALIBRATED} faces, "
            f"and here are {len(source)}"
        )
    rows = np.unique(np.linspace(0, len(source) - 1, CALIBRATED).astype(int))
    return np.stack([source.crop(int(row)) for row in rows])


def _own_pictures(trained: ReadyNetwork) -> Source | None:
    if not isinstance(trained, TrainedNetwork):
        return None
    settings = trained.recipe
    try:
        return open_source(settings.validation.heldout or settings.data.train)
    except DataError:  # exported elsewhere than trained: the drawn pictures must do
        return None
