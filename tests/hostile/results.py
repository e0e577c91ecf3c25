"""Broken texts of ``result.json``, to lie beside valid arrays."""

import copy
import json
from typing import Any

Result = dict[str, Any]

TEXTS = {
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


def _changed(change):
    def text(result):
        broken = copy.deepcopy(result)
        change(broken)
        return json.dumps(broken).encode()

    return text


def _every(result):
    return next(iter(result["sections"]["verification"].values()))


def _first(result):
    return _every(result)["measures"][0]


def _deep(depth):
    value = 1
    for _ in range(depth):
        value = [value]
    return value


AT = "sections.verification.people"
MEASURE, PLOT = f"{AT}.measures.0", f"{AT}.plots.0"

# Each makes of a good result a broken one; with the key that the sentence names.
BROKEN = {
    "NaN for a number": (lambda r: _first(r).update(value=float("nan")), f"{MEASURE}.value"),
    "an infinite number": (lambda r: _first(r).update(value=float("inf")), f"{MEASURE}.value"),
    "text for a number": (lambda r: _first(r).update(value="high"), f"{MEASURE}.value"),
    "no number": (lambda r: _first(r).pop("value"), f"{MEASURE}.value is missing"),
    "null for a name": (lambda r: _first(r).update(name=None), f"{MEASURE}.name"),
    "no title": (lambda r: _every(r).pop("title"), f"{AT}.title is missing"),
    "an interval of one end": (lambda r: _first(r).update(ci95=[0.5]), f"{MEASURE}.ci95.1 is missing"),
    "a row that is no row": (lambda r: _first(r).update(of=["a"]), f"{MEASURE}.of"),
    "a format of another kind": (lambda r: _first(r).update(format="{0.__class__}"), f"{MEASURE}.format"),
    "a statistic that is none": (
        lambda r: _first(r).update(test={"statistic": "x"}),
        f"{MEASURE}.test.statistic",
    ),
    "a count below nothing": (lambda r: _first(r).update(n=-1), f"{MEASURE}.n"),
    "200,000 measures": (lambda r: _every(r).update(measures=[_first(r)] * 200_000), f"{AT}.measures"),
    "60,000 measures": (lambda r: _every(r).update(measures=[_first(r)] * 60_000), f"{AT}.measures"),
    "a figure without panels": (lambda r: _every(r)["plots"][0].update(panels={}), f"{PLOT}.panels"),
    "1,000 panels": (
        lambda r: _every(r)["plots"][0].update(panels={str(key): [] for key in range(1_000)}),
        f"{PLOT}.panels",
    ),
    "a mark of another kind": (
        lambda r: _every(r)["plots"][0]["panels"][""][0].update(mark="x"),
        f"{PLOT}.panels..0.mark",
    ),
    "a series without arrays": (
        lambda r: _every(r)["plots"][0]["panels"][""][0].update(x=[]),
        f"{PLOT}.panels..0.x",
    ),
    "a list for the sections": (lambda r: r.update(sections=[]), "sections"),
    "a number for a benchmark": (
        lambda r: r["sections"].update(verification={"lfw": 3}),
        "sections.verification.lfw",
    ),
    "an empty section": (lambda r: r["sections"].update(reject={"lfw": {}}), "sections.reject.lfw"),
    "5,000 benchmarks": (
        lambda r: r["sections"].update(verification=dict.fromkeys(map(str, range(5_000)), _every(r))),
        "sections.verification",
    ),
    "deep nesting": (lambda r: _every(r).update(notes=_deep(100)), f"{AT}.notes"),
    "a command of numbers": (lambda r: r.update(command=[[1, 2]]), "command.0.0"),
    "a command without words": (lambda r: r.update(command=[[]]), "command.0"),
    "no versions": (lambda r: r.pop("versions"), "versions is missing"),
    "a date that is none": (lambda r: r.update(created=3), "created"),
    "text for a number of a name without end": (
        lambda r: r["sections"].update(verification={"x" * 100_000: {**_every(r), "images": "high"}}),
        "sections.verification.xxx",
    ),
    "a name that is no text": (lambda r: r["model"].update(name=["a"]), "model.name"),
    "an unknown number that is none": (
        lambda r: r.update(later={"deep": [float("nan")]}),
        "later.deep.0",
    ),
    "a list without end": (lambda r: r.update(later=[0] * 200_000), "later"),
    "a name of characters that do not exist": (
        lambda r: r["sections"].update(verification={"\ud800": {**_every(r), "images": "\ud800"}}),
        "sections.verification",
    ),
}
CHANGES = {what: _changed(change) for what, (change, _) in BROKEN.items()}
KEYS = {what: key for what, (_, key) in BROKEN.items()}


def write_result(folder, benchmark):
    """A whole result of drawn faces, told from each other by their colors."""
    from facerts.evaluation.benchmark_runs import run_pairs
    from tests.evaluation.conftest import Plain

    run_pairs(Plain(), ["verification"], [str(benchmark)], folder)
