"""eval/quality_alone/harmless_changes.py, on two kinds at two severities."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from tests.scripts import EVAL, load_script

script = load_script("harmless_changes", EVAL / "quality_alone")


def test_only_changes_that_recognizers_see_through_count(monkeypatch, capsys):
    prefix = "corruptions/faces/"
    numbers = {
        "severity": [0, 0.5, 1],
        # 0.95 is harmless, 0.93 is not.
        "gray/cosine to unchanged": [1, 0.95, 0.93],
        "gray/kept": [0.95, 0.91, 0.2],
        "gray/not a face": [0, 0.01, 0.5],
        "hue/cosine to unchanged": [1, 0.97, 0.95],
        "hue/kept": [0.95, 0.94, 0.92],
    }
    arrays = {prefix + name: np.array(values) for name, values in numbers.items()}
    result = SimpleNamespace(of_kind=lambda kind: ["faces"])
    monkeypatch.setattr(script, "load_result", lambda folder: (result, arrays))
    monkeypatch.setattr("sys.argv", ["harmless_changes", "out"])
    script.main()
    lines = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines()]
    trained = ["out", "trained", "1 of 2", "0.910", "gray 0.5", "0", "0.010", "0.500", "0.255"]
    held_out = ["out", "held out", "2 of 2", "0.920", "hue 1", "2", "0.000", "0.000", "0.000"]
    assert lines[2:] == [trained, held_out]
