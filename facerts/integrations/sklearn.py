"""Face embeddings as a step of scikit-learn's pipelines.

from facerts.integrations.sklearn import FaceEmbedder

people = make_pipeline(FaceEmbedder(), KNeighborsClassifier(1, metric="cosine"))
people.fit(paths, names).predict(others)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from facerts.embedding import FaceOutputs
from facerts.errors import Error, ImageError, MissingExtraError, ModelError, did_you_mean
from facerts.images import CROP_SIZE, decode, read
from facerts.scoring import Picture, Scorer, load, score_images

try:
    from sklearn.base import BaseEstimator, TransformerMixin
except ImportError as error:
    raise MissingExtraError(
        "facerts.integrations.sklearn needs scikit-learn: pip install 'facerts[sklearn]'"
    ) from error

Pictures = Sequence[str | Path | bytes | NDArray[np.uint8]] | NDArray[Any]
Quality = Literal["ignore", "column"]
Unreadable = Literal["error", "nan"]

CHOICES = {"quality": get_args(Quality), "unreadable": get_args(Unreadable)}
# Settings that the model is opened with.
OPENING = ("model", "detector", "detector_model", "resize_crops", "providers", "threads", "batch_size")


class FaceEmbedder(TransformerMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Pictures of faces to embeddings; see ``facerts.load`` for the model.

    There is nothing to learn: ``fit`` only opens the model. A pipeline has a row for each picture, so none is dropped
    here; ``score_samples`` tells which ones to leave out beforehand. What is pickled or sent to other processes is the
    settings; each process opens the model for itself.

    Args:
        model: name or path of the model; None for the default model.
        detector: "none" where pictures are aligned crops; "yunet" or "scrfd" for photos, whose largest face counts.
        detector_model: the detector's file; None for the one that was fetched with ``facerts models pull``.
        resize_crops: without a detector, take squares of any size for aligned crops, and not those of 112 x 112 alone.
        quality: "ignore", or "column" to have it as the last column beside the embedding.
        unreadable: what a picture that cannot be read, or has no face, gives: an "error", or a row of "nan".
        providers: ONNX Runtime's execution providers by name; None for the CPU.
        threads: of one run of the network.
        batch_size: crops in a run.

    Examples:
        >>> from facerts.datasets.synthetic import draw_face
        >>> from sklearn.neighbors import KNeighborsClassifier
        >>> from sklearn.pipeline import make_pipeline
        >>> faces = [draw_face(person, picture) for person in range(2) for picture in range(3)]
        >>> people = make_pipeline(FaceEmbedder(), KNeighborsClassifier(1, metric="cosine"))
        >>> people.fit(faces, ["ann"] * 3 + ["bob"] * 3).predict(faces).tolist()
        ['ann', 'ann', 'ann', 'bob', 'bob', 'bob']
    """

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        detector: str = "none",
        detector_model: str | Path | None = None,
        resize_crops: bool = False,
        quality: Quality = "ignore",
        unreadable: Unreadable = "error",
        providers: Sequence[str] | None = None,
        threads: int | None = None,
        batch_size: int = 64,
    ) -> None:
        self.model = model
        self.detector = detector
        self.detector_model = detector_model
        self.resize_crops = resize_crops
        self.quality = quality
        self.unreadable = unreadable
        self.providers = providers
        self.threads = threads
        self.batch_size = batch_size

    def fit(self, X: Pictures, y: object = None) -> FaceEmbedder:  # noqa: N803
        """Check the settings and open the model.

        Raises:
            Error: a setting has no such value, or the model cannot be opened or has no quality for a column.
        """
        self._check()
        return self

    def transform(self, X: Pictures) -> NDArray[np.float32]:  # noqa: N803
        """Embeddings, and quality where it is a column.

        Args:
            X: paths, encoded bytes or ``(H, W, 3) uint8`` RGB arrays; or ``(N, H, W, 3)``.

        Returns:
            ``(N, d) float32`` of unit length, or ``(N, d + 1)``.

        Raises:
            ImageError: a picture cannot be read or has no face, and that is an error.
            Error: ``X`` is no list of pictures, or as in ``fit``.
        """
        embedding, quality = self._embed(X)
        return np.column_stack([embedding, quality]) if self.quality == "column" else embedding

    def score_samples(self, X: Pictures) -> NDArray[np.float32]:  # noqa: N803
        """``(N,) float32`` quality of pictures, higher is better; see ``transform``.

        Raises:
            ModelError: the model has no quality.
        """
        self._has_quality(self._check())
        return self._embed(X)[1]

    def get_feature_names_out(self, input_features: object = None) -> NDArray[np.object_]:
        """``(d,)`` or ``(d + 1,)`` names of the columns."""
        names = [f"embedding{number}" for number in range(self._check().embedding.shape[1])]
        return np.array([*names, "quality"] if self.quality == "column" else names, dtype=object)

    @property
    def scorer(self) -> Scorer:
        """The model, opened when it is first asked for; its ``threshold`` tells which quality to demand."""
        settings = {name: getattr(self, name) for name in OPENING}
        opened: tuple[dict[str, Any], Scorer] | None = getattr(self, "_opened", None)
        if opened is None or opened[0] != settings:
            opened = self._opened = settings, load(**settings)
        return opened[1]

    def _check(self) -> FaceOutputs:
        """Hold the settings against what there is; gives the outputs for no pictures, which tell their shapes."""
        for name, values in CHOICES.items():
            given = getattr(self, name)
            if given not in values:
                near = did_you_mean(str(given), values)
                raise Error(f"{name} cannot be {given!r}{near}; it is one of {', '.join(values)}")
        outputs = self.scorer.embed(np.empty((0, CROP_SIZE, CROP_SIZE, 3), dtype=np.uint8))
        if self.quality == "column":
            self._has_quality(outputs)
        return outputs

    def _has_quality(self, outputs: FaceOutputs) -> None:
        if outputs.quality is None:
            raise ModelError(f"{self.scorer.embedder.name} has no quality to give")

    def _embed(self, pictures: Pictures) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Embeddings and qualities; NaN where there is none."""
        nothing = self._check().embedding
        scorer = self.scorer
        scored = score_images(
            scorer.judge(),
            _listed(pictures),
            detector=scorer.detector,
            largest=True,
            resize_crops=scorer.resize_crops,
            batch_size=scorer.embedder.batch_size,
            runs=scorer.runs,
        )
        embedding, quality = [], []
        for (entry,) in scored:
            row = entry.row
            if entry.embedding is None and self.unreadable == "error":
                why = row.error or f"{row.path}: {row.reason}"
                raise ImageError(f"{why}; leave it out, or set unreadable='nan' for a row of NaN")
            empty = np.full(nothing.shape[1], np.nan, dtype=np.float32)
            embedding.append(empty if entry.embedding is None else entry.embedding)
            quality.append(np.nan if row.quality is None else row.quality)
        return np.stack(embedding) if embedding else nothing, np.array(quality, dtype=np.float32)

    def __getstate__(self) -> dict[str, Any]:
        # A session of ONNX Runtime cannot be pickled.
        return {name: value for name, value in super().__getstate__().items() if name != "_opened"}

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.no_validation = True
        tags.input_tags.one_d_array = tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        tags.transformer_tags.preserves_dtype = []
        return tags


def _listed(pictures: Pictures) -> Iterator[Picture]:
    """
    Raises:
        Error: not a list of pictures.
    """
    if isinstance(pictures, str | Path | bytes) or getattr(pictures, "ndim", 1) not in (1, 4):
        what = f"of shape {pictures.shape}" if hasattr(pictures, "shape") else repr(pictures)[:100]
        raise Error(
            f"pictures are a list or column of paths, bytes and (H, W, 3) arrays, or (N, H, W, 3), not {what}"
        )
    for number, image in enumerate(pictures):
        yield _picture(image, f"picture {number}")


def _picture(image: str | Path | bytes | NDArray[np.uint8], name: str) -> Picture:
    """
    Raises:
        Error: none of these; what cannot be read turns out later.
    """
    if isinstance(image, str | Path):
        return Picture(str(image), partial(read, image))
    if isinstance(image, bytes):
        return Picture(name, partial(decode, image, where=name))
    array = isinstance(image, np.ndarray)
    if not array or image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8 or 0 in image.shape:
        what = f"{image.shape} {image.dtype}" if array else type(image).__name__
        raise Error(
            f"{name} must be a path, encoded bytes or an (H, W, 3) uint8 RGB array from 0 to 255, not {what}"
        )
    return Picture(name, partial(np.ascontiguousarray, image))
