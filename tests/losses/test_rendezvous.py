"""The processes of one start find each other, whatever an earlier start has left in the store."""

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed (facerts[train])")

from torch.distributed import HashStore

from facerts.errors import Error
from facerts.losses.collectives import rendezvous
from tests.command import free_port

TIMEOUT = timedelta(seconds=30)


def start(store, delays):
    """Let processes rendezvous after delays in seconds, and return the store that each gets."""

    def join(rank):
        time.sleep(delays[rank])
        return rendezvous(store, rank, len(delays), TIMEOUT)

    with ThreadPoolExecutor(len(delays)) as threads:
        return list(threads.map(join, range(len(delays))))


@pytest.mark.parametrize(
    "late",
    [[0.0], [0.0, 0.0], [0.3, 0.0, 0.0], [0.0, 0.3, 0.1, 0.0]],
    ids=["one", "two", "first late", "four"],
)
def test_each_start_gets_its_own_part_of_the_store(late):
    store = HashStore()
    for round_ in ("first", "second", "third"):
        parts = start(store, late)
        for part in parts:
            assert not part.check(["address"])
        parts[0].set("address", round_)
        assert [part.get("address") for part in parts] == [round_.encode()] * len(late)


def test_no_process_connects_to_one_of_an_earlier_start():
    store = HashStore()
    start(store, [0.0, 0.0])
    with ThreadPoolExecutor(1) as threads:
        early = threads.submit(rendezvous, store, 0, 2, TIMEOUT)
        time.sleep(0.5)
        assert not early.done(), "the second process of the first start was counted"
        part = rendezvous(store, 1, 2, TIMEOUT)
        part.set("address", "new")
        assert early.result().get("address") == b"new"


def test_a_process_that_died_during_the_rendezvous_does_not_block_the_next_start():
    store = HashStore()
    with pytest.raises(Error, match=r"process 1 of 2: the other processes did not all connect within 0 s"):
        rendezvous(store, 1, 2, timedelta(seconds=0.2))
    with pytest.raises(Error, match=r"process 0 of 2"):
        rendezvous(store, 0, 2, timedelta(seconds=0.3))
    parts = start(store, [0.2, 0.0])
    parts[0].set("address", "new")
    assert parts[1].get("address") == b"new"


PROGRAM = """
import os, sys, time
rank, again = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
if again and rank == 1:
    time.sleep(3)
from facerts.losses.collectives import connected
with connected("cpu") as processes:
    gathered = processes.all_gather_object((rank, again))
    if processes.first:
        print(gathered, flush=True)
    if not again:
        os._exit(1) if rank == 1 else time.sleep(60)
"""


@pytest.mark.slow
def test_torchrun_restarts_although_one_process_is_late(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    options = ["--master-port", str(free_port())]
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "1")
    done = subprocess.run([*torchrun, *options, str(program)], check=False, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["[(0, 0), (1, 0)]", "[(0, 1), (1, 1)]"]
