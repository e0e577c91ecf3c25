"""Histograms of each method's score for faces and non-faces: Fig. 5 of the RTS paper.

python eval/fig5_score_histograms.py MagFace=results/magface RTS=results/rts --score quality --out figures

Writes fig5_LABEL_SCORE.svg for each folder. Results come from `facerts evaluate ood`.
"""

from __future__ import annotations

from common import add_out, add_results, load_labeled, parser_of, run

from facerts.report.figures import score_histograms, write_svgs
from facerts.report.subject import Subject


def main() -> None:
    parser = parser_of(__doc__)
    add_results(parser)
    parser.add_argument(
        "--score", default="quality", help="Score to plot: quality (the default), uncertainty, norm …"
    )
    add_out(parser, "Folder for the SVG files.")
    options = parser.parse_args()
    svgs = {}
    for saved in load_labeled(options.results):
        for source in (*saved.ood.faces, *saved.ood.others):
            saved.array(f"ood/{source}/{options.score}")
        subject = Subject(label=saved.label, result=saved.content, arrays=saved.arrays, log=[])
        svgs[f"fig5_{saved.label}_{options.score}"] = score_histograms(subject, options.score)
    write_svgs(options.out, svgs)


if __name__ == "__main__":
    run(main)
