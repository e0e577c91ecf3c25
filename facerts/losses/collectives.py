"""The processes of a run, one or several connected by torch.distributed, and the collectives between them.

With a single process every collective returns its input, so that callers need no special case.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous as env_rendezvous

from facerts.errors import Error

# PyTorch 2.13 renamed it.
_all_gather: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
# Maximum wait until all processes have connected; if one gives up, torchrun starts all of them again.
RENDEZVOUS_TIMEOUT = timedelta(minutes=5)
# Maximum wait in a collective afterwards: the first process sometimes validates or writes a checkpoint.
COLLECTIVE_TIMEOUT = timedelta(hours=2)
POLL_INTERVAL_S = 0.05


@dataclass(frozen=True)
class Processes:
    """This process among all R processes of the run."""

    rank: int = 0
    count: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files and messages."""
        return self.rank == 0

    def all_gather(self, value: Tensor) -> Tensor:
        """``(N, …)`` of each process to ``(R·N, …)`` on all, in order of rank."""
        if self.count == 1:
            return value
        out = value.new_empty((self.count * len(value), *value.shape[1:]))
        _all_gather(out, value.contiguous())
        return out

    def all_gather_object(self, value: Any) -> list[Any]:
        """A small picklable object of each process, on all, in order of rank."""
        if self.count == 1:
            return [value]
        values: list[Any] = [None] * self.count
        dist.all_gather_object(values, value)
        return values

    def all_reduce_sum(self, value: Tensor) -> Tensor:
        """Elementwise sum over all processes."""
        if self.count > 1:
            value = value.contiguous()
            dist.all_reduce(value)
        return value

    def all_reduce_max(self, value: Tensor) -> Tensor:
        """Elementwise maximum over all processes."""
        if self.count > 1:
            value = value.clone()
            dist.all_reduce(value, op=dist.ReduceOp.MAX)
        return value

    def all_reduce_logsumexp(self, value: Tensor) -> Tensor:
        """Elementwise log Σ exp over all processes; −∞ contributes nothing."""
        if self.count == 1:
            return value
        maximum = self.all_reduce_max(value)
        return self.all_reduce_sum((value - maximum).exp()).log() + maximum

    def gather_on_first(self, value: Tensor, lengths: list[int]) -> Tensor | None:
        """``(N_r, …)`` of each process to ``(ΣN_r, …)`` on the CPU of the first, None on the others."""
        if self.count == 1:
            return value.cpu()
        if not self.first:
            if len(value):
                dist.send(value.contiguous(), 0)
            return None
        # One process after the other, so that no device holds the whole tensor.
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
        """Whether the flag is set in any process."""
        if self.count == 1:
            return flag
        on_gpu = dist.get_backend() == "nccl"
        return bool(self.all_reduce_sum(torch.tensor(int(flag), device="cuda" if on_gpu else "cpu")).item())

    def own_rows(self, count: int) -> slice:
        """The rows of this process among ``count`` rows in the order of ``all_gather``."""
        each = count // self.count
        return slice(self.rank * each, (self.rank + 1) * each)

    def own_classes(self, count: int, rank: int | None = None) -> range:
        """The classes of this (or another) process among ``count``; shares differ by at most one."""
        rank = self.rank if rank is None else rank
        return range(rank * count // self.count, (rank + 1) * count // self.count)


def average_gradients(parameters: Iterable[nn.Parameter], processes: Processes) -> None:
    """Average the gradients of parameters that DistributedDataParallel does not wrap over the processes, in place."""
    if processes.count == 1:
        return
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.grad = processes.all_reduce_sum(parameter.grad) / processes.count


def current_processes() -> Processes:
    """The processes that torch.distributed has connected, or this one alone."""
    if dist.is_available() and dist.is_initialized():
        return Processes(dist.get_rank(), dist.get_world_size())
    return Processes()


@contextmanager
def connected(device: str) -> Iterator[Processes]:
    """Connect the processes that ``torchrun`` has started, by NCCL on GPUs and by gloo otherwise."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or dist.is_initialized():
        yield current_processes()
        return
    on_gpu = device != "cpu" and torch.cuda.is_available()
    if on_gpu:
        # With more processes than GPUs, NCCL says which of them share one.
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    store, rank, count = next(env_rendezvous("env://", timeout=RENDEZVOUS_TIMEOUT))
    # Several runs may share a store.
    own = PrefixStore(os.environ.get("TORCHELASTIC_RUN_ID", "facerts"), store)
    dist.init_process_group(
        "nccl" if on_gpu else "gloo",
        store=rendezvous(own, rank, count, RENDEZVOUS_TIMEOUT),
        rank=rank,
        world_size=count,
        timeout=RENDEZVOUS_TIMEOUT,
    )
    dist.distributed_c10d._set_pg_timeout(COLLECTIVE_TIMEOUT)
    yield current_processes()
    # Not after an error: this could wait for the other processes while they wait for this one.
    dist.destroy_process_group()


def rendezvous(store: Store, rank: int, count: int, timeout: timedelta) -> Store:
    """Wait until all processes are here, and return a part of the store that nobody has written to before.

    Each process writes a new random token under its rank. The first process publishes the list of tokens, again
    whenever one of them changes, and every process that finds its own token in the list agrees to it. A list with a
    token of an earlier start is never agreed to by all, because the process that wrote that token is gone.
    """
    own = secrets.token_hex(8)
    store.set(f"here/{rank}", own)
    listed: list[str] = []
    read = agreed = ""
    deadline = time.monotonic() + timeout.total_seconds()
    while time.monotonic() < deadline:
        if rank == 0 and store.check([f"here/{other}" for other in range(count)]):
            here = [store.get(f"here/{other}").decode() for other in range(count)]
            if here != listed:
                listed, name = here, secrets.token_hex(8)
                store.set(f"list/{name}", json.dumps(here))
                store.set("name", name)
        if store.check(["name"]) and (name := store.get("name").decode()) != read:
            read = name
            if own in json.loads(store.get(f"list/{name}")):
                agreed = name
                store.add(f"agreed/{agreed}", 1)
        if agreed and store.add(f"agreed/{agreed}", 0) == count:
            return PrefixStore(f"start/{agreed}", store)
        time.sleep(POLL_INTERVAL_S)
    raise Error(
        f"process {rank} of {count}: the other processes did not all connect within {timeout.total_seconds():.0f} s; "
        "see their output for the reason"
    )
