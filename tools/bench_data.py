"""Reading pictures beside the pure decoding of the same pictures, in turn in one run.

The limit is the decoding of bytes that lie in memory, by as many processes. Example:

    python tools/bench_data.py --data ../shared/data/faces/train-00000*.tar --processes 2 --workers 0 1 2 4
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from facerts.curation.pack import pack_records
from facerts.datasets import Source, open_source
from facerts.datasets.synthetic import write_synthetic_faces
from facerts.training.loader import TrainingData
from facerts.training.recipe import load_recipe


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--data", nargs="*", default=[], help="pictures with identities; drawn ones by default"
    )
    parser.add_argument("--images", type=int, default=12_000)
    parser.add_argument("--processes", type=int, default=2, help="that read and decode")
    parser.add_argument(
        "--workers", type=int, nargs="+", default=[0, 1, 2, 4], help="that hand batches to a training process"
    )
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home, processes = Path(folder), options.processes
        if not options.data:
            write_synthetic_faces(home / "faces", identities=100, images=20)
        pack_records(open_source(options.data or home / "faces"), home / "rec", check=False)
        records = open_source(home / "rec")
        count = min(options.images, len(records))
        orders = {
            "sequential": np.arange(count),
            "random": np.random.default_rng(0).permutation(len(records))[:count],
        }
        limit = f"decode, {processes} processes"
        goals: dict[str, Callable[[], float]] = {
            **{
                f"read and decode, {name}, {processes} processes": partial(
                    read_rate, records, order, processes
                )
                for name, order in orders.items()
            },
            **{
                f"training batches, {workers} workers": partial(batch_rate, home / "rec", count, workers)
                for workers in options.workers
            },
        }
        measures: dict[str, Callable[[], float]] = {
            **{f"bytes, {name}": partial(bytes_rate, records, order) for name, order in orders.items()},
            "decode, 1 process": partial(decode_rate, records, count, 1),
            limit: partial(decode_rate, records, count, processes),
            **goals,
        }
        rates: dict[str, list[float]] = {name: [] for name in measures}
        for _ in range(options.rounds):
            for name, run in measures.items():
                rates[name].append(run())
    print(f"{count:,} pictures, median of {options.rounds} rounds, images/s")
    for name, values in rates.items():
        print(f"  {name:42} {statistics.median(values):10,.0f}   ({min(values):,.0f} to {max(values):,.0f})")
    for name in goals:
        ratios = [value / bound for value, bound in zip(rates[name], rates[limit], strict=True)]
        print(f"{name} / {limit}: median {statistics.median(ratios):.3f}")


def bytes_rate(source: Source, order: np.ndarray) -> float:
    """Bytes of pictures by one process, not decoded."""
    began = time.perf_counter()
    for index in order:
        source.read(int(index))
    return len(order) / (time.perf_counter() - began)


def decode_rate(source: Source, count: int, processes: int) -> float:
    """Pure decoding by OpenCV, every process from memory."""
    shares = [[source.read(i) for i in range(start, count, processes)] for start in range(processes)]
    return rate_of(_decode, shares)


def read_rate(source: Source, order: np.ndarray, processes: int) -> float:
    """Pictures as crops, checks and all, every process a share of the order."""
    return rate_of(partial(_read, source), [order[start::processes] for start in range(processes)])


def batch_rate(folder: Path, count: int, workers: int) -> float:
    """The training loader without augmentation: random reads, decoding, batches handed to this process."""
    overrides = [
        f"data.train={folder}",
        "data.name=drawn",
        "data.terms=none",
        f"data.workers={workers}",
        "data.augmentation={flip: false}",
    ]
    recipe = load_recipe("faces_small_rts", overrides)
    data, size = TrainingData(recipe), recipe.optim.batch_size
    # Starting the workers is not reading; it is paid once in a run of hours.
    warm = 2 * workers
    batches = data.batches(0, count // size + warm)
    for _ in range(warm):
        next(batches)
    began = time.perf_counter()
    images = sum(len(labels) for _, labels, _ in batches)
    return images / (time.perf_counter() - began)


def rate_of(work: Callable[[Any], None], shares: Sequence[Any]) -> float:
    """Items a second, a process for each share, from the first one's start to the last one's end."""
    context = get_context("fork")
    begin, results = context.Barrier(len(shares)), context.Queue()
    processes = [context.Process(target=_timed, args=(work, share, begin, results)) for share in shares]
    for process in processes:
        process.start()
    spans = [results.get() for _ in processes]
    for process in processes:
        process.join()
    return sum(map(len, shares)) / (max(end for _, end in spans) - min(start for start, _ in spans))


def _timed(work: Callable[[Any], None], share: Any, begin: Any, results: Any) -> None:
    cv2.setNumThreads(0)
    begin.wait()
    started = time.perf_counter()
    work(share)
    results.put((started, time.perf_counter()))


def _decode(share: list[bytes]) -> None:
    for data in share:
        cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)


def _read(source: Source, order: np.ndarray) -> None:
    for index in order:
        source.crop(int(index))


if __name__ == "__main__":
    main()
