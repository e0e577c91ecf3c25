"""Checkpoints: the complete state of a run in one file, replaced atomically."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypedDict, cast

import torch
from pydantic import ValidationError
from torch import Tensor

from facerts.errors import ModelError, NonFiniteLossError, first_line
from facerts.io.files import atomic_write, os_errors
from facerts.io.json_file import parse_json
from facerts.losses import FaceLoss
from facerts.nn import FaceNetwork
from facerts.nn.arcface_torch import check_finite
from facerts.training.recipe import Recipe, explain
from facerts.training.torch_file import check_torch_file

SCHEMA = "facerts.checkpoint/1"
FILE = "checkpoint.pt"
MAX_STEP = 1 << 53

# What is read from a file, before its parts are checked.
Unchecked = Mapping[str, Any]
# As PyTorch's optimizers give it.
OptimizerState = dict[str, Any]


class LearnerState(TypedDict):
    """Everything that later steps depend on, see ``Learner.state_dict``."""

    network: dict[str, Tensor]
    average: dict[str, Tensor] | None
    centers: dict[str, Tensor]
    method: dict[str, Tensor]
    per_sample: dict[str, Tensor]
    optimizer: OptimizerState
    scaler: dict[str, float]
    teacher: dict[str, Tensor] | None
    initial: dict[str, str] | None
    generators: list[tuple[Tensor, Tensor | None]]


class RunState(LearnerState):
    """What a checkpoint holds beside its schema and its recipe."""

    step: int
    position: float


def save_checkpoint(path: Path, recipe: Recipe, state: RunState) -> None:
    """Write a checkpoint; NonFiniteLossError if weights are not finite, so that no run could continue from them."""
    try:
        check_finite(state["network"], path)
    except ModelError as error:
        raise NonFiniteLossError(
            f"{path}: not written, because the weights after step {state['step']} are broken ({error}); resume to "
            "continue from the last checkpoint, if there is one. Lower optim.lr, or set optim.clip_norm"
        ) from error
    with atomic_write(path) as file, os_errors():
        torch.save({**state, "schema": SCHEMA, "recipe": recipe.model_dump_json(by_alias=True)}, file)


class CheckpointWriter:
    """Writes checkpoints in the background, one at a time; a context manager that waits for the last at its end."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1)
        self._last: Future[None] | None = None

    def save(self, path: Path, recipe: Recipe, state: RunState) -> None:
        """Write a checkpoint in the background; the state is copied, so it may change as soon as this returns."""
        self.wait()
        self._last = self._pool.submit(save_checkpoint, path, recipe, _copied(state))

    def wait(self) -> None:
        """Wait until the last checkpoint is written."""
        if self._last is not None:
            self._last.result()

    def __enter__(self) -> CheckpointWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._pool.shutdown()
        if kind is None:
            self.wait()


