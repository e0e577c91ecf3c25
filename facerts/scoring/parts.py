"""A quality and a recognizer: models by name or file, opened when they are first used, alone or together."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from facerts.embedding import Embedder, FaceOutputs, OnnxModel, OnnxQuality, load_embedder
from facerts.embedding.onnx_embedder import load_model, outputs_of_crops
from facerts.errors import ModelError, check_kind
from facerts.hub.find import check_name, default_quality, find_or_pull
from facerts.onnx.contract import Calibration, Description, Matching, MatchThreshold
from facerts.onnx.providers import AUTO, CORES, Runtime
from facerts.onnx.session import refuse_arrays

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

# Shares of the faces used for calibration that are at least usable, and good.
USABLE, GOOD = 0.95, 0.8
# The usual false match rate.
DEFAULT_FMR = 1e-3


class ModelPart:
    """A model that is found and opened when it is first used. It can be pickled, and is opened again elsewhere.

    Args:
        model: name of a model, or an .onnx file (a foreign one with its description beside it); None for the default.
        runtime: see ``Runtime``; by default the fastest provider and its best batch size.
    """

    def __init__(self, model: str | Path | None = None, **runtime: Unpack[Runtime]) -> None:
        check_kind("a name or a path", model=model)
        check_kind("a whole number from 1 on", threads=runtime.get("threads"), batch_size=runtime.get("batch_size"))
        if model is not None:
            check_name(model)
            refuse_arrays(Path(model))
        self.model = model
        self.runtime: Runtime = {"batch_size": None, **runtime, "providers": runtime.get("providers") or [AUTO]}
        # Where both parts are one file, it is opened by one of them.
        self._source: ModelPart | Embedder | None = None
        self._lock = RLock()
        self._path: Path | None = None
        self._opened: OnnxModel | None = None

    @classmethod
    def of(cls, source: ModelPart | Embedder) -> Self:
        """The same model in another part, or one that is open."""
        part = cls()
        if isinstance(source, ModelPart):
            part.model, part.runtime = source.model, source.runtime
        part._source = source
        return part

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self}>"

    def __str__(self) -> str:
        if self.model is not None:
            return Path(self.model).name
        return "default" if self._source is None else getattr(self._source, "name", "own")

    def __getstate__(self) -> tuple[str | Path | None, Runtime, ModelPart | Embedder | None]:
        return self.model, self.runtime, self._source

    def __setstate__(self, state: tuple[str | Path | None, Runtime, ModelPart | Embedder | None]) -> None:
        model, runtime, source = state
        ModelPart.__init__(self, model, **runtime)
        self._source = source

    @property
    def path(self) -> Path:
        """The file, which is downloaded first if it has to be and may be."""
        with self._lock:
            if self._path is None:
                self._path = self._find()
            return self._path

    @property
    def opened(self) -> Any:
        """The model: an ``OnnxModel``, or the embedder that the part is of."""
        with self._lock:
            if self._opened is None:
                self._opened = self._checked(self._source) if self._source else self._open(self.path)
            return self._opened

    def outputs(self, crops: NDArray[np.uint8]) -> FaceOutputs:
        """All that the model gives for aligned crops, ``(N, 112, 112, 3) uint8`` RGB."""
        return outputs_of_crops(self.opened, crops)

    @property
    def description(self) -> Description:
        """The model's description."""
        description: Description = self.opened.description
        return description

    @property
    def name(self) -> str:
        """The model's name."""
        return str(self.opened.name)

    @property
    def sha256(self) -> str:
        """SHA-256 of the model's file."""
        return str(self.opened.sha256)

    def _find(self) -> Path:
        return find_or_pull(self.model)

    def _open(self, path: Path) -> OnnxModel:
        return load_model(path, **self.runtime)

    def _checked(self, source: ModelPart | Embedder) -> Any:
        return source.opened if isinstance(source, ModelPart) else source


