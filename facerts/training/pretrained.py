"""Networks to export: those of runs, and those that others have published."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from pydantic import ValidationError

from facerts.errors import ModelError
from facerts.training.checkpoint import (
    ReadyNetwork,
    TrainedNetwork,
    is_checkpoint,
    read_file,
    trained_network,
)
from facerts.training.methods import METHODS
from facerts.training.nn import FaceNetwork, build_network, pretrained
from facerts.training.recipe import Backbone


@dataclass(frozen=True)
class PublishedNetwork(ReadyNetwork):
    """A network whose weights were published; see ``facerts.training.nn.pretrained``.

    Attributes:
        file: that holds them.
    """

    file: Path


def open_network(weights: str | Path, *, averaged: bool = True) -> TrainedNetwork | PublishedNetwork:
    """The network of a run, from its folder or a checkpoint, or that of a file of published weights.

    Published weights do not say which loss they were trained with. They are scored as ArcFace's, whose quality is the
    length of the embedding, as it is for every loss without a head of its own.

    Args:
        weights: the run, its checkpoint, or the file.
        averaged: see ``trained_network``.

    Raises:
        ModelError: no such file, or the network in it is not known.
    """
    state = read_file(weights)
    if is_checkpoint(state):
        return trained_network(state, weights, averaged=averaged)
    tensors = pretrained.state_dict(state, weights)
    looks = pretrained.recognize(tensors)
    if looks is None:
        raise ModelError(
            f"{weights}: neither a checkpoint of ours nor an IResNet as insightface's arcface_torch saves it; the "
            f"first weight in it is {next(iter(tensors))}"
        )
    try:
        backbone = Backbone(name=looks.name, width=looks.width, embedding_size=looks.embedding_size)
    except ValidationError as error:
        raise ModelError(f"{weights}: it looks like {looks}, which no network is") from error

    def build() -> FaceNetwork:
        return build_network(looks.name, embedding_size=looks.embedding_size, width=looks.width)

    # First without memory: shapes that the file claims decide how much a network takes.
    with torch.device("meta"):
        pretrained.check_published(build(), tensors, weights)
    network = build()
    pretrained.load_published(network, tensors, weights)
    method = METHODS["arcface"](METHODS["arcface"].Config(), looks.embedding_size)
    return PublishedNetwork(network.eval(), method, backbone, Path(weights))
