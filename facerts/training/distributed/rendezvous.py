"""Rendezvous: how the processes of one start find each other, and none of an earlier start.

When torchrun restarts its processes it keeps the same key-value store, and PyTorch 2.13 writes addresses there under
the same keys each time (github.com/pytorch/pytorch/issues/135712). The first process to come back may therefore read
the address of a dead one and fail to connect. The restart count does not help, because with several machines each one
counts for itself.
"""

from __future__ import annotations

import json
import secrets
import time
from datetime import timedelta

from torch.distributed.distributed_c10d import PrefixStore, Store

from facerts.errors import Error

POLL_INTERVAL_S = 0.05


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
