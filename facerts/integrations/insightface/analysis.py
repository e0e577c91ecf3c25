"""Faces in photos, with the interface of insightface's ``FaceAnalysis``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from facerts.detection import Detection, Detector, open_detector
from facerts.errors import Error, did_you_mean
from facerts.integrations.insightface.face import BgrImage, Face, read_bgr, to_faces
from facerts.onnx.session import CPU
from facerts.scoring import LazyImage, RowBuilder, Scorer, load, score_images
from facerts.scoring.pipeline import score_batch
from facerts.scoring.prepare import prepare

Metric = Literal["default", "max"]

# Weight of the squared distance from the image center against the area of a face, as in insightface.
CENTER_WEIGHT = 2.0


class FaceAnalysis:
    """Finds, embeds and scores the faces in BGR images.

    Args:
        name: the name of a shipped model, or the path of an .onnx embedder or model pack; None for the default model.
        detector: "yunet", which is downloaded if it is not on this machine, or the path of an .onnx file of YuNet or
            SCRFD, or of a model pack.
        min_quality: accept faces with at least this quality.
        keep: accept faces above the model's threshold that keeps this share of its calibration faces.
        providers: names of ONNX Runtime execution providers, in order of preference; None for the CPU.
        threads: threads per batch; None leaves the choice to ONNX Runtime.
        batch_size: crops per batch.
    """

    def __init__(
        self,
        name: str | Path | None = None,
        *,
        detector: str | Path = "yunet",
        min_quality: float | None = None,
        keep: float | None = None,
        providers: Sequence[str] | None = None,
        threads: int | None = None,
        batch_size: int = 64,
    ) -> None:
        self._name = name
        self._detector = detector
        self._threshold = {"min_quality": min_quality, "keep": keep}
        self._providers, self._threads, self._batch_size = providers, threads, batch_size
        self._opened: tuple[Scorer, Detector] | None = None

    def prepare(
        self, ctx_id: int = 0, det_thresh: float = 0.5, det_size: tuple[int, int] | None = None
    ) -> None:
        """Open the models.

        Args:
            ctx_id: a negative number forces the CPU, whatever the providers.
            det_thresh: minimum detector score of a face, 0 to 1.
            det_size: width and height in pixels that photos are scaled to fit for the detector; None for its default.

        Raises:
            Error: the detector is unknown, a model is missing or invalid, or the model has no threshold for ``keep``.
        """
        providers = [CPU] if ctx_id < 0 else self._providers
        size = None if det_size is None else max(det_size)
        detector = open_detector(
            self._detector, threshold=det_thresh, size=size, providers=providers, threads=self._threads
        )
        opened = load(self._name, providers=providers, threads=self._threads, batch_size=self._batch_size)
        opened.row_builder(**self._threshold)
        self._opened = Scorer(opened.embedder, detector), detector

    @property
    def scorer(self) -> Scorer:
        """The models, for thresholds and for RGB images.

        Raises:
            Error: ``prepare`` was not called.
        """
        return self._models()[0]

    def get(self, img: BgrImage, max_num: int = 0, det_metric: Metric = "default") -> list[Face]:
        """The faces of an image, largest first, embedded as one batch.

        Args:
            img: ``(H, W, 3) uint8`` BGR, as returned by ``cv2.imread``.
            max_num: maximum number of faces; 0 for all.
            det_metric: which faces to keep: "default" prefers large faces near the center, best first; "max" keeps the
                largest.

        Raises:
            ImageError: ``img`` is not such an array.
            Error: ``prepare`` was not called.
        """
        scorer, detector = self._models()
        # The threads of `score_images` would not speed up a single image.
        prepared = prepare(_lazy_image(img, "img"), _TopFaces(detector, max_num, det_metric))
        (scored,) = score_batch(self._row_builder(scorer), [prepared])
        return to_faces(scored)

    def get_many(
        self, images: Iterable[BgrImage], max_num: int = 0, det_metric: Metric = "default"
    ) -> list[list[Face]]:
        """The faces of each image, see ``get``; crops of several images are embedded as one batch.

        Raises:
            ImageError: one of the images is invalid; the message says which.
            Error: ``prepare`` was not called.
        """
        scorer, detector = self._models()
        scored = score_images(
            self._row_builder(scorer),
            (_lazy_image(image, f"image {number}") for number, image in enumerate(images)),
            detector=_TopFaces(detector, max_num, det_metric),
            batch_size=scorer.embedder.batch_size,
            parallel_batches=scorer.parallel_batches,
        )
        return [to_faces(faces) for faces in scored]

    def _row_builder(self, scorer: Scorer) -> RowBuilder:
        return scorer.row_builder(**self._threshold)

    def _models(self) -> tuple[Scorer, Detector]:
        if self._opened is None:
            raise Error("the models are not open yet; call prepare() first")
        return self._opened


class _TopFaces:
    """A detector that returns at most a number of faces, chosen by a metric."""

    def __init__(self, detector: Detector, max_faces: int, metric: Metric) -> None:
        if metric not in get_args(Metric):
            known = get_args(Metric)
            raise Error(
                f"unknown det_metric {metric!r}{did_you_mean(metric, known)}; choose one of {', '.join(known)}"
            )
        self.identity = f"{detector.identity}, {max_faces} by {metric}"
        self._detector, self._max_faces, self._metric = detector, max_faces, metric

    def __call__(self, image: NDArray[np.uint8]) -> list[Detection]:
        faces = self._detector(image)
        if not 0 < self._max_faces < len(faces):
            return faces
        center = np.array(image.shape[1::-1]) / 2

        def importance(face: Detection) -> float:
            offset = (face.box[:2] + face.box[2:]) / 2 - center
            return face.area - (CENTER_WEIGHT * float(offset @ offset) if self._metric == "default" else 0.0)

        return sorted(faces, key=importance, reverse=True)[: self._max_faces]


def _lazy_image(img: BgrImage, name: str) -> LazyImage:
    return LazyImage(name, partial(read_bgr, img, name))
