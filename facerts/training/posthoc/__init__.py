"""Quality for an embedder that is trained already: heads on what it says, grafted behind its own graph."""

from facerts.training.posthoc.run import Graft, add_quality
from facerts.training.posthoc.train import Settings

__all__ = ["Graft", "Settings", "add_quality"]
