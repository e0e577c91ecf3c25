"""Figures of results, one file for each kind; all are SVG elements for a page."""

from facerts.report.figures.balance import Point, balance
from facerts.report.figures.corruption_grid import corruption_grid
from facerts.report.figures.det_curves import det_curves, has_det_curve, pair_histograms
from facerts.report.figures.league_curves import league_curves, two_uses
from facerts.report.figures.reject_curves import OWN_SCORES, one_embedding_curves, reject_curves, reliability
from facerts.report.figures.score_histograms import blur_panels, blur_steps, score_panels
from facerts.report.figures.svg_files import write_svgs
from facerts.report.figures.training_curves import percentile_bands, quality_panels, training_curves

__all__ = [
    "OWN_SCORES",
    "Point",
    "balance",
    "blur_panels",
    "blur_steps",
    "corruption_grid",
    "det_curves",
    "has_det_curve",
    "league_curves",
    "one_embedding_curves",
    "pair_histograms",
    "percentile_bands",
    "quality_panels",
    "reject_curves",
    "reliability",
    "score_panels",
    "training_curves",
    "two_uses",
    "write_svgs",
]
