"""Exports a trained network as an ONNX file with a description, if its outputs agree with PyTorch's."""

from __future__ import annotations

import copy
import hashlib
import logging
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from facerts.calibration.quality_thresholds import calibrate
from facerts.datasets import Joined, Source, open_source
from facerts.datasets.sampler import hold_out_identities
from facerts.embedding import FaceOutputs, OnnxEmbedder
from facerts.embedding.onnx_embedder import OnnxQuality, load_model
from facerts.embedding.parity import EXACT, Parity, Tolerance, check_crops, compare_outputs
from facerts.errors import DataError, Error, ModelError, did_you_mean, importing
from facerts.evaluation.while_training import STANDARD_OUTPUTS, NetworkEmbedder, to_network_input
from facerts.images import CROP_SIZE
from facerts.io.files import scratch_folder
from facerts.losses import FaceLoss
from facerts.losses.face_heads import FACE_HEADS, UNCLEAR, calibrate_face_heads
from facerts.nn import FaceNetwork
from facerts.nn.exported import for_inference
from facerts.onnx.contract import METADATA_KEY, SCHEMA, Description
from facerts.onnx.wire import replace_entry
from facerts.training.augment import KeptViews
from facerts.training.checkpoint import Origin, ScoringNetwork, TrainedNetwork
from facerts.training.init_weights import open_network
from facerts.training.quantize import quantize, store_weights_as_float16
from facerts.training.validation import heldout_paths
from facerts.version import __version__

# Permitted differences between a file of each precision and PyTorch. Measured differences for fp16 and int8 are about a
# tenth of these; the limits detect networks that do not tolerate the precision.
TOLERANCES = {
    "fp32": EXACT,
    "fp16": Tolerance(cosine=0.9999, quality_error=1e-3, quality_spreads=0.01),
    "int8": Tolerance(cosine=0.95, quality_error=1e-3, quality_spreads=1.0),
}

# Number of faces from which int8 calibrates the ranges of activations.
CALIBRATION_FACES, MIN_CALIBRATION_FACES = 256, 16
# Views of each face on which the outputs about non-faces are calibrated, the face itself among them.
CALIBRATION_VIEWS = 4
OPSET = 18


@dataclass(frozen=True)
class ExportedRun:
    """The result of ``export_run``.

    Attributes:
        description: description of the file, with its thresholds.
        parity: differences between ONNX Runtime and PyTorch.
        uncalibrated: why there are no thresholds; empty if there are.
        left_out: why faces to calibrate on could not be read, one sentence each.
    """

    description: Description
    parity: Parity
    uncalibrated: str = ""
    left_out: tuple[str, ...] = ()


class _ScoringModule(nn.Module):
    """Network and score as one module, with outputs in a fixed order."""

    def __init__(self, trained: ScoringNetwork, names: Sequence[str]) -> None:
        super().__init__()
        self.network = for_inference(trained.network)
        self.state = trained.loss.state
        self._score = trained.loss.score
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
) -> ExportedRun:
    """Export the network of a training run, or of a file of published weights, with thresholds.

    Quality and match thresholds are chosen on the people that the run held out, as ``calibrate`` chooses them.

    Args:
        run: folder of the run, checkpoint, or file of published weights (``facerts.nn.arcface_torch``).
        out: path of the .onnx file; written only if it passes the parity check.
        precision: "fp32"; "fp16", with weights stored in 16 bits; or "int8", with convolutions in 8 bits. See
            ``facerts.training.quantize``.
        embedding_only: export a single output, so that the ArcFace loaders of other packages accept the file.
        averaged: export the moving average of the weights if the run kept one (``optim.average``), else the weights of
            the last step.
        data: aligned faces for the parity check, for int8, and to choose thresholds on. By default the people that the
            run held out. The check and int8 do with training images if there are none; the check also uses synthetic
            faces.
        terms: terms of use of the weights, for the description; by default the recipe's. Required for published
            weights.
    """
    out = _checked(out, precision)
    trained = open_network(run, averaged=averaged)
    if embedding_only and not trained.network.embedding_size:
        raise Error(f"{run}: the network has no embedding, so there is nothing for embedding_only to export")
    names = ["embedding"] if embedding_only else _output_names(trained)
    people, uncalibrated = (open_source(data), "") if data else _held_out(trained)
    if people is not None and isinstance(trained, TrainedNetwork):
        _calibrate_face_heads(trained, people)
    description = describe(trained, names, name=out.stem, terms=terms, license=license, precision=precision)
    return _export(trained, description, out, people, uncalibrated)


