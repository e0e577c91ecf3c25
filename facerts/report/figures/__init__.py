"""Figures of results, one file for each kind; all are SVG elements for a page."""

from facerts.report.figures.ladder import ladder_grid
from facerts.report.figures.ood import score_histograms
from facerts.report.figures.reject import OWN_SCORES, reject_curves, reliability
from facerts.report.figures.training import percentile_band, training_curves
from facerts.report.figures.verification import det_curves, pair_histograms, roc_curves

__all__ = [
    "OWN_SCORES",
    "det_curves",
    "ladder_grid",
    "pair_histograms",
    "percentile_band",
    "reject_curves",
    "reliability",
    "roc_curves",
    "score_histograms",
    "training_curves",
]
