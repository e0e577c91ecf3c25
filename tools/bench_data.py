"""Compares the rates of reading images and of loading training batches with that of pure decoding.

The upper limit is decoding the same images from memory with the same number of processes. Example:

    python tools/bench_data.py --data ../shared/data/faces/train-00000*.tar --processes 2 --workers 0 1 2 4
"""

from __future__ import annotations

import json
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
from bench import alternate, machine, parser_of, ratios, spread

from facerts.curation.output_spec import OutputSpec
from facerts.curation.rearrange import pack
from facerts.datasets import Source, open_source
from facerts.datasets.synthetic import write_synthetic_faces
from facerts.training.loader import TrainingData
from facerts.training.recipe import load_recipe


def main() -> None:
    parser = parser_of(
        __doc__,
        {
            "--images": (12_000, "maximum number of images to read"),
            "--processes": (2, "processes that read and decode"),
            "--workers": ([0, 1, 2, 4], "numbers of worker processes that load training batches"),
            "--json": (Path, "file for the numbers"),
        },
        rounds=5,
    )
    parser.add_argument("--data", nargs="*", help="images with identities; synthetic faces by default")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        scratch, processes = Path(folder), options.processes
        if not options.data:
            write_synthetic_faces(scratch / "faces", identities=100, images=20)
        pack([open_source(options.data or scratch / "faces")], OutputSpec(scratch / "rec"))
        records = open_source(scratch / "rec")
        count = min(options.images, len(records))
        orders = {
            "sequential": np.arange(count),
            "random": np.random.default_rng(0).permutation(len(records))[:count],
        }
        limit = f"decode, {processes} processes"
        readers: dict[str, Callable[[], float]] = {
            f"read and decode, {name}, {processes} processes": partial(read_rate, records, order, processes)
            for name, order in orders.items()
        }
        for workers in options.workers:
            readers[f"training batches, {workers} workers"] = partial(batch_rate, scratch / "rec", count, workers)
        decode = {limit: partial(decode_rate, records, count, processes)}
        rates = alternate({**decode, **readers}, options.rounds, warm_up=0)
    print(f"{count:,} images, median of {options.rounds} rounds, images/s; {machine()}")
    for name, values in rates.items():
        print(f"  {name:42} {spread(values, ',.0f')}")
    for name in readers:
        print(f"{name} / {limit}: {spread(ratios(rates[name], rates[limit]), '.3f')}")
    if options.json:
        medians = {name: statistics.median(values) for name, values in rates.items()}
        options.json.write_text(json.dumps({"images": count, "images_per_s": medians}))


def decode_rate(source: Source, count: int, processes: int) -> float:
    """Images/s that OpenCV decodes from memory."""
    shares = [[source.read(i) for i in range(start, count, processes)] for start in range(processes)]
    return rate_of(_decode, shares)


def read_rate(source: Source, order: np.ndarray, processes: int) -> float:
    """Images/s that are read as crops, including all checks."""
    return rate_of(partial(_read, source), [order[start::processes] for start in range(processes)])


def batch_rate(folder: Path, count: int, workers: int) -> float:
    """Images/s of the training loader without augmentation: random reads, decoding, transfer to this process."""
    overrides = [
        f"data.train={folder}",
        "data.holdout_identities=0",
        f"data.workers={workers}",
        "data.augmentation={flip: false}",
    ]
    recipe = load_recipe("faces_small_rts", overrides)
    data, size = TrainingData(recipe), recipe.optim.batch_size
    # Starting the workers is not measured; a run of hours does it once.
    warm_up = 2 * workers
    batches = data.batches(0, count // size + warm_up)
    for _ in range(warm_up):
        next(batches)
    start = time.perf_counter()
    images = sum(len(labels) for _, labels, *_ in batches)
    return images / (time.perf_counter() - start)


def rate_of(work: Callable[[Any], None], shares: Sequence[Any]) -> float:
    """Items/s with one process per share, from the first start to the last end."""
    context = get_context("fork")
    barrier, results = context.Barrier(len(shares)), context.Queue()
    processes = [context.Process(target=_timed, args=(work, share, barrier, results)) for share in shares]
    for process in processes:
        process.start()
    spans = [results.get() for _ in processes]
    for process in processes:
        process.join()
    return sum(map(len, shares)) / (max(end for _, end in spans) - min(start for start, _ in spans))


def _timed(work: Callable[[Any], None], share: Any, barrier: Any, results: Any) -> None:
    cv2.setNumThreads(0)
    barrier.wait()
    start = time.perf_counter()
    work(share)
    results.put((start, time.perf_counter()))


def _decode(share: list[bytes]) -> None:
    for data in share:
        cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)


def _read(source: Source, order: np.ndarray) -> None:
    for index in order:
        source.crop(int(index))


if __name__ == "__main__":
    main()