def _copied(value: Any) -> Any:
    """Copies of tensors on the CPU, in the same containers."""
    if isinstance(value, torch.Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        return {key: _copied(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_copied(entry) for entry in value)
    return value


def load_checkpoint(path: Path) -> tuple[Recipe, RunState]:
    """Read a checkpoint without executing anything in it."""
    return checked_state(read_file(path), path)


def read_file(run: str | Path) -> Unchecked:
    """The content of a run's checkpoint, or of another PyTorch file, without executing anything in it."""
    path = Path(run)
    path = path / FILE if path.is_dir() else path
    if not path.is_file():
        raise ModelError(f"{path}: no such file; a training run writes {FILE} into its folder")
    try:
        check_torch_file(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, pickle.UnpicklingError, EOFError, OSError, ValueError, AssertionError) as error:
        raise ModelError(f"{path}: not a readable checkpoint ({first_line(error)})") from error
    if not isinstance(state, dict):
        raise ModelError(
            f"{path}: contains a {type(state).__name__}, neither a checkpoint nor the weights of a network"
        )
    return state


def is_checkpoint(state: Unchecked) -> bool:
    """Whether the content of a file is a facerts checkpoint."""
    return state.get("schema") == SCHEMA


def checked_state(state: Unchecked, where: object) -> tuple[Recipe, RunState]:
    """The recipe in the content of a checkpoint, and everything that a run writes, with weights that are finite."""
    if not is_checkpoint(state):
        raise ModelError(f"{where}: not a checkpoint with schema {SCHEMA}")
    text = state.get("recipe")
    if not isinstance(text, str):
        raise ModelError(f"{where}: the checkpoint has no recipe, so its network cannot be built")
    try:
        recipe = Recipe.model_validate(parse_json(text, f"{where}: recipe", error=ModelError))
    except ValidationError as error:
        raise ModelError(f"{where}: recipe: {explain(error)}") from error
    centers = state.get("centers")
    rows = centers.get("weight") if isinstance(centers, dict) else None
    valid = {
        "network": _are_tensors(state.get("network")),
        "average": state.get("average") is None or _are_tensors(state["average"]),
        "method": _are_tensors(state.get("method")),
        "per_sample": _are_tensors(state.get("per_sample")),
        "centers": isinstance(rows, Tensor) and rows.ndim == 2,
        "step": isinstance(state.get("step"), int) and 0 <= state["step"] <= MAX_STEP,
        "position": isinstance(state.get("position"), int | float) and 0 <= state["position"] <= MAX_STEP,
        "scaler": isinstance(state.get("scaler"), dict)
        and all(isinstance(value, int | float) for value in state["scaler"].values()),
        "initial": _is_origin(state.get("initial")),
    }
    if invalid := [name for name, is_valid in valid.items() if not is_valid]:
        raise ModelError(
            f"{where}: missing or invalid parts of the checkpoint: {', '.join(invalid)}; use an earlier checkpoint"
        )
    for part in ("network", "average", "centers"):
        check_finite({f"{part}.{name}": value for name, value in (state[part] or {}).items()}, where)
    return recipe, cast(RunState, state)


def _is_origin(part: Any) -> bool:
    names = {each.name for each in fields(Origin)}
    return part is None or (
        isinstance(part, dict) and part.keys() == names and all(isinstance(text, str) for text in part.values())
    )


def _are_tensors(part: Any) -> bool:
    return isinstance(part, dict) and all(
        isinstance(name, str) and isinstance(value, Tensor) for name, value in part.items()
    )


@dataclass(frozen=True)
class Origin:
    """What the weights of a network were trained on, and under which terms; written into exported files."""

    training_data: str
    terms: str

    def after(self, initial: Origin | None) -> Origin:
        """The origin of weights that were trained on from others."""
        if initial is None:
            return self
        return Origin(_after(self.training_data, initial.training_data), _after(self.terms, initial.terms))


def _after(own: str, initial: str) -> str:
    """One text after the other, unless one of them says it all."""
    if initial in own:
        return own
    return initial if initial.startswith(own) else f"{own}; initial weights: {initial}"


@dataclass(frozen=True)
class ScoringNetwork:
    """A network ready for inference, on the CPU in float32, with the loss that scores its outputs.

    Attributes:
        name: where it comes from, for errors.
        backbone: name of the architecture.
        origin: what it was trained on, the initial weights included.
        source: where published weights are from, for the description.
    """

    name: str
    network: FaceNetwork
    loss: FaceLoss
    backbone: str
    origin: Origin
    source: str = field(default="", kw_only=True)


@dataclass(frozen=True)
class TrainedNetwork(ScoringNetwork):
    """The network of a training run, with the centers ``(C, d)`` of its C identities."""

    recipe: Recipe
    step: int
    centers: Tensor

    @property
    def identities(self) -> int:
        """C, the number of training identities."""
        return len(self.centers)


def load_network(run: str | Path) -> TrainedNetwork:
    """The network of a run; see ``trained_network``."""
    return trained_network(read_file(run), run)


def trained_network(content: Unchecked, where: object, *, averaged: bool = True) -> TrainedNetwork:
    """The network in the content of a checkpoint.

    With ``averaged``, its weights are their moving average if the run kept one, else those of the last step.
    """
    recipe, state = checked_state(content, where)
    weights = (averaged and state["average"]) or state["network"]

    def build() -> tuple[FaceNetwork, FaceLoss]:
        loss = recipe.build_loss()
        return recipe.build_network(loss), loss

    # First on the meta device: a forged recipe could claim a network of any size.
    with torch.device("meta"):
        network, loss = build()
    for part, module, tensors in (("network", network, weights), ("method", loss.state, state["method"])):
        expected = module.state_dict()
        if different := mismatched_shapes(tensors, expected) or sorted(tensors.keys() - expected.keys()):
            raise ModelError(f"{where}: the {part} does not fit the recipe ({different[0]} differs)")
    network, loss = build()
    network.load_state_dict(weights)
    if not recipe.backbone.embedding:
        network.drop_embedding()
    loss.state.load_state_dict(state["method"])
    return TrainedNetwork(
        str(where),
        network.eval(),
        loss,
        str(recipe.backbone),
        origin_of(state, recipe),
        recipe,
        state["step"],
        state["centers"]["weight"],
    )


def origin_of(state: RunState, recipe: Recipe) -> Origin:
    """What the network in a checkpoint was trained on."""
    initial = state.get("initial")
    return Origin(recipe.data.name, recipe.data.terms).after(None if initial is None else Origin(**initial))


def mismatched_shapes(tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> list[str]:
    """Names of expected tensors that are missing or of the wrong shape; others may be there too."""
    return [name for name, value in expected.items() if getattr(tensors.get(name), "shape", None) != value.shape]
