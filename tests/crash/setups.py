"""What commands are given in place of the models that ship; each runs in the child, in the scene's folder."""

from pathlib import Path

from facerts.hub import catalog
from facerts.scoring import score_job
from tests.color_people import color_scorer


def their_catalog():
    """A catalog of one recognizer."""
    catalog.CATALOG = Path("catalog.json").resolve()


def people_of_color():
    """A scorer that knows squares of color, for videos."""
    import facerts.scoring

    scorer = color_scorer()
    facerts.scoring.load = lambda *_, **__: scorer


def small_blocks():
    """Scoring in blocks of two images."""
    score_job.BLOCK_SIZE = 2
