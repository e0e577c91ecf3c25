"""How likely two faces are of the same person, given their similarity and both of their qualities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

# Percentiles count by their logarithm, as errors grow most among the poorest faces; the lowest would be infinite.
LOWEST_SHARE = 0.002
UNKNOWN_PERCENTILE = 50.0
# Keeps the weights finite where no pair is on the wrong side, as with few faces.
RIDGE = 1.0
STEPS, PRECISION = 50, 1e-9


def quality_level(percentile: ArrayLike) -> Floats:
    """Decimal logarithm of the share of faces with lower quality, at most 0; NaN percentiles count as the median."""
    share = np.nan_to_num(np.asarray(percentile, dtype=np.float64), nan=UNKNOWN_PERCENTILE) / 100
    return np.asarray(np.log10(share + LOWEST_SHARE))


@dataclass(frozen=True)
class SamePerson:
    """The logarithm of the likelihood ratio of "same person" to "different people", linear in its weights.

    Attributes:
        weights: of 1, the cosine, the quality level of the poorer face, and the product of these two.

    Source: logistic regression as calibration of likelihood ratios: Brümmer and du Preez, "Application-independent
    evaluation of speaker detection", Computer Speech & Language 2006.
    """

    weights: tuple[float, float, float, float]

    def log_likelihood_ratio(self, cosine: ArrayLike, first_level: ArrayLike, second_level: ArrayLike) -> Floats:
        """``(P,)`` natural logarithm of the likelihood ratio, by cosine and both faces' ``quality_level``."""
        return np.asarray(_features(cosine, first_level, second_level) @ np.array(self.weights))

    def minimum_cosine(self, log_ratio: float, levels: Sequence[float]) -> float:
        """The lowest cosine at which faces of some quality levels reach a logarithm of the likelihood ratio.

        Weights under which a higher cosine says less at one of these levels have no such cosine; they give −1.
        """
        constant, slope, level, product = self.weights
        steep = [slope + product * each for each in levels]
        if min(steep) <= 0:
            return -1.0
        cosines = [(log_ratio - constant - level * each) / rise for each, rise in zip(levels, steep, strict=True)]
        return float(np.clip(min(cosines), -1, 1))


def fit_same_person(cosine: ArrayLike, first_level: ArrayLike, second_level: ArrayLike, same: ArrayLike) -> SamePerson:
    """Fit the likelihood ratio by logistic regression.

    Args:
        cosine: ``(P,)`` cosine similarities of pairs of faces.
        first_level: ``(P,)`` quality levels of the first faces, see ``quality_level``.
        second_level: ``(P,)`` of the second faces.
        same: ``(P,)`` whether each pair is of the same person; as rare as among all pairs, for the fit is best where
            both answers are about as frequent.
    """
    target = np.asarray(same, dtype=np.float64)
    positives = float(target.sum())
    if not 0 < positives < len(target):
        raise ValueError("a fit needs pairs of the same person and pairs of different people")
    features = _features(cosine, first_level, second_level)
    mean, spread = features[:, 1:].mean(axis=0), np.maximum(features[:, 1:].std(axis=0), 1e-9)
    features[:, 1:] = (features[:, 1:] - mean) / spread
    penalty = np.diag([0.0, RIDGE, RIDGE, RIDGE])
    weights = np.zeros(4)
    for _ in range(STEPS):
        probability = 1 / (1 + np.exp(-features @ weights))
        slope = features.T @ (target - probability) - penalty @ weights
        curvature = (features * (probability * (1 - probability))[:, None]).T @ features + penalty
        step = np.linalg.solve(curvature, slope)
        weights += step
        if np.abs(step).max() < PRECISION:
            break
    weights[1:] /= spread
    weights[0] -= weights[1:] @ mean + np.log(positives / (len(target) - positives))
    return SamePerson((float(weights[0]), float(weights[1]), float(weights[2]), float(weights[3])))


def _features(cosine: ArrayLike, first_level: ArrayLike, second_level: ArrayLike) -> Floats:
    values = np.asarray(cosine, dtype=np.float64)
    poorer = np.minimum(first_level, second_level)
    return np.stack([np.ones_like(values), values, poorer, values * poorer], axis=-1)
