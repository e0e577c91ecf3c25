"""How the processes of one start find each other, and none of an earlier start.

torchrun keeps one key-value store while it starts its processes again and again, and PyTorch 2.13 writes addresses
there under the same names each time (github.com/pytorch/pytorch/issues/135712). So the first to come back after one
has died may read the address of the dead, and cannot connect. How often torchrun has started them is no help: on
several machines each counts for itself.
"""

from __future__ import annotations

import json
import secrets
import time
from datetime import timedelta

from torch.distributed.distributed_c10d import PrefixStore, Store

from facerts.errors import Error

LOOK_AGAIN_S = 0.05


def meet(store: Store, rank: int, count: int, patience: timedelta) -> Store:
    """Wait until all are here, and give them a part of ``store`` in which nobody has written before.

    Each says under its rank a token that was never used before. The first makes a list of the tokens, anew whenever
    one of them changes, and all who find their own in it agree. A list with a token of an earlier start is never
    agreed to by all, for whoever had that token is no more.

    Args:
        store: may hold what earlier starts wrote.
        rank: of this process.
        count: of processes.
        patience: how long to wait for the others.

    Raises:
        Error: not all have come.
    """
    own = secrets.token_hex(8)
    store.set(f"here/{rank}", own)
    listed: list[str] = []
    read = agreed = ""
    deadline = time.monotonic() + patience.total_seconds()
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
        time.sleep(LOOK_AGAIN_S)
    raise Error(
        f"process {rank} of {count} waited {patience.total_seconds():.0f} s for the others in vain; see what they said"
    )
