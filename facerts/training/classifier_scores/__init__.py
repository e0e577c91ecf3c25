"""Scores that a trained classifier has of a picture without new training; rivals of every learned quality."""

from facerts.training.classifier_scores.embedder import ClassifierEmbedder, load_run
from facerts.training.classifier_scores.registry import SCORES

__all__ = ["SCORES", "ClassifierEmbedder", "load_run"]
