"""Faces against what is no face, by model and score: Table 2 of the RTS paper.

python eval/ood_table.py MagFace=results/magface RTS=results/rts --caption "Table 2" --per-source

Results come from `facerts evaluate ood`.
"""

from __future__ import annotations

from collections.abc import Iterator

from common import (
    Measured,
    add_results,
    load_labeled,
    parser_of,
    percent,
    run,
    warn_of_other_ood,
)

from facerts.evaluation.results.ood import OodNumbers, OodScore, TprName
from facerts.report.markdown import markdown_table

TPRS: dict[str, TprName] = {"TNR@TPR90": "0.90", "TNR@TPR95": "0.95"}


def main() -> None:
    parser = parser_of(__doc__)
    add_results(parser)
    parser.add_argument("--caption", help="a line above the table")
    parser.add_argument(
        "--per-source",
        action="store_true",
        help="also each source of faces against all others, and all faces against each source of others",
    )
    options = parser.parse_args()
    results = load_labeled(options.results)
    warn_of_other_ood(results)
    words = ["model", "score", *(["faces", "others"] if options.per_source else [])]
    rows = [
        [saved.label, score, *(against if options.per_source else []), *numbers(measured)]
        for saved in results
        for score, pooled in saved.ood.by.items()
        for against, measured in split(pooled, options.per_source)
    ]
    print(markdown_table([*words, *TPRS, "AUROC"], rows, options.caption, words=len(words)))
    made = " or ".join(dict.fromkeys(saved.ood.interval for saved in results))
    print(f"\nIn percent [95 % interval: {made}].")


def split(pooled: OodScore, per_source: bool) -> Iterator[tuple[list[str], OodNumbers]]:
    """Names of the faces and of the others, and their numbers; one source by itself is all of them."""
    yield ["all", "all"], pooled
    faces, others = pooled.per_source, pooled.per_out_source
    if per_source and len(faces) > 1:
        yield from (([name, "all"], measured) for name, measured in faces.items())
    if per_source and len(others) > 1:
        yield from ((["all", name], measured) for name, measured in others.items())


def numbers(measured: OodNumbers) -> list[str]:
    """The cells of a row."""
    rates = [Measured(measured.tnr_at_tpr[tpr], *measured.ci95[tpr]) for tpr in TPRS.values()]
    return [percent(one) for one in (*rates, Measured(measured.auroc, *measured.ci95["auroc"]))]


if __name__ == "__main__":
    run(main)
