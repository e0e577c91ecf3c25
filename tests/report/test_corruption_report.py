"""The corruption benchmark of several models: what stands in its tables, and what its figures name."""

from __future__ import annotations

import re

from facerts.report.result_tables import corruption_tables
from facerts.report.sections import corruptions
from facerts.report.subject import Subject
from facerts.report.table import plain
from tests.report.test_verdict import correlation, corrupted, subject


def subjects() -> list[Subject]:
    """Two models, of which the first says what is no face and costs little for sepia; the second has no recognizer."""
    found = {"all": correlation(0.9), "trained": correlation(0.95), "held_out": correlation(0.8)}
    first = corrupted({"blur": 0.3, "sepia": 0.5}, **found)
    first["agreement"] = {"arc": found}
    for kind, shares in (("blur", [0.0, 0.1, 0.2]), ("sepia", [0.0, 0.0, 1.0])):
        first["kinds"][kind]["not_a_face"] = shares
    first["kinds"]["sepia"]["cosine"] = [1.0, 0.9, 0.85]
    second = corrupted({"blur": 0.7, "sepia": 0.9})
    for kind in second["kinds"].values():
        kind["cosine"] = None
    return [subject(label, corruptions={"lfw": section}) for label, section in (("a", first), ("b", second))]


def test_tables_order_kinds_by_what_they_cost_and_mark_those_held_out() -> None:
    overall, kinds = corruption_tables([(one.label, one.sections.corruptions["lfw"]) for one in subjects()])
    assert [[plain(cell) for cell in row] for row in overall.rows] == [
        ["a", "quality", "0.90 [0.80, 1.00]", "0.95 [0.85, 1.05]", "0.80 [0.70, 0.90]", "90%", "40%", "5%", "60%"],
        ["a", "cosine of arc", "0.90 [0.80, 1.00]", "0.95 [0.85, 1.05]", "0.80 [0.70, 0.90]", *"––––"],
        ["b", "quality", *"–––", "90%", "80%", "–", "–"],
    ]  # fmt: skip
    assert [column for column in kinds.columns if "at 1" in column] == [
        "cosine at 1", "percentile at 1", "kept at 1", "not a face at 1"
    ]  # fmt: skip
    assert [[plain(cell) for cell in row] for row in kinds.rows] == [
        ["sepia (held out)", "a", "0.90", "0.85", "20", "1", "90%", "50%", "0%", "100%"],
        ["sepia (held out)", "b", "–", "–", "20", "1", "90%", "90%", "–", "–"],
        ["blur", "a", "0.80", "0.70", "20", "1", "90%", "30%", "10%", "20%"],
        ["blur", "b", "–", "–", "20", "1", "90%", "70%", "–", "–"],
    ]


def test_figures_are_of_what_was_measured() -> None:
    both = subjects()
    (part,) = corruptions(both).parts
    (points,), (panels,) = part.figures, part.more[1]
    assert {"ρ 0.90, held out 0.80", "held out"} <= set(texts(points.svg))
    assert {"blur", "sepia (held out)", "a", "b", "cosine"} <= set(texts(panels.svg))
    (alone,) = corruptions(both[1:]).parts
    assert not alone.figures
    assert set(texts(alone.more[1][0].svg)) >= {"kept", "percentile of quality / 100"}
    assert not {"cosine", "not a face"} & set(texts(alone.more[1][0].svg))


def texts(svg: str) -> list[str]:
    return [text.strip() for text in re.findall(r"<text[^>]*>([^<]+)</text>", svg)]
