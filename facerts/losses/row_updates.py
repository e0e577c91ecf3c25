"""SGD updates of single rows of a parameter, as soon as their gradient is known."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.optim.sgd import sgd


class RowUpdates:
    """SGD updates for a parameter ``(N, …)`` whose full gradient is never stored.

    Learning rate, weight decay and momentum are those of the optimizer, so checkpoints contain them as usual. One of
    its groups has the parameter; the optimizer skips it as long as it has no gradient.
    """

    def __init__(self, optimizer: torch.optim.SGD, parameter: Tensor) -> None:
        self._optimizer = optimizer
        self._parameter = parameter
        (self._group,) = (
            number
            for number, group in enumerate(optimizer.param_groups)
            if any(other is parameter for other in group["params"])
        )
        # Create the buffer now, so that all processes save the same entries, even one that holds no rows.
        self._momentum()

    @torch.no_grad()
    def __call__(self, rows: slice | Tensor, gradient: Tensor) -> None:
        """Update some rows, a slice or ``(n,) int64`` without duplicates, by their gradient ``(n, …)``."""
        group = self._optimizer.param_groups[self._group]
        momentum = self._momentum()
        weight = self._parameter[rows]
        row_momentum = None if momentum is None else momentum[rows]
        sgd(
            [weight],
            [gradient],
            [row_momentum],
            fused=True,
            weight_decay=group["weight_decay"],
            momentum=group["momentum"],
            lr=group["lr"],
            dampening=group["dampening"],
            nesterov=group["nesterov"],
            maximize=group["maximize"],
        )
        # Indexing with a slice gives a view, which was updated in place; indexing with a tensor gives a copy.
        if isinstance(rows, Tensor):
            self._parameter.index_copy_(0, rows, weight)
            if momentum is not None and row_momentum is not None:
                momentum.index_copy_(0, rows, row_momentum)
        # The fused update bypasses autograd's version counter, by which it detects use of the old values.
        torch.autograd.graph.increment_version(self._parameter)

    def _momentum(self) -> Tensor | None:
        """The optimizer's momentum buffer, which loading a checkpoint may have replaced or removed."""
        if not self._optimizer.param_groups[self._group]["momentum"]:
            return None
        state = self._optimizer.state[self._parameter]
        if state.get("momentum_buffer") is None:
            state["momentum_buffer"] = torch.zeros_like(self._parameter)
        momentum: Tensor = state["momentum_buffer"]
        return momentum
