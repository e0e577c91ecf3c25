"""Cross-validated accuracy on benchmarks and its mean, with 95 % intervals: Tables 1, 3, 4 and 5 of the RTS paper.

python eval/verification_table.py "RTS, 0 %"=results/rts "RTS, 20 % blurred"=results/rts_blur --caption "Table 1"
python eval/verification_table.py ArcFace=results/arcface RTS=results/rts --caption "Table 3"
python eval/verification_table.py "λ 0.1"=results/l01 "λ 1"=results/l1 "λ 10"=results/l10 --caption "Table 4"
python eval/verification_table.py "δ 16"=results/d16 "δ 8"=results/d8 --sort-by label --caption "Table 5"

Table 1 compares models trained without and with blurred images, Table 3 methods, Table 4 RTS with several λ, and
Table 5 RTS with several δ. Results come from `facerts evaluate verification`.
"""

from __future__ import annotations

import math
import re

from common import (
    SavedResult,
    accuracy,
    accuracy_sets,
    add_results,
    load_labeled,
    mean_accuracy,
    parser_of,
    percent,
    run,
)

from facerts.report.markdown import markdown_table


def main() -> None:
    parser = parser_of(__doc__)
    add_results(parser)
    parser.add_argument(
        "--sets", nargs="+", help="Benchmarks, in this order; by default all with an accuracy."
    )
    parser.add_argument("--caption", help="Caption above the table.")
    parser.add_argument(
        "--sort-by",
        choices=("given", "label", "mean"),
        default="given",
        help="Order of the rows: as given (the default), by label in natural order, or best mean first.",
    )
    options = parser.parse_args()
    results = load_labeled(options.results)
    sets = accuracy_sets(results, options.sets)
    if options.sort_by == "label":
        results.sort(key=lambda saved: natural(saved.label))
    if options.sort_by == "mean":
        results.sort(key=lambda saved: -mean_accuracy(saved, sets).value)
    rows = [
        [
            saved.label,
            *[percent(accuracy(saved, name)) for name in sets],
            percent(mean_accuracy(saved, sets)),
        ]
        for saved in results
    ]
    print(markdown_table(["model", *sets, "mean"], rows, options.caption))
    print(
        f"\nAccuracy in percent [95 % interval: {intervals(results, sets)}; "
        "that of the mean treats the benchmarks as independent]."
    )


def intervals(results: list[SavedResult], sets: list[str]) -> str:
    """How the intervals were computed."""
    kinds = [saved.verification(name).interval for saved in results for name in sets]
    return " or ".join(dict.fromkeys(kinds))


def natural(text: str) -> list[tuple[float, str]]:
    """Sort key of natural order: numbers in a text are compared by value, "δ 8" before "δ 16"."""
    parts = re.split(r"(\d+(?:\.\d+)?)", text)
    return [(float(part), "") if odd % 2 else (math.inf, part) for odd, part in enumerate(parts)]


if __name__ == "__main__":
    run(main)
