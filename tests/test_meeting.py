"""The processes of one start find each other, whatever an earlier start left behind."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed (facerts[train])")

from torch.distributed import HashStore  # type: ignore[attr-defined]
from torch.distributed.distributed_c10d import Store

from facerts.errors import Error
from facerts.training.distributed.rendezvous import meet
from tests.ports import free_port

PATIENCE = timedelta(seconds=30)


def start(store: Store, late: list[float]) -> list[Store]:
    """Let processes meet that come so many seconds late; what each was given."""

    def come(rank: int) -> Store:
        time.sleep(late[rank])
        return meet(store, rank, len(late), PATIENCE)

    with ThreadPoolExecutor(len(late)) as threads:
        return list(threads.map(come, range(len(late))))


@pytest.mark.parametrize(
    "late",
    [[0.0], [0.0, 0.0], [0.3, 0.0, 0.0], [0.0, 0.3, 0.1, 0.0]],
    ids=["one", "two", "first late", "four"],
)
def test_each_start_has_a_part_of_its_own(late: list[float]) -> None:
    store = HashStore()
    for round_ in ("first", "second", "third"):
        parts = start(store, late)
        for part in parts:
            assert not part.check(["address"])
        parts[0].set("address", round_)
        assert [part.get("address") for part in parts] == [round_.encode()] * len(late)


def test_nobody_is_given_the_dead_for_the_living() -> None:
    store = HashStore()
    start(store, [0.0, 0.0])
    with ThreadPoolExecutor(1) as threads:
        early = threads.submit(meet, store, 0, 2, PATIENCE)
        time.sleep(0.5)
        assert not early.done(), "the second of the first start counted as here"
        part = meet(store, 1, 2, PATIENCE)
        part.set("address", "new")
        assert early.result().get("address") == b"new"


def test_who_died_while_they_met_is_not_waited_for_by_the_next_start() -> None:
    store = HashStore()
    with pytest.raises(Error, match=r"process 1 of 2 waited 0 s"):
        meet(store, 1, 2, timedelta(seconds=0.2))
    with pytest.raises(Error, match=r"process 0 of 2"):
        meet(store, 0, 2, timedelta(seconds=0.3))
    parts = start(store, [0.2, 0.0])
    parts[0].set("address", "new")
    assert parts[1].get("address") == b"new"


PROGRAM = """
import os, sys, time
rank, again = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
if again and rank == 1:
    time.sleep(3)
from facerts.training.distributed.collectives import connected
with connected("cpu") as processes:
    said = processes.tell((rank, again))
    if processes.first:
        print(said, flush=True)
    if not again:
        os._exit(1) if rank == 1 else time.sleep(60)
"""


@pytest.mark.slow
@pytest.mark.parametrize("where", ["--standalone", "--master-port"])
def test_torchrun_starts_again_although_one_comes_late(where: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    told = [where] if where == "--standalone" else [where, str(free_port())]
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "1")
    done = subprocess.run(
        [*torchrun, *told, str(program)], check=False, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["[(0, 0), (1, 0)]", "[(0, 1), (1, 1)]"]
