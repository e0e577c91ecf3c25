"""Broken texts of ``result.json``, to lie beside valid arrays."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Result = dict[str, Any]

TEXTS: dict[str, bytes] = {
    "nothing": b"",
    "not UTF-8": b'{"schema": "facerts.result/1", "model": "\xff"}',
    "endless nesting": b"[" * 100_000,
    "endless nesting of mappings": b'{"a":' * 100_000,
    "an endless number": b'{"schema": ' + b"9" * 100_000 + b"}",
    "a list": b"[]",
    "another schema": b'{"schema": "x"}',
    "no model": b'{"schema": "facerts.result/1"}',
    "a model without a name": b'{"schema": "facerts.result/1", "model": {}}',
}


def _changed(change: Callable[[Result], object]) -> Callable[[Result], bytes]:
    def text(result: Result) -> bytes:
        broken = copy.deepcopy(result)
        change(broken)
        return json.dumps(broken).encode()

    return text


def _every(result: Result) -> Result:
    section: Result = next(iter(result["verification"].values()))
    return section


def _deep(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


CURVE: Result = {
    **dict.fromkeys(("genuine", "impostors", "impostors_accepted"), 10),
    **dict.fromkeys(("fmr", "threshold", "random_area"), 0.1),
    "area": {"0.2": 0.1, "0.95": 0.1},
    "oracle_area": {"0.2": 0.1, "0.95": 0.1},
    "by": "quality",
    "similarity": "cosine",
    "pairs": "benchmark",
    "rejected": [0.0, 0.5, 0.95],
    "fnmr": [0.1, 0.1, 0.1],
    "oracle_fnmr": [0.1, 0.0, 0.0],
}
KEPT: Result = {"value": 0.1, "calibrated": False}
CORRUPTIONS: Result = {
    "images": 3,
    "severity": [0.0, 0.5, 1.0],
    "seed": 0,
    "people": False,
    "recognizers": {},
    "thresholds": {"norm": KEPT},
    "rank_correlation": {},
    "agreement": {},
    "kinds": {
        "blur": {
            "family": "quality",
            "held_out": False,
            "cosine": None,
            "to_unchanged": {},
            "to_other": {},
            "not_a_face": None,
            "by": {"norm": {name: [1.0] for name in ("p5", "p50", "p95", "auroc", "kept", "percentile")}},
        }
    },
}

# Each makes of a good result a broken one.
CHANGES: dict[str, Callable[[Result], bytes]] = {
    "NaN for a number": _changed(lambda r: _every(r).update(auroc=float("nan"))),
    "an infinite number": _changed(lambda r: _every(r).update(auroc=float("inf"))),
    "text for a number": _changed(lambda r: _every(r).update(auroc="high")),
    "null for a number": _changed(lambda r: _every(r).update(eer=None)),
    "no intervals": _changed(lambda r: _every(r).pop("interval")),
    "no accuracy": _changed(lambda r: _every(r)["accuracy"].clear()),
    "an interval of one end": _changed(lambda r: _every(r)["accuracy"].update(ci95=[0.5])),
    "20,000 rates": _changed(
        lambda r: _every(r).update(
            tar_at_far={
                f"{n}e-9": {"value": 1.0, "ci95": None, "impostors_accepted": 1} for n in range(20_000)
            }
        )
    ),
    "a rate that is not a number": _changed(
        lambda r: _every(r).update(tar_at_far={"low": {"value": 1.0, "ci95": None, "impostors_accepted": 1}})
    ),
    "a list for a section": _changed(lambda r: r.update(verification=[])),
    "a number for a benchmark": _changed(lambda r: r.update(verification={"lfw": 3})),
    "a section of another kind": _changed(lambda r: r.update(reject={"lfw": {}})),
    "5,000 benchmarks": _changed(
        lambda r: r.update(verification=dict.fromkeys(map(str, range(5_000)), _every(r)))
    ),
    "deep nesting": _changed(lambda r: _every(r).update(notes=_deep(100))),
    "a command of numbers": _changed(lambda r: r.update(command=[[1, 2]])),
    "a command without words": _changed(lambda r: r.update(command=[[]])),
    "no versions": _changed(lambda r: r.pop("versions")),
    "a date that is none": _changed(lambda r: r.update(created=3)),
    "text for a number of a name without end": _changed(
        lambda r: r.update(verification={"x" * 100_000: {**_every(r), "auroc": "high"}})
    ),
    "a name that is no text": _changed(lambda r: r["model"].update(name=["a"])),
    "an unknown number that is none": _changed(lambda r: r.update(later={"deep": [float("nan")]})),
    "a list without end": _changed(lambda r: r.update(later=[0] * 200_000)),
    "curves of different lengths": _changed(
        lambda r: r.update(reject={"people": [{**CURVE, "fnmr": [0.1, 0.1]}]})
    ),
    "a curve without numbers": _changed(
        lambda r: r.update(reject={"people": [{**CURVE, "rejected": [], "fnmr": [], "oracle_fnmr": []}]})
    ),
    "a set of pairs that is none": _changed(lambda r: r.update(reject={"people": [{**CURVE, "pairs": "x"}]})),
    "severities without numbers": _changed(lambda r: r.update(corruptions={"people": CORRUPTIONS})),
    "a kind without the scores": _changed(
        lambda r: r.update(
            corruptions={"people": {**CORRUPTIONS, "severity": [0.0], "thresholds": {"quality": KEPT}}}
        )
    ),
    "no score": _changed(
        lambda r: r.update(ood={"in": {"a": 1}, "out": {"b": 1}, "by": {}, "interval": "none"})
    ),
    "a name of characters that do not exist": _changed(
        lambda r: r.update(verification={"\ud800": {**_every(r), "auroc": "\ud800"}})
    ),
    "no search": _changed(
        lambda r: r.update(identification={"people": {"images": 1, "interval": "none", "searches": []}})
    ),
}

# The key that the sentence names.
KEYS = {
    "NaN for a number": "verification.people.auroc",
    "an infinite number": "verification.people.auroc",
    "text for a number": "verification.people.auroc",
    "null for a number": "verification.people.eer",
    "no intervals": "verification.people.interval is missing",
    "no accuracy": "verification.people.accuracy.value is missing",
    "an interval of one end": "verification.people.accuracy.ci95.1 is missing",
    "20,000 rates": "verification.people.tar_at_far",
    "a rate that is not a number": "verification.people.tar_at_far.low",
    "a list for a section": "verification",
    "a number for a benchmark": "verification.lfw",
    "a section of another kind": "reject.lfw",
    "5,000 benchmarks": "verification",
    "deep nesting": "verification.people.notes",
    "a command of numbers": "command.0.0",
    "a command without words": "command.0",
    "no versions": "versions is missing",
    "a date that is none": "created",
    "text for a number of a name without end": "verification.xxx",
    "a name that is no text": "model.name",
    "an unknown number that is none": "later.deep.0",
    "a list without end": "later",
    "curves of different lengths": "reject.people.0",
    "a curve without numbers": "reject.people.0",
    "a set of pairs that is none": "reject.people.0.pairs",
    "severities without numbers": "corruptions.people",
    "a kind without the scores": "corruptions.people",
    "no score": "ood.by",
    "a name of characters that do not exist": "verification",
    "no search": "identification.people.searches",
}


def write_result(folder: Path, benchmark: Path) -> None:
    """A whole result of drawn faces, told from each other by their colors."""
    from facerts.evaluation.benchmark_runs import run_pairs
    from tests.evaluation.conftest import Plain

    run_pairs(Plain(), ["verification"], [str(benchmark)], folder)
