"""Check that an ONNX file computes the same as the network it was made from, before the file is written."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from facerts.datasets import Source
from facerts.datasets.synthetic import draw_face, draw_non_face
from facerts.embedding import FaceOutputs
from facerts.errors import ModelError
from facerts.images import CROP_SIZE

SOURCE_IMAGES, SYNTHETIC_FACES, NON_FACES, NOISE = 64, 16, 8, 8


@dataclass(frozen=True)
class Tolerance:
    """How far a file's outputs may be from those of the network that it was made from.

    Attributes:
        cosine: minimum cosine similarity of the two embeddings of a crop.
        quality_error: maximum absolute difference of qualities.
        quality_spreads: or this many standard deviations of the checked crops' quality, where that is more: what a
            difference means depends on the method's scale.
    """

    cosine: float
    quality_error: float
    quality_spreads: float = 0.0


EXACT = Tolerance(cosine=0.99999, quality_error=1e-3)


@dataclass(frozen=True)
class Parity:
    """How far a file's outputs are from those of the network that it was made from.

    Attributes:
        cosine: minimum cosine similarity of the two embeddings of a crop; None where there are none.
        quality_error: maximum absolute difference of qualities; None where the file has none.
        quality_spread: standard deviation of the crops' expected quality; None where there is none.
    """

    crops: int
    cosine: float | None
    quality_error: float | None
    quality_spread: float | None

    def within(self, tolerance: Tolerance) -> bool:
        """Whether both differences are small enough; a NaN is not."""
        exact = self.quality_error is None or self.quality_error <= self.allowed_error(tolerance)
        return exact and (self.cosine is None or self.cosine >= tolerance.cosine)

    def allowed_error(self, tolerance: Tolerance) -> float:
        """The quality error that a tolerance allows on these crops."""
        return max(tolerance.quality_error, tolerance.quality_spreads * (self.quality_spread or 0))


def measure_parity(expected: FaceOutputs, actual: FaceOutputs) -> Parity:
    """Measure how far outputs are from those that were expected of the same crops."""
    cosine = error = spread = None
    if expected.embedding.shape[1]:
        cosine = float(np.einsum("nd,nd->n", expected.embedding.astype(np.float64), actual.embedding).min())
    if actual.quality is not None and expected.quality is not None:
        error = float(np.abs(expected.quality - actual.quality).max())
        spread = float(expected.quality.std())
    return Parity(len(expected), cosine, error, spread)


def compare_outputs(
    expected: FaceOutputs, actual: FaceOutputs, tolerance: Tolerance = EXACT, *, of: str = ""
) -> Parity:
    """Check that a written file, named ``of`` in errors, computes what it should compute on the same crops."""
    parity = measure_parity(expected, actual)
    if parity.within(tolerance):
        return parity
    embeddings, quality = "there are no embeddings", "no quality"
    if parity.cosine is not None:
        embeddings = f"the minimum cosine similarity of embeddings is {parity.cosine:.7f} (at least {tolerance.cosine})"
    if parity.quality_error is not None:
        allowed = parity.allowed_error(tolerance)
        quality = f"qualities differ by up to {parity.quality_error:.3g} (at most {allowed:.3g})"
    raise ModelError(
        f"{of and f'{of}: '}the exported network does not compute what the original computes: on {parity.crops} crops "
        f"{embeddings}, {quality}; no file was written"
    )


def check_crops(source: Source | None = None) -> NDArray[np.uint8]:
    """``(N, 112, 112, 3)`` RGB crops for comparisons: some of a source's, synthetic faces, non-faces and noise."""
    crops = [draw_face(number, 0) for number in range(SYNTHETIC_FACES)]
    crops += [draw_non_face(number) for number in range(NON_FACES)]
    crops += list(np.random.default_rng(0).integers(0, 256, (NOISE, CROP_SIZE, CROP_SIZE, 3), dtype=np.uint8))
    if source is not None:
        for index in np.unique(np.linspace(0, len(source) - 1, SOURCE_IMAGES).astype(int)):
            crops.append(source.crop(int(index)))
    return np.stack(crops)
