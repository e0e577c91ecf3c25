"""Results of ``facerts evaluate`` and ``facerts compare`` as tables on the terminal: those of the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from facerts.cli.output import print_sentence, print_table

if TYPE_CHECKING:
    from facerts.evaluation.results import Comparison
    from facerts.evaluation.results.corruptions_result import CorruptionResult
    from facerts.evaluation.results.fiqa_result import FiqaSection
    from facerts.evaluation.results.groups_result import GroupsResult
    from facerts.evaluation.results.identification_result import IdentificationResult
    from facerts.evaluation.results.ood_result import OodResult
    from facerts.evaluation.results.reject_result import RejectResult
    from facerts.evaluation.results.verification_result import VerificationResult

# Columns of the league with intervals: more would not fit on a terminal; the files have them.
WITH_INTERVALS = 3


def show_verification(sections: Mapping[str, VerificationResult]) -> None:
    """A table for each benchmark."""
    from facerts.report.result_tables import verification_table

    for name, section in sections.items():
        print_table(verification_table([("", section)]), f"{name} (95% intervals: {section.interval})")


def show_reject(sections: Mapping[str, Sequence[RejectResult]]) -> None:
    """FNMR by the share rejected, a table for each benchmark and set of pairs."""
    from facerts.report.result_tables import reject_table
    from facerts.report.table import rate

    for name, curves in sections.items():
        for first in {curve.pairs: curve for curve in reversed(curves)}.values():
            pairs = "all pairs" if first.pairs == "all" else "its pairs"
            title = f"{name}, {pairs}: FNMR at FMR {rate(first.fmr)} of {first.impostors:,} impostor pairs"
            print_table(reject_table([("", curves)], first.pairs), title)


def show_identification(sections: Mapping[str, IdentificationResult]) -> None:
    """A row for each gallery and pooling."""
    from facerts.report.result_tables import identification_table

    for name, section in sections.items():
        print_table(identification_table([("", section)]), f"{name} (95% intervals: {section.interval})")


def show_ood(section: OodResult) -> None:
    """A row for each score and source of faces."""
    from facerts.report.result_tables import ood_table

    faces, others = sum(section.faces.values()), sum(section.others.values())
    title = f"{faces:,} faces against {others:,} non-faces (95% intervals: {section.interval})"
    print_table(ood_table(section), title)


def show_corruptions(sections: Mapping[str, CorruptionResult]) -> None:
    """Medians by severity, a row for each kind."""
    from facerts.report.result_tables import corruption_tables

    for name, section in sections.items():
        for table in corruption_tables([("", section)]):
            print_table(table, f"{name}, {section.images:,} faces: {table.title}")


def show_comparison(comparison: Comparison) -> None:
    """The tables, and differences from the reference."""
    from facerts.report.comparison_tables import difference_tables, method_tables

    for table in method_tables(comparison):
        print_table(table)
    for table in difference_tables(comparison):
        print_table(table, f"Difference from {comparison.reference.label}, in percentage points")


def show_fiqa(sections: Mapping[str, FiqaSection]) -> None:
    """A table for each set of faces, the best quality first, and its groups."""
    from facerts.report.league_tables import league_table

    for name, section in sections.items():
        table = league_table(section)
        rows = [
            [cell if place < WITH_INTERVALS else cell._replace(small="") for place, cell in enumerate(row)]
            for row in table.rows
        ]
        if rows:
            print_table(replace(table, rows=rows), f"{name}: {table.title or 'faces against non-faces'}")
        if section.groups is not None:
            show_groups(section.groups)


def show_groups(section: GroupsResult) -> None:
    """Accepted shares and errors by group, and a sentence on each difference."""
    from facerts.report.group_tables import accepted_table, errors_table, group_findings

    for attribute, groups in section.by.items():
        if groups.accepted:
            title = f"Accepted share of the images (95% intervals: {section.interval})"
            print_table(accepted_table(attribute, groups), title)
        for recognizer, matching in groups.matching.items():
            table = errors_table(attribute, recognizer, matching)
            print_table(table, f"{table.title}, at similarity {matching.threshold:.4f}")
        for sentence in group_findings(attribute, groups):
            print_sentence(sentence)
