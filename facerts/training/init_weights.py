"""Where a run begins that does not begin from nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from facerts.errors import ModelError
from facerts.training.checkpoint import check_parts, exported_weights, is_checkpoint, read_file, recipe_of
from facerts.training.class_head.centers import ClassCenters
from facerts.training.methods import Method
from facerts.training.nn import FaceNetwork, pretrained


def start_from(
    weights: str | Path, network: FaceNetwork, method: Method, centers: ClassCenters | None
) -> None:
    """Give a new network the trunk and the embedding of a run or of a file of published weights.

    A run has more to give: its class centers, if as many; and its heads and what its method keeps, if it is the same
    method with heads of the same size.

    Args:
        weights: the run's folder, a checkpoint, or a file as ``facerts.training.nn.pretrained`` knows it.
        network: to change.
        method: whose state to change.
        centers: to change; None where they do not learn.

    Raises:
        ModelError: no such file, or its network has another shape.
    """
    state = read_file(weights)
    if not is_checkpoint(state):
        pretrained.load_published(network, pretrained.state_dict(state, weights), weights)
        return
    recipe = recipe_of(state, weights)
    check_parts(state, weights)
    given, own = exported_weights(state), network.state_dict()
    heads = {name: value for name, value in own.items() if name.startswith("heads.")}
    taken = own.keys() - heads.keys()
    if unlike := _unlike(given, {name: own[name] for name in own if name in taken}):
        raise ModelError(
            f"{weights}: its network is {recipe.backbone.name} of width {recipe.backbone.width:g} with "
            f"{recipe.backbone.embedding_size} numbers, another than this recipe's ({unlike[0]} differs)"
        )
    kept, keeps = state.get("method", {}), method.state.state_dict()
    if recipe.method["name"] == method.name and not _unlike(given, heads) and not _unlike(kept, keeps):
        taken |= heads.keys()
        method.state.load_state_dict({name: kept[name] for name in keeps})
    network.load_state_dict({**own, **{name: given[name] for name in taken}})
    rows = state["centers"]["weight"]
    if centers is not None and rows.shape == (centers.identities, network.embedding_size):
        centers.load_state_dict({"weight": rows[centers.classes.start : centers.classes.stop]})


def _unlike(given: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> list[str]:
    """Names of what is missing or has another shape."""
    return [name for name, value in own.items() if getattr(given.get(name), "shape", None) != value.shape]
