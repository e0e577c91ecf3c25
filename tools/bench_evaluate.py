"""A whole evaluation of a verification set beside the bare network over the same crops, in turn in one run.

The evaluation opens the set, decodes, embeds, measures verification and error versus reject with intervals, on the
listed pairs and, where people are known, on every pair, and writes the result with the images for a report. The
bare network gets its input ready made; only its runs are timed. Memory is the peak of processes of their own.

    python tools/bench_evaluate.py --model m.onnx --data lfw.bin
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from facerts.benchmarks import open_benchmark, pairs_from_identities
from facerts.benchmarks.bin_sets import save_bin
from facerts.datasets import open_source
from facerts.datasets.synthetic import write_synthetic_faces
from facerts.embedding import load_embedder
from facerts.embedding.onnx_embedder import to_input
from facerts.evaluation.options import EvaluationOptions
from facerts.evaluation.run import run_pairs

BATCH = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", help="any benchmark of pairs; drawn people by default")
    parser.add_argument("--no-flip", dest="flip", action="store_false")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--only", choices=("bare", "whole"), help="run one of both and print seconds and peak MB"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = options.data or draw(Path(folder))
        if options.only:
            run = {"bare": bare, "whole": whole}[options.only]
            seconds = run(options.model, data, options.flip)
            print(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
            return
        taken: dict[str, list[tuple[float, float]]] = {"bare": [], "whole": []}
        for round_number in range(options.rounds):
            for which in ("bare", "whole") if round_number % 2 == 0 else ("whole", "bare"):
                taken[which].append(apart(which, options.model, data, options.flip))
    for which, runs in taken.items():
        seconds, peaks = zip(*runs, strict=True)
        print(
            f"{which}: median {statistics.median(seconds):.2f} s ({min(seconds):.2f} to {max(seconds):.2f}), "
            f"peak {max(peaks):,.0f} MB"
        )
    ratios = [w[0] / b[0] for w, b in zip(taken["whole"], taken["bare"], strict=True)]
    extra = max(p for _, p in taken["whole"]) - max(p for _, p in taken["bare"])
    print(f"whole / bare: median {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})")
    print(f"memory beyond the bare network: {extra:,.0f} MB")


def apart(which: str, model: str, data: str, flip: bool) -> tuple[float, float]:
    """Seconds and peak memory of one of both in a process of its own."""
    command = [sys.executable, __file__, "--model", model, "--data", data, "--only", which]
    ran = subprocess.run(
        command + ([] if flip else ["--no-flip"]), check=True, stdout=subprocess.PIPE, text=True
    )
    seconds, peak = ran.stdout.split()[-2:]
    return float(seconds), float(peak)


def bare(model: str, data: str, flip: bool) -> float:
    """Seconds that the session itself runs, batch by batch; decoding and preparing the input do not count.

    Images that a benchmark repeats are run once, as in an evaluation.
    """
    embedder = load_embedder(model)
    images = open_benchmark(data).images
    distinct = list({images.read(i): i for i in range(len(images))}.values())
    session, told = embedder.session, embedder.description.input
    size = told.batch or BATCH
    seconds = 0.0
    for start in range(0, len(distinct), size):
        crops = np.stack([images.crop(i) for i in distinct[start : start + size]])
        for view in (crops, np.ascontiguousarray(crops[:, :, ::-1])) if flip else (crops,):
            feed = {told.name: to_input(view, told)}
            began = time.perf_counter()
            session.run(None, feed)
            seconds += time.perf_counter() - began
    return seconds


def whole(model: str, data: str, flip: bool) -> float:
    """Seconds of the whole evaluation."""
    with tempfile.TemporaryDirectory() as out:
        named = open_benchmark(data).images.labels is not None
        options = EvaluationOptions(flip=flip, batch_size=BATCH, every_pair=named)
        began = time.perf_counter()
        run_pairs(load_embedder(model), ["verification", "reject"], [data], out, options)
        return time.perf_counter() - began


def draw(folder: Path) -> str:
    write_synthetic_faces(folder / "people", identities=200, images=6)
    pairs = pairs_from_identities(open_source(folder / "people"), genuine=1000, impostors=1000, seed=0)
    save_bin(pairs, folder / "people.bin")
    return str(folder / "people.bin")


if __name__ == "__main__":
    main()