def export_network(
    network: FaceNetwork,
    loss: FaceLoss,
    out: str | Path,
    *,
    terms: str,
    training_data: str = "",
    backbone: str = "",
    precision: str = "fp32",
    data: Sequence[str] = (),
    license: str = "",
) -> ExportedRun:
    """Export a network of an own training loop, with the scores of its loss; see ``export_run``.

    Args:
        network: trunk and heads; wrap a trunk of your own in a ``FaceNetwork``.
        loss: its ``score`` gives the quality.
        out: path of the .onnx file.
        terms: terms of use of the weights, which the file carries.
        training_data: what it was trained on, for the description.
        backbone: name of the architecture, for the description.
        data: aligned faces of people who were not trained on, to choose thresholds on; without, there are none.
    """
    out = _checked(out, precision)
    network = copy.deepcopy(network).cpu().float().eval()
    loss = copy.deepcopy(loss).cpu().float().eval()
    trained = ScoringNetwork(str(out), network, loss, backbone, Origin(training_data, terms))
    description = describe(trained, _output_names(trained), name=out.stem, license=license, precision=precision)
    people = open_source(data) if data else None
    return _export(trained, description, out, people, "no data to choose them on was given")


def _export(
    trained: ScoringNetwork, description: Description, out: Path, people: Source | None, uncalibrated: str
) -> ExportedRun:
    """Write the file, if its outputs agree with PyTorch's, with thresholds chosen on people who are given."""
    precision = description.precision
    source = _training_images(trained) if people is None else people
    faces = _calibration_faces(source) if precision == "int8" else None
    crops = check_crops(source)
    with scratch_folder() as scratch:
        # Without a description it is no model yet; described has one, and no thresholds.
        part, described = scratch / f"part.{out.name}", scratch / out.name
        _check_finite(trained, crops)
        names = list(description.outputs)
        example = torch.zeros(2, 3, CROP_SIZE, CROP_SIZE)
        write_module(_ScoringModule(trained, names).eval(), {"image": example}, names, part)
        if precision == "fp16":
            store_weights_as_float16(part)
        if faces is not None:
            quantize(part, faces)
        parity = check_parity(trained, load_model(part, description=description), crops)
        replace_entry(part, out if people is None else described, METADATA_KEY, description.to_json())
        if people is None:
            return ExportedRun(description, parity, uncalibrated)
        try:
            found = calibrate(described, people, out=out)
        except Error as error:
            replace_entry(described, out, METADATA_KEY, description.to_json())
            return ExportedRun(description, parity, str(error))
    return ExportedRun(found.description, parity, left_out=found.left_out)


def _checked(out: str | Path, precision: str) -> Path:
    if precision not in TOLERANCES:
        raise Error(
            f"no precision {precision!r}{did_you_mean(precision, TOLERANCES)}; available: {', '.join(TOLERANCES)}"
        )
    if Path(out).suffix.lower() != ".onnx":
        raise Error(f"{out}: a model is written as .onnx; choose a file with that suffix")
    return Path(out)


def _calibrate_face_heads(trained: TrainedNetwork, people: Source) -> None:
    """Calibrate the outputs about non-faces and covered faces, if there are any, on faces changed as in training."""
    if not FACE_HEADS.keys() <= trained.network.reads.keys():
        return
    recipe = trained.recipe
    views = KeptViews(recipe.data.augmentation.model_copy(update={"views": CALIBRATION_VIEWS}), recipe.seed)
    keys = [(row, view) for row in range(len(people)) for view in range(CALIBRATION_VIEWS)]
    crops = np.stack([views.view(people.crop(row), view, row) for row, view in keys])
    covers = [views.covers(view, row) for row, view in keys]
    covered = torch.tensor([UNCLEAR if each is None else int(each) for each in covers])
    calibrate_face_heads(trained.network, to_network_input(torch.from_numpy(crops)), covered)


def _check_finite(trained: ScoringNetwork, crops: NDArray[np.uint8]) -> None:
    outputs = NetworkEmbedder(trained.network, trained.loss.score)(crops)
    broken = [
        name
        for name in STANDARD_OUTPUTS
        if (values := getattr(outputs, name)) is not None and not np.isfinite(values).all()
    ]
    if not broken:
        return
    advice = "export other weights"
    if isinstance(trained, TrainedNetwork):
        advice = (
            f"it has trained for {trained.step:,} steps, and the averages of its BatchNorms, which take the place of a "
            "batch's statistics outside of training, settle only after some hundred: resume the run"
        )
    raise ModelError(f"{trained.name}: the network's {' and '.join(broken)} is not a finite number; {advice}")


