"""How to measure, and what every measurement begins with: images opened, embedded and scored."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from facerts.benchmarks import is_pair_benchmark, open_benchmarks
from facerts.datasets import Source, Subset, open_images, open_source
from facerts.detection.base import Detector
from facerts.embedding.aligned import AlignedPhotos
from facerts.embedding.embed import AnyEmbedder, outputs_of
from facerts.embedding.outputs import FaceOutputs
from facerts.errors import DataError
from facerts.evaluation.baselines import crop_scores, face_sizes, neighbor_similarity
from facerts.metrics.reject import Combine


@dataclass(frozen=True)
class Measuring:
    """How to measure: what the commands' options come to.

    Attributes:
        flip: add each crop's mirror to its embedding.
        batch_size: crops per call of the embedder.
        fars: at which TAR is measured; None for all that the pairs allow.
        fmr: at which error versus reject and calibration choose their threshold.
        combine: how two images' qualities become their pair's.
        every_pair: measure every pair of a benchmark's images too.
        keep_crops: keep the crops that a report shows.
        detector: for its score as a baseline.
        reference: faces for nearest neighbors as a baseline; they must not be those that are measured.
        align: finds the faces of photos; None where images are aligned crops already.
    """

    flip: bool = True
    batch_size: int = 64
    fars: tuple[float, ...] | None = None
    fmr: float = 1e-3
    combine: Combine = "min"
    every_pair: bool = False
    keep_crops: bool = True
    detector: Detector | None = None
    reference: Source | None = None
    align: Detector | None = None

    def crops_of(self, source: Source) -> Source:
        """The source, aligned as it is read where that is asked for."""
        return source if self.align is None else AlignedPhotos(source, self.align)


PLAIN = Measuring()


def measured_outputs(
    judged: AnyEmbedder,
    source: Source,
    how: Measuring,
    *,
    flip: bool,
    first: NDArray[np.int64] | None = None,
    reference: NDArray[np.float32] | None = None,
) -> FaceOutputs:
    """Outputs with the baselines among their extras."""
    outputs = outputs_of(
        judged, source, flip=flip, first=first, batch_size=how.batch_size, also=crop_scores(how.detector)
    )
    extras = dict(outputs.extras)
    sizes = face_sizes(source)
    if sizes is not None:
        extras["face_size"] = sizes
    if reference is not None:
        extras["neighbors"] = neighbor_similarity(outputs.embedding, reference)
    return replace(outputs, extras=extras)


def reference_embedding(judged: AnyEmbedder, how: Measuring, *, flip: bool) -> NDArray[np.float32] | None:
    """Embeddings of the reference faces, where there are some."""
    if how.reference is None:
        return None
    return outputs_of(judged, how.crops_of(how.reference), flip=flip, batch_size=how.batch_size).embedding


def open_without(path: str, exclude: str | None) -> Source:
    """A source without the files whose names a pattern fits.

    Raises:
        DataError: nothing is left, or no such source.
    """
    source = faces_of(path)
    if exclude is None:
        return source
    names = [PurePosixPath(source.key(index)).name for index in range(len(source))]
    kept = np.flatnonzero([not fnmatch(name, exclude) for name in names])
    if not len(kept):
        raise DataError(f"{path}: {exclude!r} leaves no image")
    return Subset(source, kept)


def faces_of(path: str) -> Source:
    """A source, or the images that a benchmark's pairs name."""
    if Path(path).is_dir() and is_pair_benchmark(path):
        return _joined(path)
    return open_images(path)


def people_of(path: str) -> Source:
    """A source with identities, or the images of a benchmark that names its people."""
    if Path(path).is_dir() and is_pair_benchmark(path):
        return _joined(path)
    return open_source(path)


def _joined(path: str) -> Source:
    benchmarks = open_benchmarks(path)
    if len(benchmarks) > 1:
        names = ", ".join(benchmark.name for benchmark in benchmarks)
        raise DataError(
            f"{path}: it holds several benchmarks ({names}); name the folder of their images instead"
        )
    return benchmarks[0].images
