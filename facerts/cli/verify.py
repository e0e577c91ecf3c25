"""``facerts verify``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from facerts.cli.output import (
    EXIT_DIFFERENT,
    EXIT_INCONCLUSIVE,
    EXIT_UNUSABLE,
    print_error,
    print_json,
    print_result,
    print_sentence,
)
from facerts.cli.settings import CommandSettings
from facerts.cli.shared_options import Json, NewTable, ScorerOptions

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from facerts.datasets.pair_rows import ListedPair
    from facerts.scoring import MatchRule, Scorer, Verification
    from facerts.scoring.verify import Decision

# The exit status of each decision.
STATUSES: dict[Decision, int] = {"same": 0, "different": EXIT_DIFFERENT, "inconclusive": EXIT_INCONCLUSIVE}


def verify(
    first: Annotated[str | None, typer.Argument(metavar="A")] = None,
    second: Annotated[str | None, typer.Argument(metavar="B")] = None,
    *,
    pairs: Path | None = None,
    data: Path | None = None,
    out: NewTable = None,
    models: ScorerOptions,
    fmr: float | None = None,
    threshold: float | None = None,
    settings: CommandSettings,
    json: Json = False,
) -> None:
    """Decide whether two images show the same person, at a calibrated error rate.

    Exits with status 0 for the same person, 1 for different people, 5 if the quality of an image is too low to say, and
    2 if an image cannot be read or has no face. With --pairs, exits with status 0, or 1 if some pairs could not be
    compared.

    Example: facerts verify a.jpg b.jpg --fmr 0.001

    Args:
        first: The first image.
        second: The second image.
        pairs: Instead of two images, a list of pairs, in any layout that facerts evaluate reads, or without labels. If
            it has labels, the error rates of the decisions are printed.
        data: With --pairs: folder that the list's paths are relative to; by default the list's own.
        out: With --pairs: file to write the rows to, .csv, .jsonl or .parquet.
        fmr: False match rate: the share of the pairs of different people that may be taken for one person. One of those
            that the model was calibrated for; by default 0.001, or the lowest if that is missing.
        threshold: Instead, the minimum cosine similarity of a match; its error rates are not known.
    """
    from facerts.scoring.pair_list import read_pair_list
    from facerts.scoring.sinks import check_sink

    if fmr is not None and threshold is not None:
        raise typer.BadParameter("--fmr and --threshold both set the threshold; give only one")
    if pairs is None and (first is None or second is None or data is not None or out is not None):
        raise typer.BadParameter("give two images, or a list with --pairs and a file with --out")
    if pairs is not None and (first is not None or out is None):
        raise typer.BadParameter("--pairs takes the place of the two images, and requires --out")
    if out is not None:
        check_sink(out)
    listed = [] if pairs is None else read_pair_list(pairs, data)
    scorer = models.open(settings)
    fmr = settings.fmr if fmr is None and threshold is None else fmr
    accepted = settings.acceptance()
    if out is not None:
        rule = scorer.match_rule(fmr=fmr, threshold=threshold, **accepted)
        _verify_list(scorer, listed, out, rule, json=json)
        return
    assert first is not None
    assert second is not None
    result = scorer.verify(first, second, fmr=fmr, threshold=threshold, **accepted)
    if json:
        print_json(asdict(result))
    elif result.error is None:
        _explain(result)
    if result.error is not None:
        print_error(result.error)
        raise typer.Exit(EXIT_UNUSABLE)
    raise typer.Exit(STATUSES[result.decision or "inconclusive"])


def _verify_list(scorer: Scorer, listed: Sequence[ListedPair], out: Path, rule: MatchRule, *, json: bool) -> None:
    """Write and count the rows, and compare them with labels."""
    from facerts.evaluation.wording import DIGITS, measured
    from facerts.scoring import Verification
    from facerts.scoring.pair_list import measure_labeled, verify_list

    decisions: list[Decision | None] = []

    def results() -> Iterator[Verification]:
        for result in verify_list(scorer, listed, rule, progress="embedding"):
            decisions.append(result.decision)
            yield result

    def summary() -> dict[str, object]:
        counts: dict[str, object] = {name: decisions.count(name) for name in STATUSES}
        counts = {"pairs": len(decisions), **counts, "failed": decisions.count(None)}
        labeled = measure_labeled(listed, decisions)
        if labeled is None:
            return counts
        if json:
            return {**counts, "labeled": asdict(labeled)}
        rates = {"accuracy": labeled.accuracy, "FMR": labeled.fmr, "FNMR": labeled.fnmr}
        shown = {
            name: f"{measured(rate.value, rate.ci95, DIGITS)} of {rate.pairs:,} pairs" for name, rate in rates.items()
        }
        left_out = f"{labeled.inconclusive:,} inconclusive and {labeled.failed:,} not compared"
        return {
            **counts,
            "labeled pairs": f"{labeled.pairs:,}, of which no rate counts {left_out}",
            **(shown if labeled.accuracy.pairs else {}),
            "95% intervals": labeled.interval,
        }

    print_result(summary, json, results(), out=out, kind=Verification)


def _explain(result: Verification) -> None:
    """Print the decision and what it rests on, for people."""
    decisions = {"same": "Same person", "different": "Different people", "inconclusive": "Inconclusive"}
    rate = (
        ", whose error rates are not known"
        if result.fmr is None
        else f" at a false match rate of {100 * result.fmr:g}%"
    )
    print_sentence(
        f"{decisions[result.decision or '']}: similarity {result.similarity:.3f}, threshold "
        f"{result.threshold:.3f}{rate}."
    )
    if result.reason is not None:
        print_sentence(f'{result.reason}. So neither "same" nor "different" could be trusted.')
    if result.fnmr is not None and result.fnmr_ci95 is not None:
        low, high = result.fnmr_ci95
        print_sentence(
            f"About {_of_pairs(result.fnmr)} of the same person fall below the threshold, as measured when the model "
            f"was calibrated (95% interval: {100 * low:.3g} to {100 * high:.3g}%)."
        )
    if result.min_quality is None:
        print_sentence("Quality was not considered: the model has no threshold for it.")
    elif result.reason is None:
        print_sentence(
            f"Quality: {_quality(result.first_quality, result.first_percentile)} and "
            f"{_quality(result.second_quality, result.second_percentile)}; at least {result.min_quality:.3f} is needed."
        )
    if result.note is not None:
        print_sentence(f"Note: {result.note}.")


def _of_pairs(rate: float) -> str:
    """A rate as people count: 4 in 100 pairs."""
    of = next((of for of in (100, 1000, 10_000) if rate * of >= 1), 100_000)
    return f"{rate * of:.0f} in {of:,} pairs"


def _quality(quality: float | None, percentile: float | None) -> str:
    """As a percentile of the calibration faces, if there is one, and on the model's own scale."""
    return f"{quality:.3f}" if percentile is None else f"percentile {int(percentile)} ({quality:.3f})"
