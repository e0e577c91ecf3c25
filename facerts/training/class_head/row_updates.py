"""SGD for some rows of a parameter, as soon as their gradient is known."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.optim.sgd import sgd


class RowSteps:
    """Steps of an optimizer for a parameter that never has a gradient of its own size.

    What it keeps is the optimizer's own: rate, decay and momentum, so that a checkpoint has them as ever.

    Args:
        optimizer: has the parameter in one of its groups, and leaves it alone as long as it has no gradient.
        parameter: ``(N, …)``.
    """

    def __init__(self, optimizer: torch.optim.SGD, parameter: Tensor) -> None:
        self._optimizer = optimizer
        self._parameter = parameter
        (self._group,) = (
            number
            for number, group in enumerate(optimizer.param_groups)
            if any(other is parameter for other in group["params"])
        )
        # Before the first step, too: all processes of a run save the same entries, also one that has no rows.
        self._momentum()

    @torch.no_grad()
    def __call__(self, rows: slice | Tensor, gradient: Tensor) -> None:
        """Step for some rows.

        Args:
            rows: which, each once: a run of them, or ``(n,) int64``.
            gradient: ``(n, …)`` theirs.
        """
        group = self._optimizer.param_groups[self._group]
        momentum = self._momentum()
        weight = self._parameter[rows]
        moved = None if momentum is None else momentum[rows]
        sgd(
            [weight],
            [gradient],
            [moved],
            fused=True,
            weight_decay=group["weight_decay"],
            momentum=group["momentum"],
            lr=group["lr"],
            dampening=group["dampening"],
            nesterov=group["nesterov"],
            maximize=group["maximize"],
        )
        # A run of rows is a view and has moved in place; picked ones are copies.
        if isinstance(rows, Tensor):
            self._parameter.index_copy_(0, rows, weight)
            if momentum is not None and moved is not None:
                momentum.index_copy_(0, rows, moved)
        # The fused step does not tell autograd, which is to notice where the rows are needed as they were.
        torch.autograd.graph.increment_version(self._parameter)

    def _momentum(self) -> Tensor | None:
        """The optimizer's, which a checkpoint that was loaded may have replaced or left out."""
        if not self._optimizer.param_groups[self._group]["momentum"]:
            return None
        state = self._optimizer.state[self._parameter]
        if state.get("momentum_buffer") is None:
            state["momentum_buffer"] = torch.zeros_like(self._parameter)
        momentum: Tensor = state["momentum_buffer"]
        return momentum
