"""Gradients of several processes: what DistributedDataParallel does not look after."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor, nn

from facerts.training.distributed.collectives import Processes


def average(parameters: Iterable[nn.Parameter], processes: Processes) -> None:
    """The mean over the processes of the gradients of parameters that each has whole, in place."""
    if processes.count == 1:
        return
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.grad = processes.sum(parameter.grad) / processes.count


def clip(
    whole: Iterable[nn.Parameter], shared_out: Iterable[nn.Parameter], largest: float, processes: Processes
) -> Tensor:
    """Scale gradients so that the norm of all together is at most ``largest``, in place.

    Args:
        whole: parameters that each process has.
        shared_out: parameters of which each process has its own part.
        largest: norm.
        processes: of the run.

    Returns:
        The norm before.
    """
    mine, part = ([p.grad for p in group if p.grad is not None] for group in (whole, shared_out))
    none = mine[0].new_zeros(())
    squares = [sum((gradient.square().sum() for gradient in group), none) for group in (mine, part)]
    norm = (squares[0] + processes.sum(squares[1])).sqrt()
    factor = (largest / (norm + 1e-6)).clamp(max=1.0)
    for gradient in (*mine, *part):
        gradient.mul_(factor)
    return norm
