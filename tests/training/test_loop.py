"""Training runs: the files they write, and exact results after interruptions."""

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
import torch

from facerts.errors import DataError, Error, ModelError, NonFiniteLossError
from facerts.io.files import locked
from facerts.losses.rts import RTS
from facerts.training import checkpoint
from facerts.training.learner import Learner
from facerts.training.loop import train

# Required for images other than the recipe's.
SLOW = (("fp32", 2, ()), ("bf16", 0, ("optim.clip_norm=0.5",)), ("bf16", 1, ()))
NAMED = ("data.name=drawn", "data.terms=none")


def weights(folder):
    """All weights and optimizer momenta of a run, by name."""
    _, state = checkpoint.load_checkpoint(folder / checkpoint.FILE)
    momenta = {f"momentum.{i}": entry["momentum_buffer"] for i, entry in state["optimizer"]["state"].items()}
    return {**state["network"], "centers": state["centers"]["weight"], **momenta}


def log_lines(folder):
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def test_a_run_writes_recipe_log_curves_and_checkpoint(make_recipe, tiny_run):
    assert (tiny_run / "recipe.yaml").is_file()
    assert list((tiny_run / "tensorboard").glob("events*"))
    lines = log_lines(tiny_run)
    assert [line["step"] for line in lines] == [2, 4, 6, 8]
    assert {"loss", "cross_entropy", "kl", "clamped", "v_mean", "v_p5", "v_p50", "v_p95", "lr", "ramp",
            "images_per_second", "epoch", "images"} <= lines[0].keys()  # fmt: skip
    assert lines[-1]["images"] == 128
    assert lines[0]["lr"] == pytest.approx(0.05)
    assert lines[-1]["lr"] == pytest.approx(0.005)
    trained = checkpoint.load_network(tiny_run)
    assert trained.recipe == make_recipe()
    assert trained.step == 8
    assert trained.identities == 8
    assert not trained.network.training


def test_two_processes_do_not_train_in_one_folder(make_recipe, tmp_path):
    run, recipe = tmp_path / "run", make_recipe("optim.epochs=0.5", "optim.milestones=[]")
    with locked(run / "checkpoint.pt"):
        with pytest.raises(Error, match=r"checkpoint\.pt: process \d+ on .* is writing it"):
            train(recipe, run, resume=True)
        assert [path.name for path in run.iterdir()] == [".checkpoint.pt.lock"]
    train(recipe, run)
    assert not list(run.glob(".*"))


@pytest.mark.parametrize(
    ("precision", "workers", "settings"),
    [("fp32", 0, ()), *(pytest.param(*c, marks=pytest.mark.slow) for c in SLOW)],
)
def test_an_interrupted_run_ends_with_the_same_weights_bit_for_bit(
    make_recipe, tiny_run, tmp_path, monkeypatch, capsys, precision, workers, settings
):
    recipe = make_recipe(f"compute.precision={precision}", f"data.workers={workers}", *settings)
    whole = tiny_run if precision == "fp32" else train(recipe, tmp_path / "whole").parent

    class Killed(BaseException):
        """Stands in for a kill, which no handler sees."""

    original = RTS.of_batch

    def die_at_step_5(self, *arguments, step, **options):
        if step == 5:
            raise Killed
        return original(self, *arguments, step=step, **options)

    monkeypatch.setattr(RTS, "of_batch", die_at_step_5)
    with pytest.raises(Killed):
        train(recipe, tmp_path / "cut")
    monkeypatch.setattr(RTS, "of_batch", original)
    torch.manual_seed(99)  # a resumed run does not depend on the state of the global generator
    capsys.readouterr()
    train(recipe, tmp_path / "cut", resume=True)
    shown = capsys.readouterr().err
    assert f"  resumed    {tmp_path / 'cut' / 'checkpoint.pt'}, after step 3 of 8" in shown
    assert "trained 5 steps, 80 images in" in shown
    torch.testing.assert_close(weights(whole), weights(tmp_path / "cut"), rtol=0, atol=0)
    # Each step is logged once, although the run had logged step 4 after its checkpoint at step 3.
    assert [line["step"] for line in log_lines(tmp_path / "cut")] == [2, 4, 6, 8]


def test_a_used_folder_needs_resume_and_the_same_recipe(make_recipe, tiny_run):
    with pytest.raises(Error, match="not empty; resume the run"):
        train(make_recipe(), tiny_run)
    with pytest.raises(Error, match=r"method\.kl_weight changed"):
        train(make_recipe("method.kl_weight=3"), tiny_run, resume=True)


def test_one_identity_is_not_enough(make_recipe, drawn_faces, tmp_path):
    only = tmp_path / "only" / "someone"
    only.mkdir(parents=True)
    for number, image in enumerate(sorted(drawn_faces.rglob("*.*g"))[:20]):
        (only / f"{number}{image.suffix}").write_bytes(image.read_bytes())
    with pytest.raises(DataError, match="identity"):
        train(make_recipe(f"data.train={only.parent}", *NAMED), tmp_path / "run")


