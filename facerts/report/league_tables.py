"""Tables of the quality league."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from facerts.evaluation.results.fiqa_result import (
    FiqaArea,
    FiqaEnd,
    FiqaSection,
    Milliseconds,
)
from facerts.metrics.intervals import Interval
from facerts.report.table import NONE, Cell, Table, count, rate, share, words

END: FiqaEnd = "0.3"
ENDS: tuple[FiqaEnd, ...] = ("0.2", "0.3")
BOUND, RANDOM = "oracle", "random"


def ranked(section: FiqaSection) -> list[str]:
    """Qualities from the lowest mean area to the highest, the bound last."""
    fmr = section.headline_fmr
    means = {} if fmr is None else section.areas_of(fmr).get(None, {})

    def place(label: str) -> tuple[bool, float]:
        entry = means.get(label)
        area = None if entry is None else entry.area[END]
        return label == BOUND, math.inf if area is None else area

    return sorted(section.qualities, key=place)


def league_table(section: FiqaSection) -> Table:
    """A row for each quality: areas, separation from non-faces and cost; no rows if only groups were measured."""
    fmr = section.headline_fmr
    areas = {} if fmr is None else section.areas_of(fmr)
    recognizers = list(section.recognizers) if areas and len(section.recognizers) > 1 else []
    columns = ["quality"]
    if areas:
        columns += ["area" if not recognizers else "mean area", f"minus {section.against}"]
    columns += [f"on {name}" for name in recognizers]
    if section.non_faces is not None:
        columns += ["AUROC, non-faces", "TNR at TPR 95%"]
    timed = any(one.milliseconds or one.milliseconds_by_recognizer for one in section.qualities.values())
    columns += ["ms per image"] if timed else []
    rows = []
    for label in ranked(section):
        row = words(_name(section, label))
        if areas:
            entry = areas.get(None, {}).get(label)
            row += [_area(entry), _difference(entry, label == section.against)]
        row += [_area(areas.get(name, {}).get(label)) for name in recognizers]
        if section.non_faces is not None:
            row += _separation(section, label)
        rows.append([*row, _cost(section, label)] if timed else row)
    if areas:
        empty = [NONE] * (len(columns) - 3 - len(recognizers))
        rows.append([*words(RANDOM), Cell("1.000"), NONE, *[Cell("1.000")] * len(recognizers), *empty])
    if not areas and section.non_faces is None:
        rows = []
    title = "" if fmr is None else f"Area to 30% rejected at FMR {rate(fmr)}"
    return Table(columns, rows, title=title)


def detail_tables(section: FiqaSection) -> Iterator[Table]:
    """Areas at every rate and to every end; recognizers; their agreement."""
    fmrs = sorted({entry.fmr for entry in section.areas}, reverse=True)
    for fmr in fmrs:
        areas = section.areas_of(fmr)
        rows = [
            [
                *words(name or "mean", _name(section, label)),
                *(_area(entry, end) for end in ENDS),
            ]
            for name, by_quality in areas.items()
            if name is not None or len(section.recognizers) > 1
            for label, entry in _in_order(section, by_quality)
        ]
        columns = ["recognizer", "quality", "to 20%", "to 30%"]
        yield Table(columns, rows, words=2, title=f"Areas at FMR {rate(fmr)}", folded=True)
    yield Table(
        [
            "recognizer",
            "FMR",
            "FNMR without rejection",
            "threshold",
            "impostor pairs accepted",
            "ms per image",
        ],
        [
            [
                *words(label, rate(fmr_name)),
                share(point.fnmr, point.ci95),
                Cell(f"{point.threshold:.4f}"),
                count(point.impostors_accepted),
                _milliseconds(one.milliseconds),
            ]
            for label, one in section.recognizers.items()
            for fmr_name, point in one.at_fmr.items()
        ],
        words=2,
        title="Recognizers",
        folded=True,
    )
    yield Table(
        ["FMR", "recognizers", "Kendall's τ"],
        [
            row
            for fmr_name, found in section.consistency.items()
            for row in (
                [*words(rate(fmr_name), "mean"), Cell(f"{found.mean:.2f}", _ends(found.ci95, 2))],
                *([*words(rate(fmr_name), pair), Cell(f"{tau:.2f}")] for pair, tau in found.pairs.items()),
            )
        ],
        words=2,
        title="Do recognizers agree on the order of the qualities?",
        folded=True,
    )


def _in_order(section: FiqaSection, found: dict[str, FiqaArea]) -> Iterable[tuple[str, FiqaArea]]:
    return ((label, found[label]) for label in ranked(section) if label in found)


def _name(section: FiqaSection, label: str) -> str:
    kind = section.qualities[label].kind
    return {"recognizer": f"{label} (its own)", "bound": f"{label} (best possible)"}.get(kind, label)


def _area(entry: FiqaArea | None, end: FiqaEnd = END) -> Cell:
    if entry is None or entry.area[end] is None:
        return NONE
    return Cell(f"{entry.area[end]:.3f}", _ends(entry.ci95 and entry.ci95[end]))


def _difference(entry: FiqaArea | None, reference: bool) -> Cell:
    value = None if entry is None or entry.difference is None or reference else entry.difference[END]
    if entry is None or value is None:
        return NONE
    ends = entry.difference_ci95 and entry.difference_ci95[END]
    clear = ends is not None and (ends[0] > 0 or ends[1] < 0) and entry.quality != BOUND
    return Cell(_signed(value), "" if ends is None else f"[{_signed(ends[0])}, {_signed(ends[1])}]", clear)


def _signed(value: float) -> str:
    return f"{value:+.3f}".replace("-", "−")


def _ends(interval: Interval | None, digits: int = 3) -> str:
    return "" if interval is None else f"[{interval[0]:.{digits}f}, {interval[1]:.{digits}f}]"


def _separation(section: FiqaSection, label: str) -> list[Cell]:
    """AUROC and TNR; of a recognizer's own quality the range over recognizers."""
    non_faces = section.non_faces
    assert non_faces is not None
    if label in non_faces.by:
        measured = [non_faces.by[label]]
    else:
        measured = [by[label] for by in non_faces.by_recognizer.values() if label in by]
    if not measured:
        return [NONE, NONE]
    if len(measured) == 1:
        (numbers,) = measured
        tnr = share(numbers.tnr_at_tpr["0.95"], numbers.ci95["0.95"])
        return [share(numbers.auroc, numbers.ci95["auroc"]), tnr]
    tnrs = [numbers.tnr_at_tpr["0.95"] for numbers in measured]
    return [_range([numbers.auroc for numbers in measured]), _range(tnrs)]


def _range(values: Sequence[float]) -> Cell:
    low, high = share(min(values)), share(max(values))
    return Cell(f"{low.text} to {high.text}")


def _cost(section: FiqaSection, label: str) -> Cell:
    quality = section.qualities[label]
    if quality.milliseconds is not None:
        return _milliseconds(quality.milliseconds)
    costs = [cost.median for cost in quality.milliseconds_by_recognizer.values()]
    if not costs:
        return Cell("with the embedding") if label == "norm" else NONE
    return Cell(f"{min(costs):.2g} to {max(costs):.2g}" if len(costs) > 1 else f"{costs[0]:.2g}")


def _milliseconds(cost: Milliseconds | None) -> Cell:
    return NONE if cost is None else Cell(f"{cost.median:.2g}", f"{cost.low:.2g} to {cost.high:.2g}")
