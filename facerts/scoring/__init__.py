"""Pictures in, rows out."""

from facerts.scoring.pipeline import Scored, score_source
from facerts.scoring.row import Row
from facerts.scoring.scorer import Scorer, load
from facerts.scoring.sinks import open_sink

__all__ = ["Row", "Scored", "Scorer", "load", "open_sink", "score_source"]
