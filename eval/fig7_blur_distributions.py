"""Distributions of a score under Gaussian blur, one panel per method: Fig. 7 of the RTS paper.

python eval/fig7_blur_distributions.py RTS=results/rts DUL=results/dul --radius 2 3 5 --out fig7.svg

Results come from `facerts evaluate corruptions`, whose blur has radii of 1 to 5 pixels.
"""

from __future__ import annotations

from common import add_out, add_results, corruption_scores, corruption_source, load_labeled, parser_of, run

from facerts.report.figures import blur_panels, blur_steps, write_svg


def main() -> None:
    parser = parser_of(__doc__)
    add_results(parser)
    parser.add_argument("--source", help="Source of the faces; by default the only one.")
    parser.add_argument(
        "--score", default="quality", help="Score to plot: quality (the default), v of RTS, norm, sharpness …"
    )
    parser.add_argument(
        "--radius", nargs="+", type=float, default=[2, 3, 5], help="Radii of the blur in pixels."
    )
    add_out(parser, "SVG file.")
    options = parser.parse_args()
    results = load_labeled(options.results)
    source = corruption_source(results, options.source)
    steps = blur_steps(options.radius)
    scores = {
        saved.label: {
            label: corruption_scores(saved, source, step, options.score) for label, step in steps.items()
        }
        for saved in results
    }
    write_svg(options.out, blur_panels(scores, options.score, source))


if __name__ == "__main__":
    run(main)
