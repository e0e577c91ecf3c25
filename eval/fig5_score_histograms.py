"""Histograms of each method's score for faces and non-faces, a panel for each: Fig. 5 of the RTS paper.

python eval/fig5_score_histograms.py MagFace=results/magface RTS=results/rts --faces lfw rafdb --out fig5.svg

Each panel has its own scale. Results come from `facerts evaluate ood`.
"""

from __future__ import annotations

from common import add_out, add_results, load_labeled, parser_of, run

from facerts.report.figures import score_panels, write_svg
from facerts.report.subject import Subject


def main() -> None:
    parser = parser_of(__doc__)
    add_results(parser)
    parser.add_argument(
        "--score", default="quality", help="Score to plot: quality (the default), uncertainty, norm …"
    )
    parser.add_argument(
        "--faces", nargs="+", metavar="SOURCE", help="Sources of faces to draw (default: all)."
    )
    add_out(parser, "SVG file.")
    options = parser.parse_args()
    subjects = []
    for saved in load_labeled(options.results):
        for source in (*(options.faces or saved.ood.faces), *saved.ood.others):
            saved.array(f"ood/{source}/{options.score}")
        subjects.append(Subject(saved.label, saved.content, saved.arrays, log=[]))
    columns = 3 if len(subjects) > 4 else 2
    write_svg(options.out, score_panels(subjects, options.score, faces=options.faces, columns=columns))


if __name__ == "__main__":
    run(main)
