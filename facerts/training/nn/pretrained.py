"""Published weights of IResNets, as insightface's arcface_torch saves them, under our names.

Its ``backbone.pth`` is the state dict of the network of Deng et al., CVPR 2019: stem ``conv1``, ``bn1``, ``prelu``;
blocks ``layer1.0`` to ``layer4.N``; then ``bn2``, ``fc`` and ``features``. Our trunk and embedding are the same
network, with input of the same size, color and scale.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from facerts.errors import ModelError
from facerts.training.nn.heads import FaceNetwork
from facerts.training.nn.iresnet import BLOCKS_PER_STAGE, STAGE_CHANNELS

# Our modules, and their names there.
AROUND_THE_STAGES = {
    "trunk.0.0": "conv1",
    "trunk.0.1": "bn1",
    "trunk.0.2": "prelu",
    "trunk.5": "bn2",
    "embedding.0": "fc",
    "embedding.1": "features",
}
IN_A_BLOCK = {
    "residual.0": "bn1",
    "residual.1": "conv1",
    "residual.2": "bn2",
    "residual.3": "prelu",
    "residual.4": "conv2",
    "residual.5": "bn3",
    "shortcut.0": "downsample.0",
    "shortcut.1": "downsample.1",
}
# Where training scripts put the state dict among other things, and what several processes put before each name.
WRAPPERS = ("state_dict", "state_dict_backbone")
PREFIX = "module."
# BatchNorm's count of batches, which some savers leave out; with a fixed momentum nothing depends on it.
COUNTER = "num_batches_tracked"
LISTED = 3


@dataclass(frozen=True)
class Recognized:
    """The backbone that a file's names and shapes speak of.

    Attributes:
        name: as in ``BACKBONES``.
        width: of its first convolution, as a share of the published one.
        embedding_size: d.
    """

    name: str
    width: float
    embedding_size: int

    def __str__(self) -> str:
        return f"{self.name} of width {self.width:g} with {self.embedding_size} numbers"


def state_dict(saved: Mapping[str, Any], where: object) -> dict[str, Tensor]:
    """The tensors of a saved file by their plain names.

    Args:
        saved: what the file holds: a state dict, or a mapping that has one under ``state_dict``.
        where: the file, for errors.

    Raises:
        ModelError: it holds something else.
    """
    for wrapper in WRAPPERS:
        if isinstance(saved.get(wrapper), Mapping):
            saved = saved[wrapper]
    if not saved or not all(isinstance(k, str) and isinstance(v, Tensor) for k, v in saved.items()):
        raise ModelError(f"{where}: neither a checkpoint of ours nor a network's weights by their names")
    return {name.removeprefix(PREFIX): value for name, value in saved.items() if not name.endswith(COUNTER)}


def recognize(weights: Mapping[str, Tensor]) -> Recognized | None:
    """The backbone whose weights these are; None where they are no IResNet's."""
    blocks = [re.match(r"layer([1-4])\.(\d+)\.", name) for name in weights]
    found = {match.groups() for match in blocks if match}
    per_stage = tuple(sum(stage == str(number) for stage, _ in found) for number in range(1, 5))
    depths = [depth for depth, counts in BLOCKS_PER_STAGE.items() if counts == per_stage]
    if not depths or not all(getattr(weights.get(name), "ndim", 0) for name in ("conv1.weight", "fc.weight")):
        return None
    gated = any(part.startswith("se") for name in weights for part in name.split("."))
    return Recognized(
        f"iresnet{depths[0]}" + ("_se" if gated else ""),
        len(weights["conv1.weight"]) / STAGE_CHANNELS[0],
        len(weights["fc.weight"]),
    )


def load_published(network: FaceNetwork, weights: Mapping[str, Tensor], where: object) -> None:
    """Give a network's trunk and embedding published weights; its other heads stay as they are.

    Args:
        network: to change.
        weights: by their published names, from ``state_dict``.
        where: the file, for errors.

    Raises:
        ModelError: as ``check_published``; nothing was changed.
    """
    theirs = check_published(network, weights, where)
    network.load_state_dict(
        {**network.state_dict(), **{name: weights[published] for name, published in theirs.items()}}
    )


def check_published(network: FaceNetwork, weights: Mapping[str, Tensor], where: object) -> dict[str, str]:
    """Hold published weights against a network, which may be one without memory.

    Args:
        network: whose trunk and embedding they are to be.
        weights: by their published names, from ``state_dict``.
        where: the file, for errors.

    Returns:
        The published name of each weight of the network.

    Raises:
        ModelError: names are missing or left over, or shapes differ.
    """
    own = {
        name: value
        for name, value in network.state_dict().items()
        if not name.startswith("heads.") and not name.endswith(COUNTER)
    }
    theirs = {name: published_name(name) for name in own}
    wanted = {theirs[name]: value.shape for name, value in own.items()}
    problems = {
        "missing": sorted(wanted.keys() - weights.keys()),
        "left over": sorted(weights.keys() - wanted.keys()),
        "of another shape": [
            f"{name} {tuple(weights[name].shape)} for {tuple(shape)}"
            for name, shape in wanted.items()
            if name in weights and weights[name].shape != shape
        ],
    }
    if any(problems.values()):
        listed = "; ".join(f"{what}: {_first(names)}" for what, names in problems.items() if names)
        looks = recognize(weights)
        like = f"like {looks}" if looks else "like no IResNet of insightface's arcface_torch"
        raise ModelError(
            f"{where}: its weights are not those of this network; {listed}. The file looks {like}"
        )
    return theirs


def published_name(name: str) -> str:
    """What a weight of ours is called there; its own name where it is in no network that is published."""
    module, _, entry = name.rpartition(".")
    block = re.fullmatch(r"trunk\.([1-4])\.(\d+)\.(.+)", module)
    if block and block[3] in IN_A_BLOCK:
        return f"layer{block[1]}.{block[2]}.{IN_A_BLOCK[block[3]]}.{entry}"
    return f"{AROUND_THE_STAGES[module]}.{entry}" if module in AROUND_THE_STAGES else name


def _first(names: Sequence[str]) -> str:
    """The first few of many names."""
    listed = ", ".join(names[:LISTED])
    return f"{listed} and {len(names) - LISTED} more" if len(names) > LISTED else listed
