"""The search for the people of faces, which is the same in galleries in memory, in files and in databases."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from facerts.galleries.enroll import PROBE_KEEP, default_threshold
from facerts.galleries.match import Match
from facerts.galleries.unmated import SearchThreshold
from facerts.scoring.inputs import Color, ImageInputs
from facerts.scoring.row_builder import ScoredFace
from facerts.scoring.scorer import Scorer


class PeopleSearch(ABC):
    """A gallery, wherever it is, whose people can be searched for."""

    @abstractmethod
    def check_model(self, scorer: Scorer) -> None:
        """Refuse a model other than the gallery's."""

    @abstractmethod
    def threshold(self, fpir: float) -> SearchThreshold:
        """The minimum cosine of a match at a false positive identification rate, see ``facerts.galleries.unmated``.

        Args:
            fpir: the share of searches for people who are not enrolled that may find somebody, above 0 and below 1.
        """

    @abstractmethod
    def match(self, faces: Sequence[ScoredFace], *, fpir: float = 0.01, k: int = 1) -> list[Match]:
        """As ``search``, for faces that the gallery's model has scored already."""

    def search(
        self,
        scorer: Scorer,
        images: ImageInputs,
        *,
        fpir: float = 0.01,
        k: int = 1,
        min_quality: float | None = None,
        largest: bool = False,
        color: Color = "RGB",
        progress: str = "",
    ) -> list[Match]:
        """The most similar people of each face in each image, and whether the first is a match.

        Args:
            images: see ``Scorer.score``.
            fpir: see ``threshold``.
            k: number of candidates of each face.
            min_quality: say nothing of faces below this quality, or of what is not a face; None for the model's
                threshold that keeps 0.99 of calibration faces, if it has one; -inf for none.
            largest: search only for the largest face of each photo.
            color: order of the channels of arrays: "RGB", or "BGR" for those of OpenCV.
            progress: what a progress bar says; empty for none.
        """
        self.check_model(scorer)
        if min_quality is None:
            min_quality = default_threshold(scorer, PROBE_KEEP)
        faces = scorer.score_each(
            images, min_quality=min_quality, largest=largest, color=color, progress=progress
        )
        return self.match(list(faces), fpir=fpir, k=k)
