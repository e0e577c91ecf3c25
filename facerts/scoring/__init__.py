"""Pictures in, rows out."""

from facerts.scoring.pipeline import Picture, Scored, score_pictures, score_source
from facerts.scoring.row import Row
from facerts.scoring.scorer import Scorer, load
from facerts.scoring.sinks import open_sink

__all__ = ["Picture", "Row", "Scored", "Scorer", "load", "open_sink", "score_pictures", "score_source"]
