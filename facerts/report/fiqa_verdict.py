"""What the quality league says, in plain words, and no more than its intervals allow."""

from __future__ import annotations

from collections.abc import Iterator

from facerts.evaluation.compare.table import joined
from facerts.evaluation.results.fiqa import FiqaSection
from facerts.report.fiqa_tables import BOUND, END, areas_of, ranked
from facerts.report.numbers import percent, rate


def league_verdict(section: FiqaSection) -> Iterator[str]:
    """Sentences on one set of faces: which qualities predict errors better or worse than the reference."""
    fmr = section.headline_fmr
    if fmr is None:
        return
    means = areas_of(section, fmr).get(None, {})
    reference = means.get(section.against)
    if reference is None or (area := reference.area[END]) is None:
        return
    count = len(section.recognizers)
    where = f"At FMR {rate(fmr)}{f', on average over {count} recognizers' if count > 1 else ''}"
    yield (
        f"{where}, rejecting up to 30 % of the genuine pairs by {section.against} leaves {percent(area, 1)} of the "
        "misses that random rejection would leave."
    )
    better: list[str] = []
    unclear: list[str] = []
    worse: list[str] = []
    for label in ranked(section):
        entry = means.get(label)
        if label in (section.against, BOUND) or entry is None or entry.difference_ci95 is None:
            continue
        ends = entry.difference_ci95[END]
        if ends is not None:
            (better if ends[1] < 0 else worse if ends[0] > 0 else unclear).append(label)
    for labels, text in (
        (better, "leave fewer"),
        (unclear, "show no clear difference from it"),
        (worse, "leave more"),
    ):
        if labels:
            verb = text if len(labels) > 1 else text.replace("leave", "leaves").replace("show", "shows")
            yield f"{joined(labels)} {verb}."
