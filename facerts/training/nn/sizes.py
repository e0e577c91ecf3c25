"""Sizes of the trunks' maps."""

from __future__ import annotations

import math

HALVINGS = 4


def last_side(input_size: int) -> int:
    """Side of the last map: 7 of 112. A strided convolution with padding rounds up."""
    return math.ceil(input_size / (1 << HALVINGS))
