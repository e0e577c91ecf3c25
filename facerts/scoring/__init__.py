"""Pictures in, rows out."""

from facerts.scoring.blocks import Block
from facerts.scoring.copies import Copies
from facerts.scoring.job import Job
from facerts.scoring.pipeline import pictures_of, score_images
from facerts.scoring.prepare import Picture
from facerts.scoring.row import Row
from facerts.scoring.row_builder import RowBuilder, Scored
from facerts.scoring.run import Task, run_job, score_spans
from facerts.scoring.scorer import Scorer, load
from facerts.scoring.sinks import open_sink

__all__ = [
    "Block",
    "Copies",
    "Job",
    "Picture",
    "Row",
    "RowBuilder",
    "Scored",
    "Scorer",
    "Task",
    "load",
    "open_sink",
    "pictures_of",
    "run_job",
    "score_images",
    "score_spans",
]
