"""Progress: bars on a terminal, plain lines elsewhere, rates and times that a person can believe."""

import io
import sys
from itertools import pairwise

import pytest
from rich.console import Console

from facerts.io.progress import ProgressBar, StateColumn, parse_duration, progress_bar, track


class Clock:
    """A clock that only the test moves."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def lines_of(capsys, *, steps, seconds, total=None, advance=1, completed=0):
    """The lines of a task that takes so many seconds for each step."""
    clock = Clock()
    with ProgressBar(lines=True, disable=True, get_time=clock, speed_estimate_period=60) as bar:
        task = bar.add_task("work", total=total, completed=completed, unit="images")
        for _ in range(steps):
            clock.now += seconds
            bar.advance(task, advance)
    return capsys.readouterr().err.splitlines()


def test_a_short_task_is_one_line(capsys):
    assert lines_of(capsys, steps=20, seconds=0.05, total=20) == ["work: 20/20 images, 20 images/s, 0:00:01 elapsed"]


def test_the_lines_of_a_long_task_come_at_growing_intervals(capsys):
    lines = lines_of(capsys, steps=36_000, seconds=1, total=72_000)
    assert lines[0] == "work: 10/72,000 images, 1 images/s, 0:00:10 elapsed, 19:59:50 left"
    assert lines[1].startswith("work: 20/72,000")
    assert lines[-1] == "work: 36,000/72,000 images, 1 images/s, 10:00:00 elapsed, 10:00:00 left"
    counts = [int(line.split()[1].split("/")[0].replace(",", "")) for line in lines]
    gaps = [later - earlier for earlier, later in pairwise(counts)][:-1]
    assert gaps == sorted(gaps)
    assert (min(gaps), max(gaps)) == (10, 600)
    assert len(lines) < 110


def test_restored_items_count_in_no_rate(capsys):
    lines = lines_of(capsys, steps=30, seconds=1, advance=128, completed=375_808, total=6_010_880)
    # 5,635,072 are left, less 30 times 128, at 128 a second.
    assert lines[-1] == "work: 379,648/6,010,880 images, 128 images/s, 0:00:30 elapsed, 12:13:14 left"
    lines = lines_of(capsys, steps=1, seconds=1, advance=128, completed=128, total=256)
    assert lines == ["work: 256/256 images, 128 images/s, 0:00:01 elapsed"]


def test_a_task_of_unknown_length_and_one_without_work_have_lines(capsys):
    assert lines_of(capsys, steps=8, seconds=1) == ["work: 8 images, 1 images/s, 0:00:08 elapsed"]
    assert lines_of(capsys, steps=0, seconds=1, total=0) == ["work: 0/0 images, 0:00:00 elapsed"]


def test_names_with_control_characters_are_printed_without_them(capsys):
    assert list(track([1, 2], "reading [red]a\x1b[2J\nb")) == [1, 2]
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(r"reading [red]a\x1b[2J\nb: 2/2 images")
    bar = progress_bar()
    bar.add_task("a\x1b[2J")
    assert bar.tasks[0].description == r"a\x1b[2J"


class Terminal(io.StringIO):
    """Standard error as a terminal."""

    def isatty(self):
        return True


@pytest.mark.parametrize(("kind", "live"), [("xterm", True), ("dumb", False)])
def test_a_bar_is_drawn_on_a_terminal_alone(monkeypatch, kind, live):
    for variable in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("TERM", kind)
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert progress_bar().disable is not live
    assert progress_bar(shown=False).disable


def test_the_bar_tells_elapsed_from_left():
    clock, screen = Clock(), Console(file=io.StringIO(), force_terminal=True, width=100)
    with ProgressBar(StateColumn(), lines=False, console=screen, get_time=clock, auto_refresh=False) as bar:
        task = bar.add_task("work", total=100, completed=40, unit="images")
        clock.now += 10
        bar.advance(task, 20)
        clock.now += 10
        bar.advance(task, 20)
        bar.refresh()
    assert "80/100 images, 2 images/s, 0:00:20 elapsed, 0:00:10 left" in screen.file.getvalue()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(("90s", 90), ("20m", 1200), ("1.5h", 5400), ("1h30m", 5400), ("2H 5s".replace(" ", ""), 7205)),
        (" 3m ", 180),
    ],
)
def test_durations_are_read(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "20", "m", "0s", "-5m", "5 minutes", "1e3s", "nan", "30m1h", "9" * 400 + "h"])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(ValueError, match="such as 90s, 20m"):
        parse_duration(text)
