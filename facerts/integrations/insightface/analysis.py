"""Photos to faces, by the calls that insightface's users know."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from facerts.detection import Detection, Detector, open_detector
from facerts.errors import Error, did_you_mean
from facerts.integrations.insightface.face import Face, Image, faces_of, read_bgr
from facerts.onnx.session import CPU
from facerts.scoring import Picture, RowBuilder, Scorer, load, score_images
from facerts.scoring.pipeline import score_batch
from facerts.scoring.prepare import prepare

Metric = Literal["default", "max"]

# How many square pixels of a face's size a square pixel of its distance from the middle of the picture outweighs.
NEARNESS = 2.0


class FaceAnalysis:
    """Finds, embeds and scores the faces of BGR pictures.

    Args:
        name: of a model that ships, or the path of an .onnx embedder or model pack; None for the default model.
        detector: "yunet" or "scrfd".
        detector_model: the detector's file, for SCRFD also a model pack; None for the one that was fetched with
            ``facerts models pull``.
        min_quality: faces at or above it are accepted.
        keep: accept as the model's own threshold for this share of faces does.
        providers: ONNX Runtime's execution providers by name, in order of preference; None for the CPU.
        threads: of one run of a network.
        batch_size: crops in a run.
    """

    def __init__(
        self,
        name: str | Path | None = None,
        *,
        detector: str = "yunet",
        detector_model: str | Path | None = None,
        min_quality: float | None = None,
        keep: float | None = None,
        providers: Sequence[str] | None = None,
        threads: int | None = None,
        batch_size: int = 64,
    ) -> None:
        self._name = name
        self._detector = detector, detector_model
        self._threshold = {"min_quality": min_quality, "keep": keep}
        self._providers, self._threads, self._batch_size = providers, threads, batch_size
        self._opened: tuple[Scorer, Detector] | None = None

    def prepare(
        self, ctx_id: int = 0, det_thresh: float = 0.5, det_size: tuple[int, int] | None = None
    ) -> None:
        """Open the models.

        Args:
            ctx_id: negative for the CPU, whatever the providers.
            det_thresh: least score of a face.
            det_size: width and height that photos are fitted into for the detector; None for the detector's own.

        Raises:
            Error: there is no such detector, a model is missing or not what it should be, or the model has no
                threshold for the share of faces to keep.
        """
        providers = [CPU] if ctx_id < 0 else self._providers
        kind, file = self._detector
        size = None if det_size is None else max(det_size)
        detector = open_detector(
            kind, file, threshold=det_thresh, size=size, providers=providers, threads=self._threads
        )
        if detector is None:
            raise Error(
                "FaceAnalysis finds faces in photos, so it needs a detector; score crops with facerts.load"
            )
        opened = load(self._name, providers=providers, threads=self._threads, batch_size=self._batch_size)
        opened.judge(**self._threshold)
        self._opened = Scorer(opened.embedder, detector), detector

    @property
    def scorer(self) -> Scorer:
        """The models, for thresholds and for pictures in RGB.

        Raises:
            Error: ``prepare`` was not called.
        """
        return self._models()[0]

    def get(self, img: Image, max_num: int = 0, det_metric: Metric = "default") -> list[Face]:
        """The faces of a picture, the largest first; their crops are embedded together.

        Args:
            img: ``(H, W, 3) uint8`` BGR, as ``cv2.imread`` gives it.
            max_num: of more faces than these leave some out; 0 for all.
            det_metric: which: by "default" those that are large and near the middle stay, the best first, by "max" the
                largest.

        Raises:
            ImageError: not such a picture.
            Error: ``prepare`` was not called.
        """
        scorer, detector = self._models()
        # Here and not in the threads of `score_images`, by which one picture alone gains nothing.
        picture = prepare(_picture(img, "img"), _Chosen(detector, max_num, det_metric))
        (scored,) = score_batch(self._judge(scorer), [picture])
        return faces_of(scored)

    def get_many(
        self, images: Iterable[Image], max_num: int = 0, det_metric: Metric = "default"
    ) -> list[list[Face]]:
        """The faces of each of many pictures, see ``get``; crops of several pictures are embedded together.

        Raises:
            ImageError: one is no such picture; the message says which.
            Error: ``prepare`` was not called.
        """
        scorer, detector = self._models()
        scored = score_images(
            self._judge(scorer),
            (_picture(image, f"image {number}") for number, image in enumerate(images)),
            detector=_Chosen(detector, max_num, det_metric),
            batch_size=scorer.embedder.batch_size,
            runs=scorer.runs,
        )
        return [faces_of(faces) for faces in scored]

    def _judge(self, scorer: Scorer) -> RowBuilder:
        return scorer.judge(**self._threshold)

    def _models(self) -> tuple[Scorer, Detector]:
        if self._opened is None:
            raise Error("the models are not open yet; call prepare() first")
        return self._opened


class _Chosen:
    """A detector's faces, or the most important of them."""

    def __init__(self, detector: Detector, number: int, metric: Metric) -> None:
        if metric not in get_args(Metric):
            known = get_args(Metric)
            raise Error(
                f"no det_metric {metric!r}{did_you_mean(metric, known)}; there are {', '.join(known)}"
            )
        self.identity = f"{detector.identity}, {number} by {metric}"
        self._detector, self._number, self._metric = detector, number, metric

    def __call__(self, image: Image) -> list[Detection]:
        faces = self._detector(image)
        if not 0 < self._number < len(faces):
            return faces
        middle = np.array(image.shape[1::-1]) / 2

        def importance(face: Detection) -> float:
            away = (face.box[:2] + face.box[2:]) / 2 - middle
            return face.area - (NEARNESS * float(away @ away) if self._metric == "default" else 0.0)

        return sorted(faces, key=importance, reverse=True)[: self._number]


def _picture(img: Image, name: str) -> Picture:
    return Picture(name, partial(read_bgr, img, name))
