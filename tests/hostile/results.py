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


# Each turns a good result into a broken one.
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
    "a date that is a number": _changed(lambda r: r.update(created=3)),
}


def write_result(folder: Path, benchmark: Path) -> Result:
    """A complete result on synthetic faces, from an embedder that uses their colors alone."""
    from facerts.evaluation.run import run_pairs
    from tests.evaluation.conftest import Plain

    return run_pairs(Plain(), ["verification"], [str(benchmark)], folder)
