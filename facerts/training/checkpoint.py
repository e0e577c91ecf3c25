"""Checkpoints: the whole state of a run in one file that is either old or new, never half."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from torch import Tensor

from facerts.errors import ModelError, first_line
from facerts.io.files import atomic_write
from facerts.io.json_file import parse_json
from facerts.training.methods import Method
from facerts.training.nn import FaceNetwork, build_network
from facerts.training.recipe import Backbone, Recipe, explain
from facerts.training.torch_file import check_torch_file

SCHEMA = "facerts.checkpoint/1"
FILE = "checkpoint.pt"


def save_checkpoint(path: Path, recipe: Recipe, state: dict[str, Any]) -> None:
    """Write a checkpoint: the recipe and the loop's state (tensors, numbers and containers of them)."""
    with atomic_write(path) as file:
        torch.save({"schema": SCHEMA, "recipe": recipe.model_dump_json(), **state}, file)


class Saver:
    """Writes checkpoints while training goes on; one at a time, and the last is whole when the block ends."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1)
        self._last: Future[None] | None = None

    def save(self, path: Path, recipe: Recipe, state: dict[str, Any]) -> None:
        """As ``save_checkpoint``, in the background; what the state holds may change as soon as this returns.

        Raises:
            WriteError: the checkpoint before could not be written.
        """
        self.wait()
        self._last = self._pool.submit(save_checkpoint, path, recipe, _copied(state))

    def wait(self) -> None:
        """Until the last checkpoint is there.

        Raises:
            WriteError: it could not be written.
        """
        if self._last is not None:
            self._last.result()

    def __enter__(self) -> Saver:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._pool.shutdown()
        if kind is None:
            self.wait()


def _copied(value: Any) -> Any:
    """Containers of tensors with copies of them on the CPU."""
    if isinstance(value, torch.Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        return {key: _copied(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_copied(entry) for entry in value)
    return value


def load_checkpoint(path: Path, device: torch.device | str = "cpu") -> tuple[Recipe, dict[str, Any]]:
    """Read a checkpoint; nothing in it is executed.

    Raises:
        ModelError: no such file, or not a whole checkpoint of ours.
    """
    state = read_file(path, device)
    recipe = recipe_of(state, path)
    check_parts(state, path)
    return recipe, state


def read_file(run: str | Path, device: torch.device | str = "cpu") -> dict[str, Any]:
    """What a run's checkpoint, or another file of PyTorch's, holds; nothing in it is executed.

    Raises:
        ModelError: no such file, or it is damaged, claims more than it has, or holds more than names, numbers and
            tensors.
    """
    path = Path(run)
    path = path / FILE if path.is_dir() else path
    if not path.is_file():
        raise ModelError(f"{path}: no checkpoint here; a training run writes {FILE} into its folder")
    try:
        check_torch_file(path)
        state = torch.load(path, map_location=device, weights_only=True)
    except (RuntimeError, pickle.UnpicklingError, EOFError, OSError, ValueError) as error:
        raise ModelError(f"{path}: not a readable checkpoint ({first_line(error)})") from error
    if not isinstance(state, dict):
        raise ModelError(
            f"{path}: holds a {type(state).__name__}, neither a checkpoint nor a network's weights"
        )
    if is_checkpoint(state) and "centres" in state:  # as earlier versions wrote
        state["centers"] = state.pop("centres")
    return state


def is_checkpoint(state: dict[str, Any]) -> bool:
    """Whether a file that was read is a checkpoint of ours."""
    return state.get("schema") == SCHEMA


def recipe_of(state: dict[str, Any], where: object) -> Recipe:
    """The recipe in a checkpoint that was read.

    Raises:
        ModelError: not a checkpoint of ours, or without a recipe that can be run.
    """
    if not is_checkpoint(state):
        raise ModelError(f"{where}: not a checkpoint of the form {SCHEMA}")
    text = state.get("recipe")
    if not isinstance(text, str):
        raise ModelError(f"{where}: there is no recipe in it, so nobody knows what network this is")
    try:
        return Recipe.model_validate(parse_json(text, f"{where}, its recipe", error=ModelError))
    except ValidationError as error:
        raise ModelError(f"{where}, its recipe: {explain(error)}") from error


def check_parts(state: dict[str, Any], where: object) -> None:
    """Refuse a checkpoint that lacks what every run writes.

    Raises:
        ModelError: a part is not there, or of another form.
    """
    centers = state.get("centers")
    rows = centers.get("weight") if isinstance(centers, dict) else None
    # Checkpoints from before methods kept anything of their own, or averages were kept, have no such part.
    there = {
        "network": _are_tensors(state.get("network")),
        "average": state.get("average") is None or _are_tensors(state["average"]),
        "method": _are_tensors(state.get("method", {})),
        "centers": isinstance(rows, Tensor) and rows.ndim == 2,
        "step": isinstance(state.get("step"), int),
    }
    if missing := [name for name, whole in there.items() if not whole]:
        raise ModelError(
            f"{where}: its {' and '.join(missing)} are not there, or not as a run writes them; take an earlier one"
        )


def _are_tensors(part: Any) -> bool:
    return isinstance(part, dict) and all(isinstance(value, Tensor) for value in part.values())


@dataclass(frozen=True)
class ReadyNetwork:
    """A network in evaluation mode, and what reads its outputs.

    Attributes:
        network: in evaluation mode, on the CPU, float32.
        method: whose ``score`` reads its outputs.
        backbone: its name and size.
    """

    network: FaceNetwork
    method: Method
    backbone: Backbone


@dataclass(frozen=True)
class TrainedNetwork(ReadyNetwork):
    """The network of a run, with what made it.

    Attributes:
        recipe: of the run.
        step: training steps behind it.
        identities: C, how many it was trained to tell apart.
    """

    recipe: Recipe
    step: int
    identities: int


def load_network(run: str | Path, *, averaged: bool = True) -> TrainedNetwork:
    """The network of a run, from its folder or from a checkpoint file."""
    return trained_network(read_file(run), run, averaged=averaged)


def trained_network(state: dict[str, Any], where: object, *, averaged: bool = True) -> TrainedNetwork:
    """The network in a checkpoint that was read.

    Args:
        state: of the checkpoint.
        where: it was read, for messages.
        averaged: with the moving average of its weights where the run kept one; else with the last step's weights.

    Raises:
        ModelError: not a whole checkpoint of ours, or its weights are not those of its recipe's network.
    """
    recipe = recipe_of(state, where)
    check_parts(state, where)
    weights, kept = exported_weights(state) if averaged else state["network"], state.get("method", {})
    # First without memory: what the recipe says decides how much a network takes.
    with torch.device("meta"):
        network, method = _built(recipe)
    for part, own, given in (("network", network, weights), ("method", method.state, kept)):
        if unlike := unlike_shapes(given, own.state_dict()):
            raise ModelError(f"{where}: its {part} is not that of its recipe ({unlike[0]} differs)")
    network, method = _built(recipe)
    network.load_state_dict(weights)
    method.state.load_state_dict(kept)
    identities = len(state["centers"]["weight"])
    return TrainedNetwork(network.eval(), method, recipe.backbone, recipe, state["step"], identities)


def _built(recipe: Recipe) -> tuple[FaceNetwork, Method]:
    method = recipe.build_method()
    network = build_network(
        recipe.backbone.name,
        embedding_size=recipe.backbone.embedding_size,
        heads=method.heads(),
        width=recipe.backbone.width,
        dropout=recipe.backbone.dropout,
    )
    return network, method


def unlike_shapes(given: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> list[str]:
    """Names of what is missing, has another shape or is left over."""
    return [
        name
        for name in dict.fromkeys((*own, *given))
        if getattr(given.get(name), "shape", None) != getattr(own.get(name), "shape", None)
    ]


def exported_weights(state: dict[str, Any]) -> dict[str, Tensor]:
    """Those of a checkpoint that the run validated, by the names of its network."""
    weights: dict[str, Tensor] = state.get("average") or state["network"]
    return weights
