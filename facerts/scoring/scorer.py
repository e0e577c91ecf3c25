"""The use side's public face: a model, with a detector where pictures are photos."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from facerts.data.open import open_pictures
from facerts.detect import Detector, open_detector
from facerts.embedder import FaceOutputs, OnnxEmbedder, load_embedder
from facerts.errors import ImageError, ModelError
from facerts.image import decode, read
from facerts.scoring.pipeline import Picture, Scored, score_pictures, score_source
from facerts.scoring.row import Row
from facerts.zoo import find_model

Image = str | Path | bytes | NDArray[np.uint8]


class Scorer:
    """Scores pictures and embeds aligned crops.

    Attributes:
        embedder: the model.
        detector: None where pictures are aligned crops.
    """

    def __init__(self, embedder: OnnxEmbedder, detector: Detector | None = None) -> None:
        self.embedder = embedder
        self.detector = detector

    def score(self, images: Image | Sequence[Image], *, min_quality: float | None = None) -> list[Row]:
        """A row for each face of each picture; a picture that cannot be read is a row with an error.

        Args:
            images: paths, encoded bytes, or ``(H, W, 3) uint8`` RGB arrays; one, several, or ``(N, H, W, 3)``.
            min_quality: faces at or above it are accepted.
        """
        one = isinstance(images, str | Path | bytes) or (isinstance(images, np.ndarray) and images.ndim < 4)
        given: Sequence[Image] = [images] if one else images  # type: ignore[list-item, assignment]
        scored = score_pictures(
            self.embedder,
            (_given(image, number) for number, image in enumerate(given)),
            detector=self.detector,
            min_quality=min_quality,
            calibration=self.embedder.description.calibration,
            batch_size=self.embedder.batch_size,
        )
        return [entry.row for entry in scored]

    def score_paths(
        self,
        paths: str | Path | Sequence[str | Path],
        *,
        min_quality: float | None = None,
        progress: str = "",
    ) -> Iterator[Scored]:
        """Rows with embeddings, one by one, for folders, record directories, shards and lists of any size.

        Args:
            paths: see ``facerts.data.open_pictures``.
            min_quality: as in ``score``.
            progress: text of a progress bar; empty for none.
        """
        return score_source(
            self.embedder,
            open_pictures(paths),
            detector=self.detector,
            min_quality=min_quality,
            calibration=self.embedder.description.calibration,
            batch_size=self.embedder.batch_size,
            progress=progress,
        )

    def embed(self, crops: NDArray[np.uint8]) -> FaceOutputs:
        """Outputs for aligned crops, ``(N, 112, 112, 3) uint8`` RGB."""
        return self.embedder(crops)

    def threshold(self, keep: float) -> float:
        """The quality that keeps a share of the faces that the model was calibrated on.

        Raises:
            ModelError: the model carries no threshold for that share.
        """
        thresholds = self.embedder.description.thresholds
        for share, chosen in thresholds.items():
            if abs(float(share) - keep) < 1e-9:
                return chosen.quality
        known = f"only for {', '.join(thresholds)}" if thresholds else "none at all"
        raise ModelError(
            f"{self.embedder.name} has no threshold that keeps {keep:g} of the faces, {known}; choose one on faces of "
            "your own with facerts calibrate"
        )

    def match_threshold(self, fmr: float, *, flip: bool = False) -> float:
        """The cosine at or above which two faces match, at a false match rate of the pairs that were calibrated on.

        Args:
            fmr: one of the rates that the model was calibrated for.
            flip: for embeddings to which the mirror's were added; those that ``embed`` gives are the crop's alone.

        Raises:
            ModelError: the model carries no threshold for that rate, or one for the other kind of embeddings.
        """
        calibration = self.embedder.description.calibration
        matching = None if calibration is None else calibration.matching
        if matching is not None and matching.flip != flip:
            kinds = ("the crop alone", "the crop and its mirror")
            raise ModelError(
                f"{self.embedder.name} has match thresholds for embeddings of {kinds[matching.flip]}, not of "
                f"{kinds[flip]}; calibrate again {'with' if flip else 'without'} --flip"
            )
        thresholds = {} if matching is None else matching.thresholds
        for rate, chosen in thresholds.items():
            if math.isclose(float(rate), fmr):
                return chosen.similarity
        known = f"only for {', '.join(thresholds)}" if thresholds else "none at all"
        raise ModelError(
            f"{self.embedder.name} has no match threshold for a false match rate of {fmr:g}, {known}; choose one on "
            "faces of your own with facerts calibrate"
        )


def load(
    model: str | Path | None = None,
    *,
    detector: str = "none",
    detector_model: str | Path | None = None,
    providers: Sequence[str] | None = None,
    threads: int | None = None,
    batch_size: int = 64,
) -> Scorer:
    """Open a model for scoring.

    Args:
        model: the name of a model that ships, or an .onnx embedder, ours or a foreign one with its description beside
            it; None for the default model.
        detector: "none" where pictures are aligned crops, or "yunet" for photos.
        detector_model: the detector's file.
        providers: ONNX Runtime's execution providers; None for the CPU.
        threads: of one run of the network.
        batch_size: crops in a run.

    Raises:
        ModelError: a model is missing or not what it should be.
    """
    path = find_model(model)
    embedder = load_embedder(path, providers=providers, threads=threads, batch_size=batch_size)
    return Scorer(embedder, open_detector(detector, detector_model))


def _given(image: Image, number: int) -> Picture:
    """A picture that the caller holds, or names."""
    if isinstance(image, str | Path):
        return Picture(str(image), lambda: read(image))
    name = f"picture {number}"
    if isinstance(image, bytes):
        return Picture(name, lambda: decode(image, where=name))
    return Picture(name, lambda: _checked(image, name))


def _checked(image: NDArray[np.uint8], name: str) -> NDArray[np.uint8]:
    if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8 or 0 in image.shape:
        raise ImageError(f"{name}: an array must be (H, W, 3) uint8 RGB, not {image.shape} {image.dtype}")
    return np.ascontiguousarray(image)
