from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from facerts.errors import NonFiniteLossError
from facerts.losses import LossValue
from facerts.losses.collectives import Processes
from facerts.training import learner as learner_module
from facerts.training.batch import Batch
from facerts.training.learner import Learner
from facerts.training.loop import train
from facerts.training.step_reports import GROUP, StepReport, StepReports
from tests.training.conftest import MakeRecipe

BROKEN_STEP = 3


def report(step: int, *, broken: bool = False) -> StepReport:
    loss = LossValue(
        torch.tensor(float("nan") if broken else 10.0 + step),
        {"kl": torch.tensor(0.1 * step), "clamped": torch.tensor(2**40 + step)},
        {"v": torch.tensor([0.25 * step, 0.5, 1.0])},
    )
    finite = {"embedding": torch.tensor(True), "log_scale": torch.tensor(not broken)}
    return StepReport(step, 0.05, 0.5, loss, torch.tensor(int(broken)), finite)


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read the reports of the CPU late, too."""
    monkeypatch.setattr(learner_module, "reads_late", lambda device, precision: True)


def test_late_reports_come_in_groups_and_unchanged() -> None:
    reports = StepReports(True, Processes())
    taken = []
    for step in range(GROUP + 3):
        reports.add(report(step))
        taken.append(reports.take())
    assert [len(found) for found in taken] == [0] * (GROUP - 1) + [GROUP, 0, 0, 0]
    rest = reports.take(wait=True)
    assert reports.take(wait=True) == []
    assert [found.step for found in (*taken[GROUP - 1], *rest)] == list(range(GROUP + 3))
    for found in (*taken[GROUP - 1], *rest):
        wanted = report(found.step)
        assert found.loss.total == wanted.loss.total
        assert found.loss.parts == wanted.loss.parts
        assert found.loss.parts["clamped"].dtype == torch.int64
        assert torch.equal(found.loss.per_image["v"], wanted.loss.per_image["v"])
        assert (found.learning_rate, found.ramp) == (0.05, 0.5)


@pytest.mark.parametrize("wait", [True, False])
def test_a_late_non_finite_loss_names_its_own_step(wait: bool) -> None:
    reports = StepReports(True, Processes())
    for step in range(5 if wait else GROUP):
        reports.add(report(step, broken=step >= BROKEN_STEP))
    message = r"is nan at step 3: kl 0\.3.*not finite: log_scale;.*ramp 0\.50"
    with pytest.raises(NonFiniteLossError, match=message):
        reports.take(wait=wait)


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["optim.algorithm=adamw", "optim.lr=0.001"],
        pytest.param(["optim.clip_norm=5"], marks=pytest.mark.slow),
        pytest.param(["compute.accumulate=2"], marks=pytest.mark.slow),
    ],
)
@pytest.mark.usefixtures("late")
def test_weights_stay_as_they_were_before_a_late_non_finite_loss(
    make_recipe: MakeRecipe, overrides: list[str]
) -> None:
    learner = Learner(make_recipe(*overrides), identities=4)
    crops = torch.randint(0, 256, (8, 112, 112, 3), dtype=torch.uint8)

    def steps(start: int, stop: int) -> None:
        for step in range(start, stop):
            learner.step(Batch.of(crops, torch.arange(8) % 4, torch.arange(8)), step, 0.02)
            learner.reports.take()

    steps(0, BROKEN_STEP)
    broken = learner.network.embedding[0]
    with torch.no_grad():
        broken.bias.fill_(float("nan"))
    before = weights(learner)
    # Several steps go by before the broken one is noticed.
    steps(BROKEN_STEP, GROUP - 1)
    with pytest.raises(NonFiniteLossError, match=f"at step {BROKEN_STEP}: "):
        steps(GROUP - 1, GROUP)
    for name, value in weights(learner).items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0, equal_nan=True, msg=name)


def weights(learner: Learner) -> dict[str, torch.Tensor]:
    """Weights and the state of the optimizer, but for its step counts."""
    parts = {"network": learner.network, "centers": learner.centers}
    found = {f"{part}.{name}": p for part, module in parts.items() for name, p in module.named_parameters()}
    for number, state in enumerate(learner.optimizer.state.values()):
        found |= {f"{number}.{name}": value for name, value in state.items()}
    return {name: value.detach().clone() for name, value in found.items()}


@pytest.mark.usefixtures("late")
def test_nothing_of_a_run_with_late_reports_is_lost(
    make_recipe: MakeRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = make_recipe("logging.every_steps=4", "logging.checkpoint_steps=7")
    train(recipe, tmp_path / "late")
    monkeypatch.undo()
    train(recipe, tmp_path / "early")
    late, early = ((tmp_path / name / "log.jsonl").read_text() for name in ("late", "early"))
    assert without_times(late) == without_times(early)


def without_times(log: str) -> list[dict[str, object]]:
    lines = [json.loads(line) for line in log.splitlines()]
    by_kind = sorted(lines, key=lambda line: (line["kind"], line["step"]))
    return [
        {name: value for name, value in line.items() if name not in ("images_per_second", "seconds")}
        for line in by_kind
    ]
