"""The use side's public face: a model, with a detector where pictures are photos."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from facerts.datasets.open import open_images
from facerts.detection import Detector, open_detector
from facerts.embedding import FaceOutputs, OnnxEmbedder, load_embedder
from facerts.errors import Error, ImageError, ModelError
from facerts.hub.registry import find_model
from facerts.images import decode, read
from facerts.io.progress import track
from facerts.onnx.session import CPU
from facerts.scoring.pipeline import pictures_of, score_images
from facerts.scoring.prepare import Picture
from facerts.scoring.row import Row
from facerts.scoring.row_builder import RowBuilder, Scored

BATCH, CPU_BATCH = 64, 16

Image = str | Path | bytes | NDArray[np.uint8]


class Scorer:
    """Scores pictures and embeds aligned crops.

    Attributes:
        embedder: the model.
        detector: None where pictures are aligned crops.
        resize_crops: squares of any size are aligned crops; otherwise those of 112 x 112 alone, and others are rows
            with an error, as they may be photos.
    """

    def __init__(
        self, embedder: OnnxEmbedder, detector: Detector | None = None, *, resize_crops: bool = False
    ) -> None:
        self.embedder = embedder
        self.detector = detector
        self.resize_crops = resize_crops

    def score(
        self,
        images: Image | Sequence[Image],
        *,
        min_quality: float | None = None,
        keep: float | None = None,
        largest: bool = False,
    ) -> list[Row]:
        """A row for each face of each picture; a picture that cannot be read is a row with an error.

        Args:
            images: paths, encoded bytes, or ``(H, W, 3) uint8`` RGB arrays; one, several, or ``(N, H, W, 3)``.
                Without a detector they are aligned crops, 112 x 112 unless ``resize_crops``.
            min_quality: faces at or above it are accepted.
            keep: accept as the model's own threshold for this share of faces does.
            largest: of several faces in a photo score the largest alone.

        Raises:
            ModelError: the model has no such threshold, or no quality to accept faces by.

        Examples:
            >>> import facerts
            >>> from facerts.datasets.synthetic import draw_face
            >>> scorer = facerts.load()
            >>> (row,) = scorer.score(draw_face(0, 0), min_quality=-2)
            >>> row.accepted
            True
            >>> (row,) = scorer.score(b"these bytes are not an image")
            >>> row.quality is None, row.error is None
            (True, False)
        """
        # An array of paths is several pictures, an array of pixels without an axis for them is one.
        pixels = isinstance(images, np.ndarray) and images.dtype.kind not in "OUS" and images.ndim < 4
        one = isinstance(images, str | Path | bytes) or pixels
        given: Sequence[Image] = [images] if one else images  # type: ignore[list-item, assignment]
        scored = score_images(
            self.judge(min_quality=min_quality, keep=keep),
            (_given(image, number) for number, image in enumerate(given)),
            detector=self.detector,
            largest=largest,
            resize_crops=self.resize_crops,
            batch_size=self.embedder.batch_size,
            runs=self.runs,
        )
        return [entry.row for faces in scored for entry in faces]

    def score_paths(
        self,
        paths: str | Path | Sequence[str | Path],
        *,
        min_quality: float | None = None,
        keep: float | None = None,
        largest: bool = False,
        progress: str = "",
    ) -> Iterator[Scored]:
        """Rows with crops and embeddings, one by one, for folders, record directories, shards and lists of any size.

        Args:
            paths: see ``facerts.datasets.open_images``.
            min_quality: as in ``score``.
            keep: as in ``score``.
            largest: as in ``score``.
            progress: text of a progress bar; empty for none.

        Raises:
            DataError: there are no pictures.
            ModelError: as in ``score``.
        """
        source = open_images(paths)
        scored = score_images(
            self.judge(min_quality=min_quality, keep=keep),
            pictures_of(source),
            detector=self.detector,
            largest=largest,
            resize_crops=self.resize_crops,
            batch_size=self.embedder.batch_size,
            runs=self.runs,
        )
        if progress:
            scored = track(scored, progress, total=len(source), unit="pictures")
        for faces in scored:
            yield from faces

    def judge(self, *, min_quality: float | None = None, keep: float | None = None) -> RowBuilder:
        """What makes rows of the model's outputs.

        Raises:
            ModelError: two thresholds are given, or the model has none of that name.
        """
        if min_quality is not None and keep is not None:
            raise ModelError("min_quality and keep both set a threshold; give only one")
        limit = min_quality if keep is None else self.threshold(keep)
        return RowBuilder(self.embedder, limit, self.embedder.description.calibration)

    def settings(self) -> dict[str, str | bool | None]:
        """All that rows depend on beside the pictures and the threshold."""
        detector = None if self.detector is None else self.detector.identity
        return {
            "model_sha256": self.embedder.sha256,
            "detector": detector,
            "resize_crops": self.resize_crops,
        }

    @property
    def runs(self) -> int:
        """Runs of the network at the same time that keep all cores busy, by the threads that each of them uses."""
        threads = self.embedder.session.get_session_options().intra_op_num_threads
        on_cores = self.embedder.providers[0] == "CPUExecutionProvider"
        return max(1, (os.cpu_count() or 1) // threads) if threads and on_cores else 1

    def embed(self, crops: NDArray[np.uint8] | Sequence[NDArray[np.uint8]]) -> FaceOutputs:
        """Outputs for aligned crops, ``(N, 112, 112, 3) uint8`` RGB or a list of such crops.

        Raises:
            ModelError: crops of another shape or kind.

        Examples:
            >>> import facerts
            >>> from facerts.datasets.synthetic import draw_face
            >>> outputs = facerts.load().embed([draw_face(0, 0), draw_face(0, 1)])
            >>> outputs.embedding.shape, outputs.quality.shape
            ((2, 128), (2,))
        """
        return self.embedder(crops if isinstance(crops, np.ndarray) else np.stack(list(crops)))

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

        Examples:
            >>> import facerts
            >>> round(facerts.load().match_threshold(0.001), 4)
            0.3705
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
    det_threshold: float | None = None,
    resize_crops: bool = False,
    providers: Sequence[str] | None = None,
    threads: int | None = None,
    batch_size: int | None = None,
) -> Scorer:
    """Open a model for scoring.

    Args:
        model: the name of a model that ships, or an .onnx embedder, ours or a foreign one with its description beside
            it; None for the default model.
        detector: "none" where pictures are aligned crops, or "yunet" or "scrfd" for photos.
        detector_model: the detector's file, for SCRFD also a model pack; None for the one that was fetched with
            ``facerts models pull``.
        det_threshold: least score of a face; None for the detector's own.
        resize_crops: without a detector, take squares of any size for aligned crops, and not those of 112 x 112 alone.
        providers: ONNX Runtime's execution providers, for the detector too; None for the CPU.
        threads: of one run of the network or the detector; None leaves ONNX Runtime its choice for the network, and
            gives the detector, which several pictures use at once, one.
        batch_size: crops in a run; None for 16 on the CPU, which gains nothing by more, and 64 elsewhere.

    Raises:
        ModelError: a model is missing or not what it should be.
        Error: options for a detector without one, or for crops with one.

    Examples:
        >>> import facerts
        >>> scorer = facerts.load()
        >>> scorer.embedder.name
        'facerts-small'
        >>> round(scorer.threshold(0.95), 4)
        -0.9823
    """
    if detector == "none":
        for name, value in (("detector_model", detector_model), ("det_threshold", det_threshold)):
            if value is not None:
                raise Error(f"{_option(name)} requires a detector; give {_option('detector')} yunet or scrfd")
    elif resize_crops:
        raise Error(
            f"{_option('resize_crops')} is for aligned crops; with a detector, images are photos of any size"
        )
    path = find_model(model)
    size = batch_size or (CPU_BATCH if list(providers or [CPU]) == [CPU] else BATCH)
    embedder = load_embedder(path, providers=providers, threads=threads, batch_size=size)
    finder = open_detector(
        detector, detector_model, threshold=det_threshold, providers=providers, threads=threads or 1
    )
    return Scorer(embedder, finder, resize_crops=resize_crops)


def _option(name: str) -> str:
    """As both the command line and Python write it."""
    return f"--{name.replace('_', '-')} ({name})"


def _given(image: Image, number: int) -> Picture:
    """A picture that the caller holds, or names."""
    if isinstance(image, str | Path):
        return Picture(str(image), lambda: read(image))
    name = f"picture {number}"
    if isinstance(image, bytes):
        return Picture(name, lambda: decode(image, where=name))
    return Picture(name, lambda: _checked(image, name))


def _checked(image: NDArray[np.uint8], name: str) -> NDArray[np.uint8]:
    if not isinstance(image, np.ndarray):
        raise ImageError(f"{name}: an image must be a path, bytes or an array, not {type(image).__name__}")
    if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8 or 0 in image.shape:
        raise ImageError(f"{name}: an array must be (H, W, 3) uint8 RGB, not {image.shape} {image.dtype}")
    return np.ascontiguousarray(image)
