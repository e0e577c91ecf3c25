"""Trained networks, to export or to initialize a new run from: those of runs, exported files, and published ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from pydantic import ValidationError
from torch.nn.modules.batchnorm import _BatchNorm

from facerts.errors import ModelError
from facerts.hub.registry import find_shipped, shipped_models
from facerts.io.files import sha256_file
from facerts.losses import ArcFace, FaceLoss, PartialFC
from facerts.nn import FaceNetwork, arcface_torch, build_network, exported
from facerts.training.checkpoint import (
    Origin,
    ScoringNetwork,
    checked_state,
    is_checkpoint,
    mismatched_shapes,
    origin_of,
    read_file,
    trained_network,
)
from facerts.training.recipe import Backbone


@dataclass(frozen=True)
class InitialWeights:
    """What a run must know of the weights it starts from.

    ``origin`` is what they were trained on; None for published weights, which do not say. ``norms`` are BatchNorms
    without statistics, from an exported file; see ``exported.load_exported``.
    """

    origin: Origin | None = None
    norms: Sequence[_BatchNorm] = ()


def open_network(weights: str | Path, *, averaged: bool = True) -> ScoringNetwork:
    """The network of a run, from its folder or a checkpoint, or the network of a file of published weights.

    Published weights do not say which loss they were trained with. They are scored like ArcFace's, with the norm of the
    embedding as quality, as for all losses without a head of their own.
    """
    state = read_file(weights)
    if is_checkpoint(state):
        return trained_network(state, weights, averaged=averaged)
    tensors = arcface_torch.state_dict(state, weights)
    architecture = arcface_torch.recognize(tensors)
    if architecture is None:
        raise ModelError(
            f"{weights}: neither a facerts checkpoint nor an IResNet as insightface's arcface_torch saves it; the "
            f"first weight in it is {next(iter(tensors))}"
        )
    name, width, embedding_size = architecture.name, architecture.width, architecture.embedding_size
    try:
        backbone = Backbone(name=name, width=width, embedding_size=embedding_size)
    except ValidationError as error:
        raise ModelError(f"{weights}: it looks like {architecture}, which does not exist") from error

    def build() -> FaceNetwork:
        return build_network(name, embedding_size=embedding_size, width=width)

    # First on the meta device: a forged file could claim a network of any size.
    with torch.device("meta"):
        arcface_torch.check_pretrained(build(), tensors, weights)
    network = build()
    arcface_torch.load_pretrained(network, tensors, weights)
    loss = ArcFace(embedding_size=embedding_size)
    source = f"{Path(weights).name}, SHA-256 {sha256_file(Path(weights))}"
    return ScoringNetwork(str(weights), network.eval(), loss, str(backbone), Origin("", ""), source=source)


def init_weights(
    weights: str | Path, network: FaceNetwork, loss: FaceLoss, centers: PartialFC | None
) -> InitialWeights:
    """Initialize trunk and embedding of a new network from a run, an exported file or a file of published weights.

    From a run, the class centers are also taken if there are as many, and the heads and the method's state if it is the
    same method with heads of the same size; from an exported file, the heads if it is the same method.

    Args:
        weights: folder of the run, checkpoint, file or name of a model that ``facerts export`` has written, or file
            that ``facerts.nn.arcface_torch`` can read.
        centers: changed in place; None if they are not learned.
    """
    if file := _exported_file(weights):
        model = exported.read_exported(file)
        norms = exported.load_exported(network, model, heads=model.description.method == loss.name)
        return InitialWeights(Origin(model.description.training_data, model.description.terms), norms)
    state = read_file(weights)
    if not is_checkpoint(state):
        arcface_torch.load_pretrained(network, arcface_torch.state_dict(state, weights), weights)
        return InitialWeights()
    recipe, run = checked_state(state, weights)
    tensors, own = run["average"] or run["network"], network.state_dict()
    heads = {name: value for name, value in own.items() if name.startswith("heads.")}
    loaded = own.keys() - heads.keys()
    if mismatched := mismatched_shapes(tensors, {name: own[name] for name in own if name in loaded}):
        raise ModelError(
            f"{weights}: its network, {recipe.backbone.name} of width {recipe.backbone.width:g} with embeddings of "
            f"size {recipe.backbone.embedding_size}, is not the network of this recipe ({mismatched[0]} differs)"
        )
    method_state, own_state = run["method"], loss.state.state_dict()
    same_method = recipe.method["name"] == loss.name
    if same_method and not mismatched_shapes(tensors, heads) and not mismatched_shapes(method_state, own_state):
        loaded |= heads.keys()
        loss.state.load_state_dict({name: method_state[name] for name in own_state})
    network.load_state_dict({**own, **{name: tensors[name] for name in loaded}})
    rows = run["centers"]["weight"]
    if centers is not None and rows.shape == (centers.num_classes, network.embedding_size):
        centers.load_state_dict({"weight": rows[centers.classes.start : centers.classes.stop]})
    return InitialWeights(origin_of(run, recipe))


def _exported_file(weights: str | Path) -> Path | None:
    """The ONNX file if that is what is named, by path or as a model that ships."""
    path = Path(weights)
    if path.suffix.lower() == ".onnx":
        return path
    shipped = {model.name for model in shipped_models()}
    return find_shipped(str(weights)) if str(weights) in shipped and not path.exists() else None
