"""Pretrained weights of IResNets, as insightface's arcface_torch saves them.

Its ``backbone.pth`` is the state dict of the network of Deng et al., CVPR 2019: the stem ``conv1``, ``bn1``, ``prelu``;
the blocks ``layer1.0`` to ``layer4.N``; then ``bn2``, ``fc`` and ``features``. Our trunk and embedding are the same
network with other names, for input of the same size, color order and scale.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from facerts.errors import ModelError
from facerts.nn.iresnet import BLOCKS_PER_STAGE, STAGE_CHANNELS
from facerts.nn.twin_heads import FaceNetwork

# Our module names and those of arcface_torch.
OUTSIDE_BLOCKS = {
    "trunk.0.0": "conv1",
    "trunk.0.1": "bn1",
    "trunk.0.2": "prelu",
    "trunk.5": "bn2",
    "embedding.0": "fc",
    "embedding.1": "features",
}
INSIDE_BLOCKS = {
    "residual.0": "bn1",
    "residual.1": "conv1",
    "residual.2": "bn2",
    "residual.3": "prelu",
    "residual.4": "conv2",
    "residual.5": "bn3",
    "shortcut.0": "downsample.0",
    "shortcut.1": "downsample.1",
}
# Keys under which training scripts store the state dict, and the prefix that DistributedDataParallel adds to names.
WRAPPERS = ("state_dict", "state_dict_backbone")
PREFIX = "module."
MAX_LISTED = 3
# BatchNorm's count of batches, the only integers among weights. Some scripts do not save it; with a fixed momentum it
# has no effect.
COUNTER = "num_batches_tracked"


def check_finite(weights: Mapping[str, Tensor], where: object) -> None:
    """Check that all weights are finite floating-point numbers."""
    for name, values in weights.items():
        if name.endswith(COUNTER):
            continue
        if not values.is_floating_point():
            kind = str(values.dtype).removeprefix("torch.")
            raise ModelError(f"{where}: weight {name!r} holds {kind}, not floating-point numbers")
        if not torch.isfinite(values).all():
            raise ModelError(f"{where}: weight {name!r} has values that are not finite numbers")


@dataclass(frozen=True)
class Architecture:
    """The backbone that the names and shapes of weights belong to."""

    name: str
    width: float
    embedding_size: int

    def __str__(self) -> str:
        return f"{self.name} of width {self.width:g} with embeddings of size {self.embedding_size}"


def state_dict(saved: Mapping[str, Any], where: object) -> dict[str, Tensor]:
    """The tensors of a saved file, by name without prefix."""
    for wrapper in WRAPPERS:
        if isinstance(saved.get(wrapper), Mapping):
            saved = saved[wrapper]
    if not saved or not all(isinstance(k, str) and isinstance(v, Tensor) for k, v in saved.items()):
        raise ModelError(f"{where}: neither a facerts checkpoint nor a state dict of a network")
    check_finite(saved, where)
    return {name.removeprefix(PREFIX): value for name, value in saved.items() if not name.endswith(COUNTER)}


def recognize(weights: Mapping[str, Tensor]) -> Architecture | None:
    """The backbone that weights belong to, or None if it is not an IResNet."""
    matches = [re.match(r"layer([1-4])\.(\d+)\.", name) for name in weights]
    blocks = {match.groups() for match in matches if match}
    per_stage = tuple(sum(stage == str(number) for stage, _ in blocks) for number in range(1, 5))
    depths = [depth for depth, counts in BLOCKS_PER_STAGE.items() if counts == per_stage]
    if not depths or not all(getattr(weights.get(name), "ndim", 0) for name in ("conv1.weight", "fc.weight")):
        return None
    has_se = any(part.startswith("se") for name in weights for part in name.split("."))
    return Architecture(
        f"iresnet{depths[0]}" + ("_se" if has_se else ""),
        len(weights["conv1.weight"]) / STAGE_CHANNELS[0],
        len(weights["fc.weight"]),
    )


def load_pretrained(network: FaceNetwork, weights: Mapping[str, Tensor], where: object) -> None:
    """Load weights, from ``state_dict``, into a network's trunk and embedding; its other heads do not change."""
    names = check_pretrained(network, weights, where)
    network.load_state_dict({**network.state_dict(), **{own: weights[pretrained] for own, pretrained in names.items()}})


def check_pretrained(network: FaceNetwork, weights: Mapping[str, Tensor], where: object) -> dict[str, str]:
    """Check that weights of ``state_dict`` fit a network's trunk and embedding, also one on the meta device.

    Returns the arcface_torch name of each weight of the trunk and the embedding.
    """
    own = {
        name: value
        for name, value in network.state_dict().items()
        if not name.startswith("heads.") and not name.endswith(COUNTER)
    }
    names = {name: arcface_torch_name(name) for name in own}
    expected = {names[name]: value.shape for name, value in own.items()}
    problems = {
        "missing": sorted(expected.keys() - weights.keys()),
        "unexpected": sorted(weights.keys() - expected.keys()),
        "wrong shape": [
            f"{name} {tuple(weights[name].shape)}, expected {tuple(shape)}"
            for name, shape in expected.items()
            if name in weights and weights[name].shape != shape
        ],
    }
    if any(problems.values()):
        listed = "; ".join(f"{problem}: {_first(names)}" for problem, names in problems.items() if names)
        architecture = recognize(weights)
        raise ModelError(
            f"{where}: the weights do not fit this network; {listed}. The file looks like "
            + (str(architecture) if architecture else "no IResNet of insightface's arcface_torch")
        )
    return names


def arcface_torch_name(name: str) -> str:
    """The arcface_torch name of one of our weights; the name itself if arcface_torch has no such weight."""
    module, _, entry = name.rpartition(".")
    block = re.fullmatch(r"trunk\.([1-4])\.(\d+)\.(.+)", module)
    if block and block[3] in INSIDE_BLOCKS:
        return f"layer{block[1]}.{block[2]}.{INSIDE_BLOCKS[block[3]]}.{entry}"
    return f"{OUTSIDE_BLOCKS[module]}.{entry}" if module in OUTSIDE_BLOCKS else name


def _first(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    listed = ", ".join(names[:MAX_LISTED])
    return f"{listed} and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else listed
