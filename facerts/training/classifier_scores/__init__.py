"""Scores of images from a trained classifier, without further training; baselines for every learned quality."""

from facerts.training.classifier_scores.embedder import ClassifierEmbedder, load_run
from facerts.training.classifier_scores.registry import CLASSIFIER_SCORES

__all__ = ["CLASSIFIER_SCORES", "ClassifierEmbedder", "load_run"]
