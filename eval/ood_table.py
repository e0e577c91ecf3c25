"""Separation of faces from non-faces, by model and score: Table 2 of the RTS paper.

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
    parser.add_argument("--caption", help="Caption above the table.")
    parser.add_argument(
        "--per-source",
        action="store_true",
        help="Also compare each source of faces with all non-faces, and all faces with each source of non-faces.",
    )
    options = parser.parse_args()
    results = load_labeled(options.results)
    warn_of_other_ood(results)
    words = ["model", "score", *(["faces", "non-faces"] if options.per_source else [])]
    rows = [
        [saved.label, score, *(sources if options.per_source else []), *cells(section)]
        for saved in results
        for score, pooled in saved.ood.by.items()
        for sources, section in split(pooled, options.per_source)
    ]
    print(markdown_table([*words, *TPRS, "AUROC"], rows, options.caption, words=len(words)))
    intervals = " or ".join(dict.fromkeys(saved.ood.interval for saved in results))
    print(f"\nIn percent [95 % interval: {intervals}].")


def split(pooled: OodScore, per_source: bool) -> Iterator[tuple[list[str], OodNumbers]]:
    """Yield names of the sources of faces and of non-faces, and the section of their results.

    The pooled results come first; single sources follow if there are several.
    """
    yield ["all", "all"], pooled
    faces, non_faces = pooled.per_source, pooled.per_out_source
    if per_source and len(faces) > 1:
        yield from (([name, "all"], section) for name, section in faces.items())
    if per_source and len(non_faces) > 1:
        yield from ((["all", name], section) for name, section in non_faces.items())


def cells(section: OodNumbers) -> list[str]:
    """The cells of a row."""
    rates = [Measured(section.tnr_at_tpr[tpr], *section.ci95[tpr]) for tpr in TPRS.values()]
    auroc = Measured(section.auroc, *section.ci95["auroc"])
    return [percent(measured) for measured in (*rates, auroc)]


if __name__ == "__main__":
    run(main)