class Quality(ModelPart):
    """How good aligned crops are, by a model that gives a quality.

    Examples:
        >>> import facerts, numpy as np
        >>> from facerts.datasets.synthetic import draw_face
        >>> quality = facerts.Quality()
        >>> quality(np.stack([draw_face(0, 0), draw_face(0, 1)])).shape, round(quality.threshold(0.95), 4)
        ((2,), 0.5127)
    """

    def __call__(self, crops: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Quality ``(N,) float32``, higher is better, of aligned crops ``(N, 112, 112, 3) uint8`` RGB."""
        quality = self.outputs(crops).quality
        if quality is None:
            raise ModelError(f"{self.name} has no quality; give another model")
        return quality

    def threshold(self, keep: float, *, group: tuple[str, str] | None = None) -> float:
        """The quality threshold that keeps a share of the faces used for calibration.

        Args:
            keep: any share from 0 to 1; for those that the model does not list, exact to one percentage point.
            group: attribute and name of a group, to keep the share of its faces only: ``("age", "below 13")``; only for
                listed shares.
        """
        share, calibration = self.share(keep), self.calibration
        if group is None:
            if share is not None:
                return self.description.thresholds[share].quality
            return self._between_quantiles(keep)
        of_attribute = calibration.groups.get(group[0], {}) if calibration else {}
        threshold = of_attribute.get(share or "", {}).get(group[1])
        if threshold is None or threshold.quality is None:
            raise ModelError(
                f"{self.name} has no threshold for {group[0]} {group[1]}; calibrate it with "
                "facerts calibrate --groups, on enough faces of the group"
            )
        return threshold.quality

    @cached_property
    def calibration(self) -> Calibration | None:
        """What the faces were that the quality was calibrated on; None if it is not calibrated."""
        return self.description.calibration

    @cached_property
    def cutoffs(self) -> tuple[float, float] | None:
        """The qualities from which faces are usable and good, see ``USABLE``; None if it is not calibrated."""
        _ = self.opened  # a file that cannot be opened is not one that is not calibrated
        try:
            return self.threshold(USABLE), self.threshold(GOOD)
        except ModelError:
            return None

    def share(self, keep: float) -> str | None:
        """The share as the model's description writes it; None if it does not list it."""
        listed = self.description.thresholds
        return next((share for share in listed if math.isclose(float(share), keep)), None)

    def _find(self) -> Path:
        return find_or_pull(default_quality() if self.model is None else self.model)

    def _between_quantiles(self, keep: float) -> float:
        if not 0 <= keep <= 1:
            raise ModelError(f"{keep:g} is no share of the faces; give a number from 0 to 1, such as 0.95")
        quality = None if self.calibration is None else self.calibration.quality_at(100 * (1 - keep))
        if quality is None:
            raise ModelError(
                f"{self.name} has no threshold that keeps {keep:g} of the faces; calibrate it on your own "
                "faces with facerts calibrate"
            )
        return quality


class Recognizer(ModelPart):
    """Embeddings of aligned crops.

    Examples:
        >>> import facerts, numpy as np
        >>> from facerts.datasets.synthetic import draw_face
        >>> recognizer = facerts.Recognizer("facerts-small")
        >>> recognizer(np.stack([draw_face(0, 0), draw_face(0, 1)])).shape
        (2, 128)
    """

    def __call__(self, crops: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Embeddings ``(N, d) float32``, of unit length, of aligned crops ``(N, 112, 112, 3) uint8`` RGB."""
        return self.outputs(crops).embedding

    def match_threshold(self, fmr: float, *, flip: bool = False) -> MatchThreshold:
        """The cosine similarity at or above which two faces match, at a false match rate on the calibration pairs.

        Args:
            fmr: one of the false match rates that the model was calibrated for.
            flip: the embeddings are sums over the crop and its mirror image.
        """
        matching = self._matching
        if matching is not None and matching.flip != flip:
            kinds = ("only the crop", "the crop and its mirror image")
            raise ModelError(
                f"{self.name} has match thresholds for embeddings of {kinds[matching.flip]}, not of "
                f"{kinds[flip]}; calibrate it again with flip={'true' if flip else 'false'}"
            )
        thresholds = {} if matching is None else matching.thresholds
        for rate, threshold in thresholds.items():
            if math.isclose(float(rate), fmr):
                return threshold
        available = f"only for {', '.join(thresholds)}" if thresholds else "none at all"
        choice = (
            f"take one of these (fmr={min(thresholds, key=lambda rate: abs(float(rate) - fmr))}), or "
            if thresholds
            else ""
        )
        raise ModelError(
            f"{self.name} has no match threshold for a false match rate of {fmr:g}, {available}; {choice}"
            "calibrate it on your own faces, a folder for each person: facerts calibrate --model MODEL --data people/. "
            "A similarity of your own also decides (threshold=0.3), without a known error rate"
        )

    def default_fmr(self) -> float:
        """The usual false match rate, or, of a model that was calibrated with few faces, its lowest."""
        rates = [] if self._matching is None else [float(rate) for rate in self._matching.thresholds]
        if not rates or any(math.isclose(rate, DEFAULT_FMR) for rate in rates):
            return DEFAULT_FMR
        return min(rates)

    def match_thresholds(self) -> tuple[tuple[float, float], ...]:
        """False match rates of single crops, lowest first, with their cosine similarities; none if not calibrated."""
        matching = self._matching
        if matching is None or matching.flip:
            return ()
        return tuple(sorted((float(rate), each.similarity) for rate, each in matching.thresholds.items()))

    @property
    def _matching(self) -> Matching | None:
        calibration = self.description.calibration
        return None if calibration is None else calibration.matching

    def _open(self, path: Path) -> OnnxModel:
        return load_embedder(path, **self.runtime)

    def _checked(self, source: ModelPart | Embedder) -> Any:
        model = super()._checked(source)
        # Refuses one without an embedding.
        return self._open(model.path) if isinstance(model, OnnxQuality) else model


@dataclass(frozen=True)
class FaceModel:
    """A quality and a recognizer, one of them maybe None, as one model of crops; see ``facerts.embedding.Embedder``.

    Where both are one file, one forward pass gives both. Without a recognizer, embeddings have no dimensions.
    """

    quality: Quality | None
    recognizer: Recognizer | None
    thread_safe = True

    @property
    def models(self) -> list[Any]:
        """The different models, the one whose quality counts first."""
        parts = [part.opened for part in (self.quality, self.recognizer) if part is not None]
        first, last = parts[0], parts[-1]
        return parts[:1] if first is last or (first.sha256 and first.sha256 == last.sha256) else parts

    @property
    def name(self) -> str:
        """Name of the recognizer, or of the quality without one."""
        return str(self.models[-1].name)

    @property
    def method(self) -> str:
        """How it was trained."""
        return str(self.models[-1].method)

    @property
    def sha256(self) -> str:
        """SHA-256 of its file."""
        return str(self.models[-1].sha256)

    @property
    def provider(self) -> str:
        """What computes, as ONNX Runtime calls it."""
        return str(self.models[0].providers[0])

    @property
    def batch_size(self) -> int:
        """Crops per batch."""
        return max(int(model.batch_size) for model in self.models)

    @property
    def parallel_batches(self) -> int:
        """How many batches to process at the same time so that all cores are busy."""
        threads = self.models[0].threads
        return max(1, (os.cpu_count() or 1) // int(threads)) if threads and self.provider in CORES else 1

    def __call__(self, crops: NDArray[np.uint8]) -> FaceOutputs:
        """The outputs of aligned crops, ``(N, 112, 112, 3) uint8`` RGB."""
        first, *others = [outputs_of_crops(model, crops) for model in self.models]
        for embedded in others:
            first = replace(first, embedding=embedded.embedding, norm=embedded.norm)
        return replace(first, quality=None, uncertainty=None) if self.quality is None else first
