"""A check of weights that come from files."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from facerts.errors import ModelError

# BatchNorm's count of batches, the only integers among weights. Some scripts do not save it; with a fixed momentum it
# has no effect.
COUNTER = "num_batches_tracked"


def check_finite(weights: Mapping[str, Tensor], where: object) -> None:
    """Check that all weights are finite floating-point numbers."""
    for name, values in weights.items():
        if name.endswith(COUNTER):
            continue
        if not values.is_floating_point():
            kind = str(values.dtype).removeprefix("torch.")
            raise ModelError(f"{where}: weight {name!r} holds {kind}, not floating-point numbers")
        if not torch.isfinite(values).all():
            raise ModelError(f"{where}: weight {name!r} has values that are not finite numbers")
