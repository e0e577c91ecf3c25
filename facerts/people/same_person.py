"""How likely two faces are of the same person, given their similarity."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from facerts.errors import ModelError
from facerts.onnx.contract import Description


@dataclass(frozen=True)
class SamePerson:
    """Normal distributions of the cosines of two images of the same person, and of different people.

    Attributes:
        genuine: of the same person.
        impostor: of different people.
    """

    genuine: NormalDist
    impostor: NormalDist

    def log_odds(self, cosine: ArrayLike, people: int) -> NDArray[np.float64]:
        """Logarithm of the odds that two faces are of the same person, if about one in ``people`` pairs is."""
        values = np.asarray(cosine, dtype=np.float64)
        return _log_density(values, self.genuine) - _log_density(values, self.impostor) - np.log(people)


def same_person_of(description: Description) -> SamePerson:
    """The distributions that a model's match thresholds imply.

    Raises:
        ModelError: the model was not calibrated for matching.
    """
    matching = None if description.calibration is None else description.calibration.matching
    if matching is None or len(matching.thresholds) < 2:
        raise ModelError(
            "the model has no match thresholds at two rates; calibrate it: facerts calibrate --model MODEL --data people/"
        )
    normal = NormalDist()
    cosines = [each.similarity for each in matching.thresholds.values()]
    impostor = [normal.inv_cdf(1 - float(rate)) for rate in matching.thresholds]
    genuine = [normal.inv_cdf(each.fnmr) for each in matching.thresholds.values()]
    return SamePerson(_line(genuine, cosines), _line(impostor, cosines))


def _line(deviations: list[float], cosines: list[float]) -> NormalDist:
    slope, start = np.polyfit(deviations, cosines, 1)
    return NormalDist(float(start), float(slope))


def _log_density(values: NDArray[np.float64], distribution: NormalDist) -> NDArray[np.float64]:
    return -0.5 * ((values - distribution.mean) / distribution.stdev) ** 2 - np.log(distribution.stdev)
