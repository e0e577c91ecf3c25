"""Where a box will be: a Kalman filter of constant velocity, as in DeepSORT and ByteTrack.

The state is the box's center, height and ratio of width to height, and their changes per unit of time; the deviations
are in proportion to the height (Wojke et al., "Simple online and realtime tracking with a deep association metric",
ICIP 2017). Here a unit of time is a thirtieth of a second, the frame rate that its deviations were chosen for, however
far apart the frames are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

UNITS_PER_SECOND = 30.0
POSITION_DEVIATION, VELOCITY_DEVIATION = 1 / 20, 1 / 160
RATIO_DEVIATION, RATIO_VELOCITY_DEVIATION, RATIO_NOISE = 1e-2, 1e-5, 1e-1
# Of the state, what is measured: x, y, ratio, height.
_MEASURED = np.eye(4, 8)

Floats = NDArray[np.float64]


@dataclass
class BoxMotion:
    """The motion of one box.

    Attributes:
        mean: ``(8,)`` center x, center y, ratio, height, and the change of each per unit of time.
        covariance: ``(8, 8)``.
    """

    mean: Floats
    covariance: Floats

    @classmethod
    def of(cls, box: Floats) -> BoxMotion:
        """A box, left, top, right and bottom, of which no motion is known yet."""
        measured = _to_measurement(box)
        height = measured[3]
        position = 2 * POSITION_DEVIATION * height
        velocity = 10 * VELOCITY_DEVIATION * height
        deviations = [
            *(position, position, RATIO_DEVIATION, position),
            *(velocity, velocity, RATIO_VELOCITY_DEVIATION, velocity),
        ]
        return cls(np.concatenate([measured, np.zeros(4)]), np.diag(np.square(deviations)))

    @property
    def box(self) -> Floats:
        """``(4,)`` left, top, right and bottom."""
        x, y, ratio, height = self.mean[:4]
        across, down = max(ratio, 0.0) * height / 2, height / 2
        return np.array([x - across, y - down, x + across, y + down])

    def predict(self, seconds: float) -> None:
        """Move on by a time."""
        units = seconds * UNITS_PER_SECOND
        step = np.eye(8) + units * np.eye(8, k=4)
        position = POSITION_DEVIATION * self.mean[3]
        velocity = VELOCITY_DEVIATION * self.mean[3]
        noise = np.square(
            [
                *(position, position, RATIO_DEVIATION, position),
                *(velocity, velocity, RATIO_VELOCITY_DEVIATION, velocity),
            ]
        )
        self.mean = step @ self.mean
        self.covariance = step @ self.covariance @ step.T + units * np.diag(noise)

    def update(self, box: Floats) -> None:
        """Take in a box that was seen now."""
        height = POSITION_DEVIATION * self.mean[3]
        noise = np.diag(np.square([height, height, RATIO_NOISE, height]))
        innovation = _MEASURED @ self.covariance @ _MEASURED.T + noise
        gain = np.linalg.solve(innovation, _MEASURED @ self.covariance).T
        self.mean = self.mean + gain @ (_to_measurement(box) - _MEASURED @ self.mean)
        self.covariance = self.covariance - gain @ innovation @ gain.T


def _to_measurement(box: Floats) -> Floats:
    """Center x, center y, ratio of width to height, and height."""
    left, top, right, bottom = box.tolist()
    height = max(bottom - top, 1e-3)
    return np.array([(left + right) / 2, (top + bottom) / 2, (right - left) / height, height])
