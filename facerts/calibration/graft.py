"""A quality for a recognizer from another model: one ONNX file with the outputs of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from facerts.calibration.quality_thresholds import calibrate
from facerts.embedding import OnnxEmbedder, load_embedder
from facerts.embedding.onnx_embedder import OnnxModel, OnnxQuality
from facerts.embedding.parity import Parity, check_crops, compare_outputs
from facerts.errors import Error, ModelError
from facerts.hub.find import find_model
from facerts.io.files import scratch_folder
from facerts.onnx.contract import METADATA_KEY, Calibration, Description, Matching
from facerts.onnx.crop_nodes import OPSET, prepend_preprocessing
from facerts.onnx.graph_edit import keep_outputs, load_graph
from facerts.onnx.merge_graphs import add_length, append, same_opset
from facerts.onnx.model_pack import find_recognizer, is_pack
from facerts.onnx.providers import Runtime
from facerts.onnx.wire import replace_entry
from facerts.version import __version__

if TYPE_CHECKING:
    from onnx import ModelProto
    from typing_extensions import Unpack


@dataclass(frozen=True)
class JoinedModel:
    """A file with the outputs of a recognizer and the quality of another model.

    Attributes:
        description: description of the file, with its thresholds.
        left_out: why faces to calibrate on could not be read, one sentence each.
    """

    description: Description
    parity: Parity
    left_out: tuple[str, ...] = ()


def graft_quality(
    model: str | Path,
    quality: str | Path,
    out: str | Path,
    *,
    faces: str | Path | Sequence[str | Path] | None = None,
    **runtime: Unpack[Runtime],
) -> JoinedModel:
    """Write one ONNX file with the embedding of a recognizer and the quality of another model.

    Both read the same crops, so the quality need not be contained in the embedding. The recognizer's inputs, outputs
    and names do not change. Whatever the quality does not need of its graph is left out. Without faces, quality
    thresholds are those of the quality, as is the probe for non-faces; match thresholds are those of the recognizer,
    each if it has some. Does not need PyTorch.

    Args:
        model: an ONNX recognizer with its description, a model pack, or the name of a shipped model.
        quality: an ONNX model with a quality and its description, or the name of a shipped model.
        out: path of the .onnx file; written only if it gives the embedding and the quality of the two models, and the
            calibration succeeds.
        faces: aligned faces to choose quality and match thresholds on, in any layout that ``open_source`` accepts.
    """
    path, quality_path, out = find_model(model), find_model(quality), Path(out)
    if out.suffix.lower() != ".onnx":
        raise Error(f"{out}: a joined model is written as .onnx; choose a file with that suffix")
    if out.resolve() in (path.resolve(), quality_path.resolve()):
        raise Error(f"{out}: it is one of the two models to join; give another file to write")
    with scratch_folder() as folder:
        pack_description = None
        if is_pack(path):
            path, pack_description = find_recognizer(path, folder)
        recognizer = load_embedder(path, description=pack_description, **runtime)
        scorer = OnnxQuality(quality_path, **runtime)
        graph = load_graph(path, "joining models")
        batch = _common_batch(recognizer, scorer)
        graph, roles = _joined(graph, recognizer, load_graph(quality_path, "joining models"), scorer)
        _set_batch(graph, recognizer, batch)
        description = _describe(recognizer, scorer, roles, batch, out.stem)
        part = folder / "joined.onnx"
        content = graph.SerializeToString()
        part.write_bytes(content)
        joined = OnnxEmbedder(out, content=content, description=description, **runtime)
        crops = check_crops()
        expected = replace(recognizer(crops), quality=scorer(crops))
        named = f"{recognizer.name} with the quality of {scorer.name}"
        parity = compare_outputs(expected, joined(crops), of=named)
        if faces is None:
            replace_entry(part, out, METADATA_KEY, description.to_json())
            return JoinedModel(description, parity)
        described = folder / "described" / out.name
        described.parent.mkdir()
        replace_entry(part, described, METADATA_KEY, description.to_json())
        try:
            found = calibrate(described, faces, out=out, **runtime)
        except ModelError as error:
            raise ModelError(str(error).replace(str(described), str(out))) from error
    return JoinedModel(found.description, parity, found.left_out)


def _joined(
    graph: ModelProto, recognizer: OnnxModel, quality_graph: ModelProto, scorer: OnnxModel
) -> tuple[ModelProto, dict[str, str]]:
    """The joined graph, and the output of each role that the quality adds."""
    ours, theirs = scorer.description, recognizer.description
    graph, quality_graph = same_opset(graph, quality_graph, OPSET)
    tensors = {"quality": _quality_tensor(quality_graph, ours)}
    for role in ("uncertainty", "not_a_face", "covered"):
        if role in ours.outputs:
            tensors[role] = ours.outputs[role]
    keep_outputs(quality_graph.graph, set(tensors.values()))
    crop = prepend_preprocessing(quality_graph.graph, ours.input, theirs.input)
    return graph, append(graph, quality_graph, {crop: theirs.input.name}, tensors)


def _quality_tensor(model: ModelProto, description: Description) -> str:
    """Name of the output with the quality; added to the graph if quality is the length of the embedding."""
    if description.quality.startswith("output:"):
        return description.quality.removeprefix("output:")
    if description.quality == "none":
        return description.outputs["quality"]
    if description.normalize_embedding:
        return add_length(model, description.outputs["embedding"])
    return description.outputs["norm"]


def _common_batch(recognizer: OnnxModel, scorer: OnnxModel) -> int | None:
    """The only batch size that both accept; None for any."""
    theirs, ours = recognizer.description.input.batch, scorer.description.input.batch
    if theirs and ours and theirs != ours:
        raise ModelError(
            f"{recognizer.name} takes batches of {theirs} crops and {scorer.name} batches of {ours}, so they cannot be "
            "in one file; export one of them with a dynamic batch size"
        )
    return theirs or ours


def _set_batch(model: ModelProto, recognizer: OnnxModel, batch: int | None) -> None:
    if batch is not None:
        name = recognizer.description.input.name
        (crops,) = (value for value in model.graph.input if value.name == name)
        crops.type.tensor_type.shape.dim[0].dim_value = batch


def _describe(
    recognizer: OnnxModel, scorer: OnnxModel, roles: dict[str, str], batch: int | None, name: str
) -> Description:
    theirs, ours = recognizer.description, scorer.description
    kept = {role: tensor for role, tensor in theirs.outputs.items() if role not in ("quality", "uncertainty")}
    sources = [
        " ".join(filter(None, (f"{model.name} (SHA-256 {model.sha256})", model.description.source)))
        for model in (recognizer, scorer)
    ]
    return theirs.model_copy(
        update={
            "name": name,
            "method": f"{theirs.method}, quality of {scorer.name} ({ours.method})",
            "input": theirs.input.model_copy(update={"batch": batch}),
            "outputs": {**kept, **roles},
            "quality": f"output:{roles['quality']}",
            "polarity": ours.polarity,
            "thresholds": ours.thresholds,
            "calibration": _calibration(recognizer, scorer),
            "training_data": _both(theirs.training_data, ours.training_data),
            "license": _both(theirs.license, ours.license),
            "terms": _both(theirs.terms, ours.terms),
            "source": _both(*sources),
            "facerts_version": __version__,
        }
    )


def _both(recognizer: str, quality: str) -> str:
    """What is said about the recognizer and about the quality, in one text."""
    if recognizer == quality:
        return recognizer
    parts = {"recognizer": recognizer, "quality": quality}
    return "; ".join(f"{part}: {text}" for part, text in parts.items() if text)


def _calibration(recognizer: OnnxModel, scorer: OnnxModel) -> Calibration | None:
    """The percentiles of the quality and the match thresholds of the recognizer; None if there are neither."""
    theirs, ours = recognizer.description.calibration, scorer.description.calibration
    matching = None if theirs is None else _without_kept(theirs.matching)
    base = ours or theirs
    if base is None:
        return None
    notes = [
        f"Quality thresholds and percentiles are those of {scorer.name}."
        if ours
        else f"{scorer.name} has no quality thresholds.",
        f"Match thresholds are those of {recognizer.name}."
        if matching
        else f"Match thresholds are missing: {recognizer.name} has none. Choose them with facerts calibrate.",
    ]
    quantiles = () if ours is None else ours.quantiles
    return base.model_copy(update={"quantiles": quantiles, "matching": matching, "notes": tuple(notes)})


def _without_kept(matching: Matching | None) -> Matching | None:
    """Match thresholds without the error rates of pairs that pass the recognizer's own quality thresholds."""
    if matching is None:
        return None
    thresholds = {rate: threshold.model_copy(update={"kept": {}}) for rate, threshold in matching.thresholds.items()}
    return matching.model_copy(update={"thresholds": thresholds})
