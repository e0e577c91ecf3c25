"""pAUC, the partial area under a curve of error versus reject: one number for a quality, lower is better.

It is the mean FNMR over the shares rejected from 0 to an end. Divided by the FNMR without rejection, it is 1 for a
quality that says nothing, and comparable between recognizers; tables call that the *area*.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray


def pauc(fnmr: ArrayLike, rates: Sequence[float], end: float) -> NDArray[np.float64]:
    """Area below FNMR curves from no rejection up to ``end``, by trapezoids, divided by ``end``: ``(…, R)`` to ``(…)``.

    Of the R ``rates``, shares rejected, ascending from 0, ``end`` is one.

    Examples:
        >>> round(float(pauc([0.4, 0.2, 0.0], rates=[0.0, 0.1, 0.2], end=0.2)), 4)
        0.2
    """
    shares, curves = np.asarray(rates, dtype=np.float64), np.asarray(fnmr, dtype=np.float64)
    inside = (shares > 0) & (shares <= end + 1e-9)
    if shares[0] != 0 or not inside.any() or abs(shares[inside][-1] - end) > 1e-9:
        raise ValueError(f"{end} is not one of the rates, which must begin at 0 and then be positive")
    count = int(inside.sum()) + 1
    means = (curves[..., 1:count] + curves[..., : count - 1]) / 2
    return np.asarray(np.sum(means * np.diff(shares[:count]), axis=-1) / end)
