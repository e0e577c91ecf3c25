import pytest
import torch

from facerts.errors import NonFiniteLossError, WriteError
from facerts.losses import LossValue
from facerts.training.run_summary import FILE, Meter, RunLog, TrainedStep
from tests.command import no_larger_files
from tests.contents import files_in


@pytest.mark.parametrize("exists", [True, False])
def test_a_log_is_not_written_through_a_link(tmp_path, exists):
    run, other = tmp_path / "run", tmp_path / "other"
    run.mkdir()
    if exists:
        other.write_text('{"step": 1}\n')
    (run / FILE).symlink_to(other)
    with RunLog(run, 0) as log:
        log.write("train", 1)
    assert other.exists() == exists
    assert not exists or other.read_text() == '{"step": 1}\n'
    assert (run / FILE).read_text() == '{"kind": "train", "step": 1}\n'


def test_events_are_not_written_through_a_link(tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "tensorboard").symlink_to("other")
    with pytest.raises(WriteError, match=r"tensorboard is a link, .*; remove the link"):
        RunLog(tmp_path, 0)
    assert files_in(tmp_path / "other") == []


def test_a_full_disk_ends_a_log_with_one_error(tmp_path):
    full = pytest.raises(WriteError, match=r"log\.jsonl: cannot be written \(File too large\)")
    with no_larger_files(500), full, RunLog(tmp_path, 0) as log:
        log.write("train", 1, long=500 * "x")


def trained_step(step, *, broken=False):
    loss = LossValue(
        torch.tensor(float("nan") if broken else 10.0 + step),
        {"kl": torch.tensor(0.1 * step), "clamped": torch.tensor(step)},
        {"v": torch.tensor([0.25 * step, 0.5, 1.0])},
    )
    return TrainedStep(step, 0.05, 0.5, loss)


def test_steps_are_read_together_and_then_forgotten():
    meter = Meter()
    for step in range(3):
        meter.add(trained_step(step), images=3)
    meter.check()
    values = meter.read()
    assert (values["loss"], values["kl"], values["clamped"]) == pytest.approx((11, 0.1, 3))
    assert values["v_mean"] == pytest.approx((0.75 + 4.5) / 9)
    assert values["v_p50"] == 0.5
    assert meter.last is None
    meter.check()


def test_a_non_finite_loss_names_its_own_step():
    meter = Meter()
    for step in range(6):
        meter.add(trained_step(step, broken=step >= 3), images=3)
    with pytest.raises(NonFiniteLossError, match=r"is nan at step 3: kl 0\.3.*ramp 0\.50"):
        meter.check()
