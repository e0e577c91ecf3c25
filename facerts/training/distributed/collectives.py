"""The processes of a run: one alone, or several that torch.distributed connects.

What they say to each other is here, in a form that does nothing where there is only one, so that nobody else has to
ask.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from facerts.training.distributed.rendezvous import meet

# PyTorch 2.13 has given it another name.
_all_gather: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
# How long it may take until all have met; torchrun begins again where one gives up.
MEETING = timedelta(minutes=5)
# How long one may wait for the others after that, who validate or write a checkpoint now and then.
PATIENCE = timedelta(hours=2)


@dataclass(frozen=True)
class Processes:
    """Those that take part.

    Attributes:
        rank: this one's number.
        count: R.
    """

    rank: int = 0
    count: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the one that writes files and speaks."""
        return self.rank == 0

    def gather(self, value: Tensor) -> Tensor:
        """``(N, …)`` of each to ``(R·N, …)`` of all, in the order of the ranks."""
        if self.count == 1:
            return value
        out = value.new_empty((self.count * len(value), *value.shape[1:]))
        _all_gather(out, value.contiguous())
        return out

    def sum(self, value: Tensor) -> Tensor:
        """The sum over all."""
        if self.count > 1:
            value = value.contiguous()
            dist.all_reduce(value)
        return value

    def highest(self, value: Tensor) -> Tensor:
        """The largest of all, number by number."""
        if self.count > 1:
            value = value.clone()
            dist.all_reduce(value, op=dist.ReduceOp.MAX)
        return value

    def logsumexp(self, value: Tensor) -> Tensor:
        """log Σ exp over all, number by number; −∞ adds nothing."""
        if self.count == 1:
            return value
        highest = self.highest(value)
        return self.sum((value - highest).exp()).log() + highest

    def collect(self, value: Tensor, lengths: list[int]) -> Tensor | None:
        """``(N_r, …)`` of each to ``(ΣN_r, …)`` on the CPU of the first; None for the others."""
        if self.count == 1:
            return value.cpu()
        if not self.first:
            if len(value):
                dist.send(value.contiguous(), 0)
            return None
        # One after the other, so that no device holds all of it.
        whole = torch.empty((sum(lengths), *value.shape[1:]), dtype=value.dtype)
        whole[: len(value)] = value
        end = len(value)
        for rank, length in enumerate(lengths[1:], 1):
            if length:
                part = value.new_empty((length, *value.shape[1:]))
                dist.recv(part, rank)
                whole[end : end + length] = part
            end += length
        return whole

    def any(self, flag: bool) -> bool:
        """Whether the flag is set in one of them."""
        if self.count == 1:
            return flag
        on_gpu = dist.get_backend() == "nccl"
        return bool(self.sum(torch.tensor(int(flag), device="cuda" if on_gpu else "cpu")).item())

    def tell(self, what: Any) -> list[Any]:
        """What each has to say, for all to hear; of things that pickle, for a few words."""
        if self.count == 1:
            return [what]
        said: list[Any] = [None] * self.count
        dist.all_gather_object(said, what)
        return said

    def share(self, number: int) -> slice:
        """Which of ``number`` things in a row, as ``gather`` puts them, are this one's."""
        each = number // self.count
        return slice(self.rank * each, (self.rank + 1) * each)

    def classes(self, number: int, rank: int | None = None) -> range:
        """Which of ``number`` classes are this one's, or another's; shares differ by one at most."""
        rank = self.rank if rank is None else rank
        return range(rank * number // self.count, (rank + 1) * number // self.count)


def these_processes() -> Processes:
    """Those that torch.distributed has connected, or this one alone."""
    if dist.is_available() and dist.is_initialized():
        return Processes(dist.get_rank(), dist.get_world_size())
    return Processes()


@contextmanager
def connected(device: str) -> Iterator[Processes]:
    """Connect with the others where ``torchrun`` has started several, by nccl on GPUs and gloo otherwise.

    Args:
        device: "auto", "cpu" or "cuda".
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or dist.is_initialized():
        yield these_processes()
        return
    on_gpu = device != "cpu" and torch.cuda.is_available()
    if on_gpu:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    store, rank, count = next(rendezvous("env://", timeout=MEETING))
    # Several runs may have one store.
    own = PrefixStore(os.environ.get("TORCHELASTIC_RUN_ID", "facerts"), store)
    dist.init_process_group(
        "nccl" if on_gpu else "gloo",
        store=meet(own, rank, count, MEETING),
        rank=rank,
        world_size=count,
        timeout=MEETING,
    )
    dist.distributed_c10d._set_pg_timeout(PATIENCE)
    yield these_processes()
    # Not after an error, where it may wait for the others while they wait for this one.
    dist.destroy_process_group()
