"""The options of an evaluation, and its first steps: open the images, embed and score them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from facerts.datasets import Source, Subset, is_pair_benchmark, open_benchmarks, open_images, open_source
from facerts.datasets.fingerprint import hash_images
from facerts.detection.detector import FaceFinder, OpenDetector
from facerts.embedding.aligned import AlignedPhotos
from facerts.embedding.embed import AnyEmbedder, outputs_of
from facerts.embedding.output_cache import OutputCache
from facerts.embedding.outputs import FaceOutputs
from facerts.errors import DataError, Error
from facerts.evaluation.baselines import crop_scores, face_sizes, neighbor_similarity
from facerts.io.versions import installed_versions


def check_names(names: Sequence[str]) -> None:
    """Check the names of sources and benchmarks, by which results are stored."""
    for number, name in enumerate(names):
        if name in names[:number]:
            raise Error(
                f"two sources have the same name, {name!r}; results are stored by the name of the folder or file, so "
                "rename one"
            )
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise Error(
                f"{name}: results are stored by this name, which is not UTF-8; rename the folder or file"
            ) from error


@dataclass(frozen=True)
class EvaluationOptions:
    """How to evaluate, as the commands' options say.

    Attributes:
        fmrs: rates at which FNMR is measured; None for all that the pairs allow.
        fmr: the rate at which error versus reject and calibration choose their threshold.
        detector: finds the faces in photos; None if the images are aligned crops.
        detector_baseline: a detector whose score of each crop becomes a baseline; None for no such baseline.
        reference: faces among which the nearest-neighbor baseline searches; never the faces that are measured.
        cache: keeps the model's outputs; None to compute them every time.
    """

    flip: bool = True
    batch_size: int = 64
    fmrs: tuple[float, ...] | None = None
    fmr: float = 1e-3
    every_pair: bool = False
    keep_crops: bool = True
    detector: FaceFinder | None = None
    detector_baseline: OpenDetector | None = None
    reference: Source | None = None
    neighbors: int = 10
    cache: OutputCache | None = None

    def crops_of(self, source: Source) -> Source:
        """The source, aligned as it is read if ``detector`` is set."""
        return source if self.detector is None else AlignedPhotos(source, self.detector)


DEFAULT_OPTIONS = EvaluationOptions()


# Extras of photos, in the cache only: the distance between the eyes, and 1 if no face was found.
_FOUND, _WITHOUT_FACE = "found_size", "without_face"


def measured_outputs(
    embedder: AnyEmbedder,
    source: Source,
    options: EvaluationOptions,
    *,
    flip: bool,
    sha256: str | None = None,
    first: NDArray[np.int64] | None = None,
    reference: NDArray[np.float32] | None = None,
) -> FaceOutputs:
    """The embedder's outputs with the baselines among their extras; ``reference`` are embeddings of reference faces."""

    def compute() -> FaceOutputs:
        outputs = outputs_of(
            embedder,
            source,
            flip=flip,
            first=first,
            batch_size=options.batch_size,
            also=crop_scores(options.detector_baseline),
        )
        sizes = face_sizes(source)
        return outputs if sizes is None else replace(outputs, extras={**outputs.extras, "face_size": sizes})

    repeated = None if first is None else hashlib.sha256(first.tobytes()).hexdigest()
    outputs = kept_outputs(options, embedder, source, compute, sha256=sha256, flip=flip, repeated=repeated)
    if reference is None:
        return outputs
    neighbors = neighbor_similarity(outputs.embedding, reference, options.neighbors)
    return replace(outputs, extras={**outputs.extras, "neighbors": neighbors})


def reference_embedding(embedder: AnyEmbedder, options: EvaluationOptions, *, flip: bool) -> NDArray[np.float32] | None:
    """Embeddings of the reference faces; None if the options name none."""
    if options.reference is None:
        return None
    faces = options.crops_of(options.reference)

    def compute() -> FaceOutputs:
        return outputs_of(embedder, faces, flip=flip, batch_size=options.batch_size)

    return kept_outputs(options, embedder, faces, compute, what="reference", flip=flip).embedding


def kept_outputs(
    options: EvaluationOptions,
    embedder: object,
    source: Source,
    compute: Callable[[], FaceOutputs],
    rows: NDArray[np.integer] | None = None,
    *,
    sha256: str | None = None,
    **depends_on: object,
) -> FaceOutputs:
    """Outputs of a source's images, from the cache if it has them; otherwise computed and kept there.

    They are always computed if there is no cache, or if the cache key cannot cover everything that they depend on:
    for tables, training runs, and sources that make crops in a way of their own.

    Args:
        embedder: model, table or score; without an ``identity`` of everything that it does, nothing is kept.
        rows: ``(N,)`` indices of the images; None for all.
        sha256: hash of all images, if it is known already.
        depends_on: what the outputs depend on besides model, detector, images, batch size and installed packages.
    """
    model, crops = getattr(embedder, "identity", None), source.crop_identity()
    if options.cache is None or model is None or crops is None:
        return compute()
    rows = np.arange(len(source)) if rows is None else rows
    key = {
        "model": model,
        "detector_baseline": options.detector_baseline and options.detector_baseline.identity,
        "images": sha256 or hash_images(source).sha256,
        "rows": hashlib.sha256(rows.astype(np.int64).tobytes()).hexdigest(),
        "crops": crops,
        "batch": options.batch_size,
        "versions": installed_versions(),
        **depends_on,
    }
    if not isinstance(source, AlignedPhotos):
        return options.cache.outputs(key, len(rows), compute)

    def with_faces() -> FaceOutputs:
        outputs, missing = compute(), source.without_face()
        detected = {
            _FOUND: np.array([source.face_size(int(row)) for row in rows], dtype=np.float32),
            _WITHOUT_FACE: np.isin(rows, missing).astype(np.float32),
        }
        return replace(outputs, extras={**outputs.extras, **detected})

    outputs = options.cache.outputs(key, len(rows), with_faces)
    extras = dict(outputs.extras)
    source.restore(rows, extras.pop(_FOUND), extras.pop(_WITHOUT_FACE) > 0)
    return replace(outputs, extras=extras)


def open_without(path: str, exclude: str | None) -> Source:
    """A source without the files whose names match a pattern."""
    source = faces_of(path)
    if exclude is None:
        return source
    names = [PurePosixPath(source.key(index)).name for index in range(len(source))]
    kept = np.flatnonzero([not fnmatch(name, exclude) for name in names])
    if not len(kept):
        raise DataError(f"{path}: {exclude!r} excludes every image")
    return Subset(source, kept)


def faces_of(path: str, open_others: Callable[[str], Source] = open_images) -> Source:
    """The images that a benchmark's pairs name, or another source."""
    if not (Path(path).is_dir() and is_pair_benchmark(path)):
        return open_others(path)
    benchmarks = open_benchmarks(path)
    if len(benchmarks) > 1:
        names = ", ".join(benchmark.name for benchmark in benchmarks)
        raise DataError(f"{path}: it holds several benchmarks ({names}); name the folder of their images instead")
    return benchmarks[0].images


def people_of(path: str) -> Source:
    """The images of a benchmark that names its people, or a source with identities."""
    return faces_of(path, open_source)
