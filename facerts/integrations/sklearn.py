"""Face embeddings as a step of a scikit-learn pipeline.

from facerts.integrations.sklearn import FaceEmbedder

people = make_pipeline(FaceEmbedder(), KNeighborsClassifier(1, metric="cosine"))
people.fit(paths, names).predict(others)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from facerts.embedding import FaceOutputs
from facerts.errors import Error, ImageError, ModelError, did_you_mean, importing
from facerts.images import CROP_SIZE, pixels_problem
from facerts.scoring import LazyImage, Scorer, load
from facerts.scoring.inputs import is_pil, lazy_input
from facerts.scoring.reasons import in_words

with importing("facerts.integrations.sklearn needs scikit-learn", "use"):
    from sklearn.base import BaseEstimator, TransformerMixin

ImageInputs = Sequence[str | Path | bytes | NDArray[np.uint8]] | NDArray[Any]
Quality = Literal["ignore", "column"]
Unreadable = Literal["error", "nan"]

CHOICES = {"quality": get_args(Quality), "unreadable": get_args(Unreadable)}
# Parameters of `facerts.load`.
LOAD_PARAMETERS = ("model", "detector", "providers", "threads", "batch_size")


class FaceEmbedder(TransformerMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A transformer from images of faces to embeddings; see ``facerts.load`` for the model.

    There is nothing to fit: ``fit`` only opens the model. A pipeline needs a row for each image, so no image is
    dropped; use ``score_samples`` to choose which images to leave out beforehand. Pickling stores only the parameters;
    each process opens the model for itself.

    Args:
        detector: "auto" for aligned crops of 112 x 112 and photos, of which the largest face is embedded; "yunet",
            or a detector's file, for photos; "none" for aligned crops.
        quality: "ignore", or "column" to append the quality as the last column.
        unreadable: the result for an image that cannot be read or has no face: an "error", or a row of "nan".

    Examples:
        >>> from facerts.datasets.synthetic import draw_face
        >>> from sklearn.neighbors import KNeighborsClassifier
        >>> from sklearn.pipeline import make_pipeline
        >>> faces = [draw_face(person, number) for person in range(2) for number in range(3)]
        >>> people = make_pipeline(FaceEmbedder(), KNeighborsClassifier(1, metric="cosine"))
        >>> people.fit(faces, ["ann"] * 3 + ["bob"] * 3).predict(faces).tolist()
        ['ann', 'ann', 'ann', 'bob', 'bob', 'bob']
    """

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        detector: str | Path = "auto",
        quality: Quality = "ignore",
        unreadable: Unreadable = "error",
        providers: Sequence[str] | None = None,
        threads: int | None = None,
        batch_size: int = 64,
    ) -> None:
        self.model = model
        self.detector = detector
        self.quality = quality
        self.unreadable = unreadable
        self.providers = providers
        self.threads = threads
        self.batch_size = batch_size

    def fit(self, X: ImageInputs, y: object = None) -> FaceEmbedder:  # noqa: N803
        """Check the parameters and open the model."""
        self._check()
        return self

    def transform(self, X: ImageInputs) -> NDArray[np.float32]:  # noqa: N803
        """Embeddings, with the quality as last column if ``quality="column"``.

        Args:
            X: paths, encoded bytes, PIL images or ``(H, W, 3) uint8`` RGB arrays; or ``(N, H, W, 3)``.

        Returns:
            ``(N, d) float32`` of unit length, or ``(N, d + 1)``.

        Raises:
            ImageError: an image cannot be read or has no face, and ``unreadable="error"``.
        """
        embedding, quality = self._embed(X)
        return np.column_stack([embedding, quality]) if self.quality == "column" else embedding

    def score_samples(self, X: ImageInputs) -> NDArray[np.float32]:  # noqa: N803
        """``(N,) float32`` quality of images, higher is better; see ``transform``."""
        self._has_quality(self._check())
        return self._embed(X)[1]

    def get_feature_names_out(self, input_features: object = None) -> NDArray[np.object_]:
        """The ``(d,)`` or ``(d + 1,)`` names of the columns."""
        names = [f"embedding{number}" for number in range(self._check().embedding.shape[1])]
        return np.array([*names, "quality"] if self.quality == "column" else names, dtype=object)

    @property
    def scorer(self) -> Scorer:
        """The model, opened on first use; its ``threshold`` gives a minimum quality."""
        settings = {name: getattr(self, name) for name in LOAD_PARAMETERS}
        opened: tuple[dict[str, object], Scorer] | None = getattr(self, "_opened", None)
        if opened is None or opened[0] != settings:
            opened = self._opened = settings, load(**settings)
        return opened[1]

    def _check(self) -> FaceOutputs:
        """Check the parameters; returns the outputs for an empty batch, for their shapes."""
        for name, values in CHOICES.items():
            value = getattr(self, name)
            if value not in values:
                hint = did_you_mean(str(value), values)
                raise Error(f"{name} cannot be {value!r}{hint}; choose one of {', '.join(values)}")
        outputs = self.scorer.model()(np.empty((0, CROP_SIZE, CROP_SIZE, 3), dtype=np.uint8))
        if self.quality == "column":
            self._has_quality(outputs)
        return outputs

    def _has_quality(self, outputs: FaceOutputs) -> None:
        if outputs.quality is None:
            raise ModelError(f"{self.scorer.model().name} has no quality")

    def _embed(self, images: ImageInputs) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Embeddings and qualities; NaN for images without a face."""
        empty = self._check().embedding
        scorer = self.scorer
        scored = scorer.score_lazy(_lazy_images(images), scorer.row_builder(scorer.min_quality()), largest=True)
        embedding, quality = [], []
        for (entry,) in scored:
            row = entry.row
            if entry.vector is None and self.unreadable == "error":
                reason = row.error or f"{row.path}: {in_words(row.reasons)}"
                raise ImageError(f"{reason}; leave it out, or set unreadable='nan' for a row of NaN")
            missing = np.full(empty.shape[1], np.nan, dtype=np.float32)
            embedding.append(missing if entry.vector is None else entry.vector)
            quality.append(np.nan if row.quality is None else row.quality)
        return np.stack(embedding) if embedding else empty, np.array(quality, dtype=np.float32)

    def __getstate__(self) -> dict[str, object]:
        # An ONNX Runtime session cannot be pickled.
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


def _lazy_images(images: ImageInputs) -> Iterator[LazyImage]:
    """The images, loaded when they are needed; whether one can be read shows then."""
    if isinstance(images, str | Path | bytes) or is_pil(images) or getattr(images, "ndim", 1) not in (1, 4):
        what = f"of shape {images.shape}" if hasattr(images, "shape") else repr(images)[:100]
        raise Error(f"images must be a list or column of paths, bytes or (H, W, 3) arrays, or (N, H, W, 3), not {what}")
    for number, image in enumerate(images):
        problem = pixels_problem(image)
        if problem and not (isinstance(image, str | Path | bytes) or is_pil(image)):
            raise Error(
                f"image {number} must be a path, encoded bytes or an (H, W, 3) uint8 RGB array from 0 to 255, "
                f"not {problem}"
            )
        yield lazy_input(image, f"image {number}")