def check_parity(trained: ScoringNetwork, exported: OnnxEmbedder | OnnxQuality, crops: NDArray[np.uint8]) -> Parity:
    """Compare an exported file with the network it was exported from."""
    precision = exported.description.precision
    expected = NetworkEmbedder(trained.network, trained.loss.score)(crops)
    actual = exported(crops)
    if not isinstance(actual, FaceOutputs):
        actual = replace(expected, quality=actual)
    try:
        return compare_outputs(expected, actual, TOLERANCES[precision])
    except ModelError as error:
        if precision == "fp32":
            raise
        raise ModelError(f"{error}: the network does not tolerate {precision}; export it as fp32") from error


def describe(
    trained: ScoringNetwork, names: Sequence[str], *, name: str, terms: str = "", **fields: str
) -> Description:
    """The description for the exported file, with further ``fields`` such as its license and precision."""
    origin = trained.origin
    if not (terms or origin.terms):
        raise Error(
            f"{trained.name}: weights come without terms of use; give terms (insightface's: "
            "non-commercial research only)"
        )
    if isinstance(trained, TrainedNetwork):
        fields["recipe_sha256"] = hashlib.sha256(trained.recipe.to_yaml().encode()).hexdigest()
    return Description.model_validate(
        {
            "schema": SCHEMA,
            "name": name,
            "method": trained.loss.name,
            "backbone": trained.backbone,
            "embedding_size": trained.network.embedding_size or None,
            "outputs": {role: role for role in names},
            "quality": "output:quality" if "quality" in names else "none",
            "training_data": origin.training_data,
            "terms": terms or origin.terms,
            "source": trained.source,
            "facerts_version": __version__,
            **fields,
        }
    )


@torch.no_grad()
def _output_names(trained: ScoringNetwork) -> list[str]:
    scored = trained.loss.score(trained.network(torch.zeros(2, 3, CROP_SIZE, CROP_SIZE)))
    absent = () if trained.network.embedding_size else ("embedding", "norm")
    return [name for name in scored if name not in absent]


def _calibration_faces(source: Source | None) -> NDArray[np.uint8]:
    """Evenly spaced images of a source, to calibrate int8."""
    if source is None:
        raise DataError(
            "int8 needs faces to calibrate the ranges of activations, and the recipe's images are not available; give "
            "some as data"
        )
    if len(source) < MIN_CALIBRATION_FACES:
        raise DataError(
            f"{source.name}: int8 needs at least {MIN_CALIBRATION_FACES} faces to calibrate the ranges of activations, "
            f"and there are only {len(source)}; give more as data"
        )
    rows = np.unique(np.linspace(0, len(source) - 1, CALIBRATION_FACES).astype(int))
    return np.stack([source.crop(int(row)) for row in rows])


def _held_out(trained: ScoringNetwork) -> tuple[Source | None, str]:
    """The people that a run held out, or why there are none."""
    if not isinstance(trained, TrainedNetwork):
        return None, "published weights hold nobody out"
    recipe = trained.recipe
    heldout: list[Source] = []
    try:
        if recipe.data.holdout_identities:
            kept, others = hold_out_identities(
                open_source(recipe.data.train), recipe.data.holdout_identities, recipe.seed
            )
            # With images without identity, there may be centers for these, too.
            if not recipe.data.unlabeled and len(kept.identities) != trained.identities:
                return None, f"{kept.name} has changed since the training, so it is not known who was held out"
            heldout.append(others)
        if paths := heldout_paths(recipe.validation):
            heldout.append(open_source(paths))
    except DataError as error:  # exported on another machine than trained
        return None, f"the people that the run held out are not here ({error})"
    if not heldout:
        return None, "the run held nobody out, or they are not here (data.holdout_identities, validation.heldout)"
    return (heldout[0] if len(heldout) == 1 else Joined(heldout)), ""


def _training_images(trained: ScoringNetwork) -> Source | None:
    if not isinstance(trained, TrainedNetwork):
        return None
    try:
        return open_source(trained.recipe.data.train)
    except DataError:  # synthetic faces are used instead
        return None


def write_module(module: nn.Module, examples: Mapping[str, Tensor], outputs: Sequence[str], path: Path) -> None:
    """Export a module with a dynamic batch size.

    ``examples`` are inputs by name, in the order of ``forward``, with two rows each: with a single row, the exporter
    would treat the batch size as a constant.
    """
    with importing("export needs onnx and onnxscript", "train"):
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
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
