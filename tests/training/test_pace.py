import functools
import itertools
import json
import math
from types import SimpleNamespace

import pytest

from facerts.errors import Error
from facerts.losses.collectives import Processes
from facerts.training import loop
from facerts.training.checkpoint import load_checkpoint
from facerts.training.schedule import Pace
from tests.io.test_progress import Clock


def positions(pace, clock, durations):
    """The position after each step, until the end."""
    found = []
    for step, duration in enumerate(durations, 1):
        clock.now += duration
        pace.advance(step)
        found.append(pace.position)
        if pace.is_finished():
            break
    return found


def test_without_a_budget_each_step_counts_as_one():
    clock = Clock()
    assert positions(Pace(4, 1.0, clock=clock), clock, [9.0] * 10) == [2.0, 3.0, 4.0]


def test_a_budget_ends_the_schedule_in_time_at_an_even_pace():
    clock = Clock()
    pace = Pace(1000, clock=clock)
    pace.finish_by(clock.now + 60.0)
    # The first step takes long, because it compiles.
    found = positions(pace, clock, [20.0] + [1.0] * 1000)
    assert found[0] == 1.0
    assert found[-1] == 1000.0
    assert 120.0 + 39.0 <= clock.now <= 160.0
    gains = [after - before for before, after in itertools.pairwise(found[:-1])]
    assert gains == pytest.approx([999 / 40] * len(gains))


def test_a_budget_follows_the_speed():
    clock = Clock()
    pace = Pace(1000, clock=clock)
    pace.finish_by(clock.now + 101.0)
    found = positions(pace, clock, [1.0] * 51 + [5.0] * 1000)
    assert found[50] == pytest.approx(501, abs=1)
    assert clock.now == pytest.approx(201.0)
    assert len(found) == 51 + 10


def test_steps_that_the_device_still_has_to_make_are_reserved():
    clock = Clock()
    pace = Pace(10_000, lead=20, clock=clock)
    pace.finish_by(clock.now + 101.0)
    positions(pace, clock, [1.0] * 200)
    assert clock.now == pytest.approx(100.0 + 81.0, abs=1.0)


def test_the_first_process_decides_and_all_agree(monkeypatch):
    clock = Clock()
    pace = Pace(1000, processes=Processes(rank=1, count=2), clock=clock)
    asked = []

    def first_says(processes, value):
        asked.append(value)
        return [600.0, value]

    monkeypatch.setattr(Processes, "all_gather_object", first_says)
    pace.finish_by(clock.now + 60.0)
    found = positions(pace, clock, [1.0] * 10)
    assert len(asked) == 1, "the processes must not wait for each other at each step"
    assert found == [float(step) for step in range(1, 10)] + [600.0]


@pytest.fixture
def clock(monkeypatch):
    """A clock for the budget, on which each step takes a second."""
    clock = Clock()

    class SteppedPace(Pace):
        def advance(self, step):
            clock.now += 1.0
            super().advance(step)

    monkeypatch.setattr(loop, "Pace", functools.partial(SteppedPace, clock=clock))
    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=clock))
    return clock


def lines_of(folder, kind):
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == kind]


def test_a_run_with_a_budget_ends_in_time_with_its_whole_schedule(make_recipe, tmp_path, clock, capsys):
    recipe = make_recipe(
        "optim.epochs=1000", "optim.milestones=[]", "optim.schedule=cosine", "optim.margin_ramp=0.5",
        "logging.every_steps=1", "validation.every_epochs=1000", "data.holdout_identities=4",
    )  # fmt: skip
    loop.train(recipe, tmp_path / "run", budget_s=21.0)
    lines = lines_of(tmp_path / "run", "train")
    rates = [line["lr"] for line in lines]
    assert 20 <= len(lines) <= 21
    assert rates == sorted(rates, reverse=True)
    # As if the recipe had 20 steps.
    assert rates[10] == pytest.approx(0.05 * 0.5 * (1 + math.cos(math.pi * 0.5)), rel=0.2)
    assert rates[-1] < 0.05 * 0.02
    assert lines[4]["ramp"] < 1 == lines[-1]["ramp"]
    assert [line["step"] for line in lines_of(tmp_path / "run", "validation")] == [len(lines)]
    shown = capsys.readouterr().err
    assert f"shortened to {len(lines)} of" in shown
    _, state = load_checkpoint(tmp_path / "run" / "checkpoint.pt")
    assert state["step"] == len(lines)


def test_an_interrupted_run_with_a_budget_goes_on_in_its_schedule(make_recipe, tmp_path, clock, monkeypatch):
    recipe = make_recipe("optim.epochs=1000", "optim.milestones=[]", "optim.schedule=cosine", "logging.every_steps=1")
    advance = loop._Run._train_step

    def die_at_step_10(run, *arguments):
        if run.step == 10:
            raise RuntimeError("killed")
        advance(run, *arguments)

    monkeypatch.setattr(loop._Run, "_train_step", die_at_step_10)
    with pytest.raises(RuntimeError, match="killed"):
        loop.train(recipe, tmp_path / "run", budget_s=21.0)
    monkeypatch.setattr(loop._Run, "_train_step", advance)
    loop.train(recipe, tmp_path / "run", resume=True, budget_s=6.0)
    rates = [line["lr"] for line in lines_of(tmp_path / "run", "train")]
    # From the checkpoint at step 9, on two fifths of the schedule, in 6 steps to the end.
    assert 14 <= len(rates) <= 16
    assert rates == sorted(rates, reverse=True)
    assert rates[9] == pytest.approx(rates[8], rel=0.2)
    assert rates[-1] < 0.05 * 0.2


def test_a_budget_without_time_to_train_is_refused(make_recipe, tmp_path, clock):
    with pytest.raises(Error, match=r"the budget leaves 0:00:00, .*allow more time"):
        loop.train(make_recipe(), tmp_path / "run", budget_s=0.0)
