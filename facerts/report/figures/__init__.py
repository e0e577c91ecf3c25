"""Figures of results, one file for each kind; all are SVG elements for a page."""

from facerts.report.figures.balance import Point, balance
from facerts.report.figures.blur import blur_panels, blur_steps
from facerts.report.figures.corruptions import corruption_grid
from facerts.report.figures.effects import Effect, effects
from facerts.report.figures.fiqa import league_curves, two_uses
from facerts.report.figures.ood import score_histograms, score_panels
from facerts.report.figures.paper import write_svg, write_svgs
from facerts.report.figures.reject import OWN_SCORES, one_embedding_curves, reject_curves, reliability
from facerts.report.figures.training import percentile_band, percentile_bands, quality_panels, training_curves
from facerts.report.figures.verification import det_curves, pair_histograms

__all__ = [
    "OWN_SCORES",
    "Effect",
    "Point",
    "balance",
    "blur_panels",
    "blur_steps",
    "corruption_grid",
    "det_curves",
    "effects",
    "league_curves",
    "one_embedding_curves",
    "pair_histograms",
    "percentile_band",
    "percentile_bands",
    "quality_panels",
    "reject_curves",
    "reliability",
    "score_histograms",
    "score_panels",
    "training_curves",
    "two_uses",
    "write_svg",
    "write_svgs",
]
