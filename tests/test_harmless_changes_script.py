"""eval/quality_alone/harmless_changes.py, on two kinds at two severities."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.scripts import EVAL, load_script

script = load_script("harmless_changes", EVAL / "quality_alone")


def kind(
    held_out: bool, cosines: list[list[float]], kept: list[float], no_face: list[float] | None
) -> object:
    steps = {str(number): SimpleNamespace(p50=values) for number, values in enumerate(cosines)}
    by = {"quality": SimpleNamespace(kept=kept)}
    return SimpleNamespace(held_out=held_out, to_unchanged=steps, by=by, not_a_face=no_face)


def test_only_changes_that_recognizers_see_through_count(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kinds = {
        # Means 0.95, harmless, and 0.93, which is not.
        "gray": kind(False, [[1, 0.96, 0.9], [1, 0.94, 0.96]], [0.95, 0.91, 0.2], [0, 0.01, 0.5]),
        "hue": kind(True, [[1, 0.97, 0.95]], [0.95, 0.94, 0.92], None),
    }
    found = SimpleNamespace(kinds=kinds, first="quality", severity=[0, 0.5, 1])
    result = SimpleNamespace(corruptions={"faces": found})
    monkeypatch.setattr(script, "load_result", lambda folder: (result, {}))
    monkeypatch.setattr("sys.argv", ["harmless_changes", "out"])
    script.main()
    lines = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines()]
    trained = ["out", "trained", "1 of 2", "0.910", "gray 0.5", "0", "0.010", "0.500", "0.255"]
    held_out = ["out", "held out", "2 of 2", "0.920", "hue 1", "2", "0.000", "0.000", "0.000"]
    assert lines[2:] == [trained, held_out]
