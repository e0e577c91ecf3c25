"""Draws the figures of docs/results/ from runs whose evaluations were written into their own folders.

python eval/figures.py runs/faces_small_rts runs/faces_small_arcface --benchmark lfw --out docs/figures
"""

from __future__ import annotations

import argparse
from pathlib import Path

from facerts.report import figures
from facerts.report.subject import load_subjects


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, help="Run folders with results.")
    parser.add_argument("--benchmark", default="lfw", help="Benchmark of error versus reject (default: lfw).")
    parser.add_argument("--out", type=Path, required=True, help="Folder for the SVG files.")
    options = parser.parse_args()
    subjects = load_subjects(options.runs)
    learned = [subject for subject in subjects if subject.series("train", "v_p50")[0]]
    svgs = {
        "cross_entropy": figures.training_curves(subjects, "train", "cross_entropy", "cross-entropy"),
        "kl": figures.training_curves(learned, "train", "kl", "KL divergence (Eq. 6)"),
        "v": figures.percentile_band(learned, "v", "uncertainty v of the training faces"),
        "accuracy": figures.training_curves(subjects, "validation", "accuracy", "verification accuracy"),
        "reject": figures.reject_curves(subjects, options.benchmark, "fixed"),
    }
    for subject in subjects:
        for score in subject.sections.ood.by if subject.sections.ood else ():
            svgs[f"ood_{subject.label}_{score}"] = figures.score_histograms(subject, score)
    figures.write_svgs(options.out, svgs)


if __name__ == "__main__":
    main()
