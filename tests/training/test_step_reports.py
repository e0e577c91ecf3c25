from __future__ import annotations

from pathlib import Path

import pytest
import torch

from facerts.errors import NonFiniteLossError
from facerts.losses import LossValue
from facerts.losses.collectives import Processes
from facerts.training.batch import Batch
from facerts.training.checkpoint import FILE, load_checkpoint
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
    return StepReport(step, 0.05, 0.5, loss)


def test_reports_come_in_groups_and_unchanged() -> None:
    reports = StepReports(Processes())
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
def test_a_non_finite_loss_names_its_own_step(wait: bool) -> None:
    reports = StepReports(Processes())
    for step in range(5 if wait else GROUP):
        reports.add(report(step, broken=step >= BROKEN_STEP))
    message = r"is nan at step 3: kl 0\.3.*ramp 0\.50"
    with pytest.raises(NonFiniteLossError, match=message):
        reports.take(wait=wait)


def test_a_run_whose_loss_is_not_finite_ends_with_its_last_checkpoint(
    make_recipe: MakeRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = make_recipe("logging.checkpoint_steps=2")
    original = Learner.step

    def breaks(self: Learner, batch: Batch, step: int, *options: float) -> LossValue:
        if step == BROKEN_STEP:
            with torch.no_grad():
                self.network.embedding[0].bias.fill_(float("nan"))
        return original(self, batch, step, *options)

    monkeypatch.setattr(Learner, "step", breaks)
    with pytest.raises(
        NonFiniteLossError, match=f"is nan at step {BROKEN_STEP}: cross_entropy.*kl.*--resume"
    ):
        train(recipe, tmp_path / "run")
    monkeypatch.undo()
    assert load_checkpoint(tmp_path / "run" / FILE)[1]["step"] == 2
    train(recipe, tmp_path / "run", resume=True)
    train(recipe, tmp_path / "whole")
    for name in ("network", "centers"):
        broken, whole = (load_checkpoint(tmp_path / each / FILE)[1][name] for each in ("run", "whole"))
        assert all(torch.equal(broken[key], value) for key, value in whole.items())
