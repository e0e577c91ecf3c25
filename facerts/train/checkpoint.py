"""Checkpoints: the whole state of a run in one file that is either old or new, never half."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from facerts.errors import ModelError
from facerts.files import atomic_write
from facerts.methods import Method
from facerts.nn import FaceNetwork, build_network
from facerts.train.recipe import Recipe

SCHEMA = "facerts.checkpoint/1"
FILE = "checkpoint.pt"


def save_checkpoint(path: Path, recipe: Recipe, state: dict[str, Any]) -> None:
    """Write a checkpoint: the recipe and the loop's state (tensors, numbers and containers of them)."""
    with atomic_write(path) as file:
        torch.save({"schema": SCHEMA, "recipe": recipe.model_dump_json(), **state}, file)


def load_checkpoint(path: Path, device: torch.device | str = "cpu") -> tuple[Recipe, dict[str, Any]]:
    """Read a checkpoint; nothing in it is executed.

    Raises:
        ModelError: no such file, or not a checkpoint of ours.
    """
    if not path.is_file():
        raise ModelError(f"{path}: no checkpoint here; a training run writes {FILE} into its folder")
    try:
        state = torch.load(path, map_location=device, weights_only=True)
    except (RuntimeError, pickle.UnpicklingError, EOFError, OSError, ValueError) as error:
        raise ModelError(f"{path}: not a readable checkpoint ({str(error).splitlines()[0]})") from error
    if not isinstance(state, dict) or state.get("schema") != SCHEMA:
        raise ModelError(f"{path}: not a checkpoint of the form {SCHEMA}")
    return Recipe.model_validate(json.loads(state.pop("recipe"))), state


@dataclass(frozen=True)
class TrainedNetwork:
    """A network in evaluation mode with what made it.

    Attributes:
        network: in evaluation mode, on the CPU, float32.
        method: whose ``score`` reads its outputs.
        recipe: of the run.
        step: training steps behind it.
        identities: C, how many it was trained to tell apart.
    """

    network: FaceNetwork
    method: Method
    recipe: Recipe
    step: int
    identities: int


def load_network(run: str | Path) -> TrainedNetwork:
    """The network of a run, from its folder or from a checkpoint file."""
    path = Path(run)
    recipe, state = load_checkpoint(path / FILE if path.is_dir() else path)
    method = recipe.build_method()
    network = build_network(
        recipe.backbone.name,
        embedding_size=recipe.backbone.embedding_size,
        heads=method.heads(),
        width=recipe.backbone.width,
        dropout=recipe.backbone.dropout,
    )
    network.load_state_dict(state["network"])
    # Checkpoints from before methods kept anything of their own have no such part.
    method.state.load_state_dict(state.get("method", {}))
    return TrainedNetwork(network.eval(), method, recipe, state["step"], len(state["centres"]["weight"]))


def start_from(run: str | Path, network: FaceNetwork, centres: nn.Module | None) -> None:
    """Give a new network the trunk and the embedding of a run, and class centres that learn the run's, if as many.

    Raises:
        ModelError: no such run, or its network has another shape.
    """
    path = Path(run)
    recipe, state = load_checkpoint(path / FILE if path.is_dir() else path)
    own = network.state_dict()
    shared = {name: value for name, value in own.items() if not name.startswith("heads.")}
    unlike = [
        name
        for name, value in shared.items()
        if getattr(state["network"].get(name), "shape", None) != value.shape
    ]
    if unlike:
        raise ModelError(
            f"{run}: its network is {recipe.backbone.name} of width {recipe.backbone.width:g} with "
            f"{recipe.backbone.embedding_size} numbers, another than this recipe's ({unlike[0]} differs)"
        )
    network.load_state_dict({**own, **{name: state["network"][name] for name in shared}})
    if centres is not None and state["centres"]["weight"].shape == centres.state_dict()["weight"].shape:
        centres.load_state_dict(state["centres"])
