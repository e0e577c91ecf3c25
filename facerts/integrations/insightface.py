"""A replacement for insightface's ``FaceAnalysis`` with a quality for each face; does not need insightface.

from facerts.integrations.insightface import FaceAnalysis  # instead of: from insightface.app import FaceAnalysis

app = FaceAnalysis("buffalo_l", providers=["CUDAExecutionProvider", "CPUExecutionProvider"])
app.prepare(ctx_id=0, det_size=(640, 640))
for face in app.get(cv2.imread("photo.jpg")):
    print(face.bbox, face.quality, face.normed_embedding)

To keep insightface's own models, call ``add_quality`` on the faces that they find.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import cv2
import numpy as np
from numpy.typing import NDArray

from facerts.detection import DEFAULT_DETECTOR, Detection, DetSize, FaceFinder, open_detector
from facerts.errors import Error, ImageError, ModelError
from facerts.images.align import align
from facerts.onnx.model_pack import NotInPackError, is_pack
from facerts.onnx.providers import AUTO, CPU
from facerts.scoring import Face, LazyImage, Row, Scorer, annotate, load
from facerts.scoring.inputs import lazy_input
from facerts.scoring.pipeline import score_batch
from facerts.scoring.prepare import PreparedImage
from facerts.scoring.reasons import NO_FACE, crop_reasons
from facerts.scoring.scorer import Keep

BgrImage = NDArray[np.uint8]
Metric = Literal["default", "max"]

# Attributes that come from the crop alone.
CROP_SCORES = ("quality", "percentile", "uncertainty", "accepted", "verdict", "reasons")
# Weight of the squared distance from the image center against the area of a face, as in insightface.
CENTER_WEIGHT = 2.0


class FaceDict(dict[str, object]):
    """One face, with values as attributes and as items.

    Unlike in insightface, a missing attribute raises ``AttributeError`` instead of being None.

    Attributes:
        bbox: ``(4,) float32`` left, top, right and bottom in pixels.
        kps: ``(5, 2) float32`` eyes, nose and corners of the mouth in pixels.
        embedding: ``(d,) float32``, not normalized, as in insightface, if the model outputs the norm; absent where
            faces are not embedded.
        quality: higher is better; None if the model has no quality.
        percentile: the percentage, 0 to 100, of the faces used for calibration that scored lower; None if the model
            is not calibrated.
        accepted: whether the quality reaches the threshold; None if there is no threshold.
        verdict: "good", "usable", "poor" or "not a face"; None if the model is not calibrated.
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
    verdict: str | None
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
        name: a model pack: its folder or .zip, its folder below ``root/models``, or its name, by which it is pulled;
            or any other recognizer, see ``facerts.load``; None for the default one.
        root: where insightface keeps its packs.
        allowed_modules: without "recognition", faces are not embedded; None for everything.
        providers: names, of which the first that starts is used, or else the CPU; None for the fastest.
        detector: "yunet", or an .onnx file of YuNet or SCRFD, or a model pack; None for the one of the pack, or YuNet
            if it has none, and where ``name`` is no file or folder.
        keep: accept faces above the threshold that keeps this share of the calibration faces, see ``Scorer.score``.
    """

    def __init__(
        self,
        name: str | Path | None = None,
        root: str | Path = "~/.insightface",
        allowed_modules: Collection[str] | None = None,
        *,
        providers: Sequence[str] | None = None,
        detector: str | Path | None = None,
        min_quality: float | None = None,
        keep: Keep = None,
        threads: int | None = None,
        batch_size: int | None = None,
    ) -> None:
        if not all(isinstance(provider, str) for provider in providers or []):
            raise Error(f"providers are given by name, without options, not {providers}")
        modules = {"detection", "recognition"} if allowed_modules is None else set(allowed_modules)
        if "detection" not in modules:
            raise Error(f"allowed_modules must contain 'detection', but is {allowed_modules}")
        self._model = _find(name, Path(root))
        self._detector = detector
        self._min_quality, self._keep = min_quality, keep
        self._embed = "recognition" in modules
        self._providers, self._threads, self._batch_size = providers or [], threads, batch_size
        self._scorer: Scorer | None = None

    def prepare(self, ctx_id: int = 0, det_thresh: float = 0.5, det_size: tuple[int, int] | None = None) -> None:
        """Open the models; a negative ``ctx_id`` forces the CPU, whatever the providers.

        Photos are scaled to fit ``det_size``, width and height in pixels, for the detector; None for its default.
        """
        providers = [CPU] if ctx_id < 0 else [AUTO, *self._providers]
        size: DetSize = "auto" if det_size is None else max(det_size)
        threads, batch_size = self._threads, self._batch_size
        scorer = load(
            recognizer=self._model,
            detector="none",
            providers=providers,
            threads=threads,
            batch_size=batch_size,
        )
        find = partial(open_detector, threshold=det_thresh, size=size, providers=providers, threads=threads)
        own = self._model if isinstance(self._model, Path) and is_pack(self._model) else None
        try:
            scorer.detector = find(self._detector or own or DEFAULT_DETECTOR)
        except NotInPackError:
            if self._detector is not None:
                raise
            scorer.detector = find(DEFAULT_DETECTOR)
        self._row_builder = scorer.row_builder(scorer.min_quality(self._min_quality, self._keep), embed=self._embed)
        _ = scorer.model(embed=self._embed).models  # opens them
        self._scorer = scorer

    @property
    def scorer(self) -> Scorer:
        """The models, for thresholds and for RGB images; ``prepare`` opens them."""
        if self._scorer is None:
            raise Error("the models are not open yet; call prepare() first")
        return self._scorer

    def get(self, img: BgrImage, max_num: int = 0, det_metric: Metric = "default") -> list[FaceDict]:
        """The faces of an image, largest first, embedded as one batch.

        Args:
            img: ``(H, W, 3) uint8`` BGR, as returned by ``cv2.imread``.
            det_metric: which faces to keep: "default" prefers large faces near the center, best first; "max" keeps the
                largest.
        """
        return self.get_many([img], max_num, det_metric)[0]

    def get_many(
        self, images: Iterable[BgrImage], max_num: int = 0, det_metric: Metric = "default"
    ) -> list[list[FaceDict]]:
        """The faces of each image, see ``get``; crops of several images are embedded as one batch."""
        scorer = self.scorer
        assert scorer.detector is not None
        found = scorer.score_lazy(
            (_lazy(image, f"image {number}") for number, image in enumerate(images)),
            self._row_builder,
            detector=_TopFaces(scorer.detector, max_num, det_metric),
        )
        return [[_face(entry) for entry in scored if NO_FACE not in entry.row.reasons] for scored in found]

    def draw_on(self, img: BgrImage, faces: Sequence[Any]) -> BgrImage:
        """A copy of an image with its faces drawn in, as ``facerts.annotate`` does it, BGR and of the same size."""
        scores = ("quality", "percentile", "accepted", "reasons")
        rows = [
            Row(
                "",
                box=list(face.bbox),
                points=None if face.kps is None else list(np.ravel(face.kps)),
                **{name: value for name in scores if (value := getattr(face, name, None)) is not None},
            )
            for face in faces
        ]
        drawn = cv2.resize(annotate(img, rows, color="BGR"), img.shape[1::-1], interpolation=cv2.INTER_AREA)
        return np.ascontiguousarray(drawn[..., ::-1], dtype=np.uint8)


def _find(name: str | Path | None, root: Path) -> str | Path | None:
    """A folder or file of this name, or else the folder that insightface would use, or else the name itself."""
    if name is None:
        return None
    spelled = (str(name), str(name).replace("-", "_"), str(name).replace("_", "-"))
    places = [Path(name), *(root / "models" / each for each in spelled)]
    return next((place.expanduser() for place in places if place.expanduser().exists()), name)


class _TopFaces:
    """A detector that returns at most a number of faces, chosen by a metric."""

    def __init__(self, detector: FaceFinder, max_faces: int, metric: Metric) -> None:
        if metric not in (known := get_args(Metric)):
            raise Error(f"unknown det_metric {metric!r}; choose one of {', '.join(known)}")
        self.identity = f"{detector.identity}, {max_faces} by {metric}"
        self._detector, self._max_faces, self._metric = detector, max_faces, metric

    def __call__(self, image: NDArray[np.uint8]) -> list[Detection]:
        faces = self._detector(image) or []
        if not 0 < self._max_faces < len(faces):
            return faces
        center = np.array(image.shape[1::-1]) / 2

        def importance(face: Detection) -> float:
            offset = (face.box[:2] + face.box[2:]) / 2 - center
            return face.area - (CENTER_WEIGHT * float(offset @ offset) if self._metric == "default" else 0.0)

        return sorted(faces, key=importance, reverse=True)[: self._max_faces]


def add_quality(
    faces: Sequence[Any],
    img: BgrImage,
    scorer: Scorer,
    *,
    min_quality: float | None = None,
    keep: Keep = None,
) -> None:
    """Set what ``CROP_SCORES`` names as attributes of faces, see ``FaceDict``.

    Reasons are those that the crop shows, not those of the detection. The faces' other attributes do not change.

    Args:
        faces: the faces of one image, with ``kps``, such as those from insightface's ``FaceAnalysis.get``.
        scorer: from ``facerts.load``; its detector is not used.

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
    image = _lazy(img, "img").load()
    crops = [align(image, _points(face, number)) for number, face in enumerate(faces)]
    row_builder = scorer.row_builder(scorer.min_quality(min_quality, keep), embed=False)
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


def _lazy(img: BgrImage, name: str) -> LazyImage:
    return replace(lazy_input(img, name, "BGR"), nbytes=getattr(img, "nbytes", 0))


def _face(entry: Face) -> FaceDict:
    row = entry.row
    if row.error is not None:
        raise ImageError(row.error)
    face = FaceDict(
        bbox=np.array(row.box, np.float32),
        kps=np.array(row.points, np.float32).reshape(5, 2),
        det_score=row.det_score,
    )
    if entry.vector is not None:
        face.embedding = entry.vector * np.float32(1 if entry.norm is None else entry.norm)
    face.update((name, getattr(row, name)) for name in CROP_SCORES)
    return face
