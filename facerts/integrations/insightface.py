"""A replacement for insightface's ``FaceAnalysis`` with a quality for each face; does not need insightface.

from facerts.integrations.insightface import FaceAnalysis  # instead of: from insightface.app import FaceAnalysis

app = FaceAnalysis()
app.prepare(ctx_id=0)
for face in app.get(cv2.imread("photo.jpg")):
    print(face.bbox, face.quality, face.normed_embedding)

To keep insightface's own models, call ``add_quality`` on the faces that they find.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from facerts.detection import Detection, Detector, open_detector
from facerts.errors import Error, ImageError, ModelError, did_you_mean
from facerts.images.align import align
from facerts.onnx.providers import AUTO, CPU
from facerts.scoring import Face, LazyImage, RowBuilder, Scorer, load
from facerts.scoring.inputs import pixels_problem
from facerts.scoring.pipeline import score_batch
from facerts.scoring.prepare import PreparedImage, prepare
from facerts.scoring.reasons import crop_reasons

BgrImage = NDArray[np.uint8]
Metric = Literal["default", "max"]

# Attributes that come from the crop alone.
CROP_SCORES = ("quality", "percentile", "uncertainty", "accepted", "reasons")
# Weight of the squared distance from the image center against the area of a face, as in insightface.
CENTER_WEIGHT = 2.0


class FaceDict(dict[str, Any]):
    """One face, with values as attributes and as items.

    Unlike in insightface, a missing attribute raises ``AttributeError`` instead of being None.

    Attributes:
        bbox: ``(4,) float32`` left, top, right and bottom in pixels.
        kps: ``(5, 2) float32`` eyes, nose and corners of the mouth in pixels.
        embedding: ``(d,) float32``, not normalized, as in insightface, if the model outputs the norm.
        quality: higher is better; None if the model has no quality.
        percentile: the percentage, 0 to 100, of the faces used for calibration that scored lower; None if the model
            is not calibrated.
        accepted: whether the quality reaches the threshold; None if there is no threshold.
        reasons: what makes the face poor, such as "blurred"; see ``facerts.Row``.
    """

    bbox: NDArray[np.float32]
    kps: NDArray[np.float32]
    det_score: float
    embedding: NDArray[np.float32]
    quality: float | None
    percentile: float | None
    uncertainty: float | None
    accepted: bool | None
    reasons: tuple[str, ...]

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"this face has no {name!r}; it has {', '.join(self)}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    @property
    def embedding_norm(self) -> float:
        """Length of the embedding; 1 if the model does not output the norm."""
        return float(np.linalg.norm(self.embedding))

    @property
    def normed_embedding(self) -> NDArray[np.float32]:
        """``(d,) float32``, unit length."""
        return self.embedding / np.float32(self.embedding_norm)


class FaceAnalysis:
    """Finds, embeds and scores the faces in BGR images.

    Args:
        name: the name of a shipped model, or the path of an .onnx embedder or model pack; None for the default model.
        detector: "yunet", which is downloaded if it is not on this machine, or the path of an .onnx file of YuNet or
            SCRFD, or of a model pack.
        keep: accept faces above the model's threshold that keeps this share of its calibration faces.
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
        self._min_quality, self._keep = min_quality, keep
        self._providers, self._threads, self._batch_size = providers, threads, batch_size
        self._opened: tuple[Scorer, Detector] | None = None

    def prepare(
        self, ctx_id: int = 0, det_thresh: float = 0.5, det_size: tuple[int, int] | None = None
    ) -> None:
        """Open the models.

        Args:
            ctx_id: a negative number forces the CPU, whatever the providers.
            det_size: width and height in pixels that photos are scaled to fit for the detector; None for its default.
        """
        providers = [CPU] if ctx_id < 0 else self._providers or [AUTO]
        size = None if det_size is None else max(det_size)
        detector = open_detector(
            self._detector, threshold=det_thresh, size=size, providers=providers, threads=self._threads
        )
        opened = load(self._name, providers=providers, threads=self._threads, batch_size=self._batch_size)
        self._row_builder(opened)
        self._opened = Scorer(opened.quality, opened.recognizer, detector), detector

    @property
    def scorer(self) -> Scorer:
        """The models, for thresholds and for RGB images."""
        return self._models()[0]

    def get(self, img: BgrImage, max_num: int = 0, det_metric: Metric = "default") -> list[FaceDict]:
        """The faces of an image, largest first, embedded as one batch.

        Args:
            img: ``(H, W, 3) uint8`` BGR, as returned by ``cv2.imread``.
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
    ) -> list[list[FaceDict]]:
        """The faces of each image, see ``get``; crops of several images are embedded as one batch.

        Raises:
            ImageError: one of the images is invalid; the message says which.
            Error: ``prepare`` was not called.
        """
        scorer, detector = self._models()
        scored = scorer.score_lazy(
            (_lazy_image(image, f"image {number}") for number, image in enumerate(images)),
            self._row_builder(scorer),
            detector=_TopFaces(detector, max_num, det_metric),
        )
        return [to_faces(faces) for faces in scored]

    def _row_builder(self, scorer: Scorer) -> RowBuilder:
        return scorer.row_builder(min_quality=self._min_quality, keep=self._keep)

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
    return LazyImage(name, partial(read_bgr, img, name), nbytes=getattr(img, "nbytes", 0))


def add_quality(
    faces: Sequence[Any],
    img: BgrImage,
    scorer: Scorer,
    *,
    min_quality: float | None = None,
    keep: float | None = None,
) -> None:
    """Set ``quality``, ``percentile``, ``uncertainty``, ``accepted`` and ``reasons`` of faces, see ``FaceDict``.

    Reasons are those that the crop shows, not those of the detection. The faces' other attributes do not change.

    Args:
        faces: the faces of one image, with ``kps``, such as those from insightface's ``FaceAnalysis.get``.
        scorer: from ``facerts.load``; its detector is not used.

    Raises:
        ImageError: ``img`` is not such an array.
        ModelError: the model has no quality, or no threshold for ``keep``.
        Error: a face does not have five landmarks.

    Examples:
        >>> from types import SimpleNamespace
        >>> import numpy as np
        >>> import facerts
        >>> from facerts.datasets.synthetic import draw_face
        >>> image = np.pad(draw_face(0, 0), ((60, 60), (60, 60), (0, 0)), mode="edge")[..., ::-1]
        >>> points = np.array([[38.3, 51.7], [73.5, 51.5], [56.0, 71.7], [41.5, 92.4], [70.7, 92.2]]) + 60
        >>> face = SimpleNamespace(kps=points)  # as insightface finds it
        >>> add_quality([face], image, facerts.load(), min_quality=-2)
        >>> face.accepted
        True
    """
    image = read_bgr(img, "img")
    crops = [align(image, _points(face, number)) for number, face in enumerate(faces)]
    row_builder = scorer.row_builder(min_quality=min_quality, keep=keep, embed=False)
    prepared = PreparedImage("img", crops, [None] * len(crops), [crop_reasons(crop) for crop in crops])
    (scored,) = score_batch(row_builder, [prepared])
    for face, entry in zip(faces, scored, strict=False):  # without faces there is one entry that says so
        if entry.row.quality is None:
            raise ModelError(f"{row_builder.model.name} has no quality")
        for name in CROP_SCORES:
            setattr(face, name, getattr(entry.row, name))


def _points(face: Any, number: int) -> NDArray[np.float64]:
    """The landmarks of a face, ``(5, 2)`` in pixels."""
    kps = getattr(face, "kps", None)
    points = np.array([] if kps is None else kps, dtype=np.float64)
    if points.shape != (5, 2) or not np.isfinite(points).all() or not np.ptp(points, axis=0).any():
        raise Error(
            f"face {number} has no five landmarks to align it with (its kps is {kps}); use a detector that returns them"
        )
    return points


def read_bgr(img: BgrImage, name: str) -> NDArray[np.uint8]:
    """``(H, W, 3) uint8`` RGB from BGR.

    Raises:
        ImageError: ``img`` is not a BGR image.
    """
    if img is None:
        raise ImageError(f"{name} is None, which cv2.imread returns for a file that it cannot read")
    if problem := pixels_problem(img):
        raise ImageError(
            f"{name} must be an (H, W, 3) uint8 BGR array as returned by cv2.imread, not {problem}"
        )
    return np.ascontiguousarray(img[..., ::-1])


def to_faces(scored: list[Face]) -> list[FaceDict]:
    """The faces of one scored photo.

    Raises:
        ImageError: the photo could not be read.
    """
    for entry in scored:
        if entry.row.error is not None:
            raise ImageError(entry.row.error)
    return [_face(entry) for entry in scored if entry.row.face is not None]


def _face(entry: Face) -> FaceDict:
    row, unit = entry.row, entry.vector
    assert unit is not None
    return FaceDict(
        bbox=np.array(row.box, dtype=np.float32),
        kps=np.array(row.points, dtype=np.float32).reshape(5, 2),
        det_score=row.det_score,
        embedding=unit if entry.norm is None else unit * np.float32(entry.norm),
        **{name: getattr(row, name) for name in CROP_SCORES},
    )
