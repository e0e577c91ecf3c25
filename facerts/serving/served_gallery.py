"""The gallery of a service, in which many requests search at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from facerts.errors import DataError
from facerts.galleries import Gallery, Match
from facerts.galleries.match import match_faces
from facerts.scoring import ScoredFace, Scorer
from facerts.scoring.prepare import printable

# A threshold takes longer than a search, and requests ask for few different rates.
KEPT_THRESHOLDS = 64


class ServedGallery:
    """Searches a gallery that is read once and never changes; threads may share it.

    Args:
        path: the gallery file.
        scorer: the model of the service.
        embedding_size: numbers in an embedding of the model.
        fpir: false positive identification rate whose threshold is computed at once.

    Attributes:
        people: ``(P,)`` names of the people.
        images: number of images enrolled.

    Raises:
        DataError: the file is not a gallery, or has fewer than two people.
        ModelError: the gallery is of another model.
    """

    def __init__(self, path: Path, scorer: Scorer, embedding_size: int, fpir: float) -> None:
        gallery = Gallery.load(path)
        gallery.check_model(scorer)
        if gallery.templates.shape[1] != embedding_size:
            raise DataError(
                f"{path}: its embeddings have {gallery.templates.shape[1]} numbers, and those of its model have "
                f"{embedding_size}; build it again"
            )
        # JSON cannot hold every text that a file can.
        self.people = np.array([printable(name) for name in gallery.people.tolist()])
        self.images = len(gallery.enrollments)
        self._templates = gallery.templates
        self._threshold = lru_cache(KEPT_THRESHOLDS)(gallery.threshold)
        self.threshold(fpir)

    def threshold(self, fpir: float) -> float:
        """The minimum cosine of a match at a false positive identification rate, see ``Gallery.threshold``."""
        return self._threshold(fpir).cosine

    def match(self, faces: Sequence[ScoredFace], fpir: float, k: int) -> list[Match]:
        """As ``Gallery.match``."""
        return match_faces(faces, self.people, self._templates, self.threshold(fpir), k=k, backend="numpy")