@pytest.mark.parametrize("workers", [0, 1])
def test_a_broken_image_is_named_with_the_remedy(make_recipe, drawn_faces, tmp_path, workers):
    faces = tmp_path / "faces"
    shutil.copytree(drawn_faces, faces)
    victim = faces / "person_0002" / "0003.jpg"
    victim.write_bytes(victim.read_bytes()[:300])
    with pytest.raises(DataError) as caught:
        train(make_recipe(f"data.train={faces}", f"data.workers={workers}", *NAMED), tmp_path / "run")
    assert str(victim) in str(caught.value)
    assert "facerts data pack" in str(caught.value)
    assert "Traceback" not in str(caught.value)


def test_a_batch_larger_than_the_data_is_refused(make_recipe, tmp_path):
    with pytest.raises(DataError, match=r"optim\.batch_size"):
        train(make_recipe("optim.batch_size=512"), tmp_path / "run")


def _start(run, recipe, *extra):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "facerts", "train", str(recipe), "--out", str(run), *extra]
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, env=environment, stdout=quiet, stderr=quiet, start_new_session=True)


def test_what_a_killed_process_had_not_finished_writing_is_removed(make_recipe, tmp_path):
    run, short = tmp_path / "run", make_recipe("optim.epochs=0.5", "optim.milestones=[]")
    train(short, run)
    (run / ".checkpoint.pt.abcdefgh.part").write_bytes(b"half")
    # Such as an export, whose process is still writing.
    (run / ".model.onnx.abcdefgh.part").write_bytes(b"half")
    train(short, run, resume=True)
    assert [path.name for path in run.glob(".*")] == [".model.onnx.abcdefgh.part"]


@pytest.mark.parametrize(
    "failing",
    [
        "training.loader.CropDataset._batch",
        "losses.rts.RTS.compute",
        "training.run_summary.RunLog.write",
        "training.loop.Validator.measure",
    ],
)
def test_workers_end_with_the_run_while_its_error_is_reported(make_recipe, tmp_path, monkeypatch, failing):
    def fail(*_, **__):
        raise MemoryError

    monkeypatch.setattr(f"facerts.{failing}", fail)
    with pytest.raises(MemoryError) as held:
        train(make_recipe("data.workers=1"), tmp_path / "run")
    assert not multiprocessing.active_children(), held.value


@pytest.mark.parametrize(("scale", "warnings"), [("64", 0), ("1e6", 1)])
def test_a_run_that_has_diverged_warns_once(make_recipe, tmp_path, capsys, scale, warnings):
    settings = ("optim.epochs=0.5", "optim.milestones=[]", "logging.every_steps=1")
    train(make_recipe(*settings, f"method.logit_scale={scale}"), tmp_path / "run")
    assert capsys.readouterr().err.count("the training has diverged") == warnings


def test_a_checkpoint_that_is_a_broken_link_is_not_replaced(make_recipe, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "checkpoint.pt").symlink_to(tmp_path / "not mounted" / "checkpoint.pt")
    with pytest.raises(ModelError, match=r"checkpoint\.pt: no such file"):
        train(make_recipe(), run, resume=True)
    assert (run / "checkpoint.pt").is_symlink()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("times", [1, 2])
def test_a_signal_to_all_processes_saves_the_step_and_exits_130(make_recipe, tmp_path, number, times):
    recipe = tmp_path / "long.yaml"
    settings = (
        "optim.epochs=500",
        "logging.checkpoint_steps=100000",
        "logging.every_steps=1",
        "data.workers=2",
    )
    recipe.write_text(make_recipe(*settings).to_yaml())
    process = _start(tmp_path / "run", recipe)
    _wait_for_a_step(tmp_path / "run")
    for _ in range(times):
        os.killpg(process.pid, number)
        time.sleep(0.1)
    assert process.wait(timeout=60) == 130
    assert checkpoint.load_network(tmp_path / "run").step > 0


def _wait_for_a_step(run):
    log = run / "log.jsonl"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (log.exists() and log.stat().st_size):
        time.sleep(0.05)


def test_a_run_whose_loss_is_not_finite_ends_with_its_last_checkpoint(make_recipe, tiny_run, tmp_path, monkeypatch):
    recipe = make_recipe("logging.checkpoint_steps=2")
    original = Learner.step

    def breaks(self, batch, step, *options):
        if step == 3:
            with torch.no_grad():
                self.network.embedding[0].bias.fill_(float("nan"))
        return original(self, batch, step, *options)

    monkeypatch.setattr(Learner, "step", breaks)
    with pytest.raises(NonFiniteLossError, match=r"is nan at step 3: cross_entropy.*kl.*resume to continue"):
        train(recipe, tmp_path / "run")
    monkeypatch.undo()
    assert checkpoint.load_checkpoint(tmp_path / "run" / checkpoint.FILE)[1]["step"] == 2
    train(recipe, tmp_path / "run", resume=True)
    torch.testing.assert_close(weights(tmp_path / "run"), weights(tiny_run), rtol=0, atol=0)
