"""Images in, rows out."""

from facerts.scoring.annotate import annotate
from facerts.scoring.copies import Copies
from facerts.scoring.face import Face
from facerts.scoring.inputs import lazy_images
from facerts.scoring.parts import Quality, Recognizer
from facerts.scoring.pipeline import score_images
from facerts.scoring.prepare import LazyImage
from facerts.scoring.row import Row
from facerts.scoring.row_builder import RowBuilder
from facerts.scoring.score_job import Block, ScoreJob, Task, run_job, score_rows, score_spans
from facerts.scoring.scorer import Scorer, load
from facerts.scoring.sinks import open_sink
from facerts.scoring.track import Shot, Track
from facerts.scoring.verify import MatchRule, Verification

__all__ = [
    "Block",
    "Copies",
    "Face",
    "LazyImage",
    "MatchRule",
    "Quality",
    "Recognizer",
    "Row",
    "RowBuilder",
    "ScoreJob",
    "Scorer",
    "Shot",
    "Task",
    "Track",
    "Verification",
    "annotate",
    "lazy_images",
    "load",
    "open_sink",
    "run_job",
    "score_images",
    "score_rows",
    "score_spans",
]
