"""A whole evaluation of a verification set beside the bare network over the same crops, in turn in one run.

The evaluation opens the set, decodes, embeds, measures verification and error versus reject with intervals, on the
listed pairs and, where people are known, on every pair, and writes the result with the images for a report. The
bare network gets its input ready made; only its runs are timed. Memory is the peak of processes of their own.

    python tools/bench_evaluate.py --model m.onnx --data lfw.bin
"""

from __future__ import annotations

import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
from bench import alternate, in_process, machine, parser_of, peak_mib, ratios, spread

from facerts.datasets import open_benchmark, open_source, pairs_from_identities
from facerts.datasets.pair_layouts import save_bin
from facerts.datasets.synthetic import write_synthetic_faces
from facerts.embedding import load_embedder
from facerts.embedding.onnx_embedder import to_input
from facerts.evaluation.benchmark_runs import run_pairs
from facerts.evaluation.evaluation_options import EvaluationOptions

BATCH = 64


def main() -> None:
    parser = parser_of(
        __doc__,
        {
            "--data": (str, "any benchmark of pairs; drawn people by default"),
            "--no-flip": (False, "one view only"),
        },
        rounds=3,
    )
    parser.add_argument("--model", required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        arguments = (options.model, options.data or draw(Path(folder)), not options.no_flip)
        candidates = {run.__name__: partial(in_process, run, *arguments) for run in (bare, whole)}
        taken = alternate(candidates, options.rounds, warm_up=0)
    print(machine())
    seconds = {name: [run[0] for run in runs] for name, runs in taken.items()}
    peaks = {name: max(run[1] for run in runs) for name, runs in taken.items()}
    for name in taken:
        print(f"{name}: {spread(seconds[name])} s, peak {peaks[name]:,.0f} MiB")
    print(f"whole / bare: {spread(ratios(seconds['whole'], seconds['bare']), '.3f')}")
    print(f"memory beyond the bare network: {peaks['whole'] - peaks['bare']:,.0f} MiB")


def bare(model: str, data: str, flip: bool) -> tuple[float, float]:
    """Seconds that the session itself runs, without decoding and preparing the input, and peak MiB.

    Images that a benchmark repeats are run once, as in an evaluation.
    """
    embedder = load_embedder(model)
    images = open_benchmark(data).images
    distinct = list({images.read(i): i for i in range(len(images))}.values())
    session, description = embedder.session, embedder.description.input
    size = description.batch or BATCH
    seconds = 0.0
    for start in range(0, len(distinct), size):
        crops = np.stack([images.crop(i) for i in distinct[start : start + size]])
        for view in (crops, np.ascontiguousarray(crops[:, :, ::-1])) if flip else (crops,):
            feed = {description.name: to_input(view, description)}
            began = time.perf_counter()
            session.run(None, feed)
            seconds += time.perf_counter() - began
    return seconds, peak_mib()


def whole(model: str, data: str, flip: bool) -> tuple[float, float]:
    """Seconds of the whole evaluation, and peak MiB."""
    with tempfile.TemporaryDirectory() as out:
        named = open_benchmark(data).images.labels is not None
        options = EvaluationOptions(flip=flip, batch_size=BATCH, every_pair=named)
        began = time.perf_counter()
        run_pairs(load_embedder(model), ["verification", "reject"], [data], out, options)
        return time.perf_counter() - began, peak_mib()


def draw(folder: Path) -> str:
    write_synthetic_faces(folder / "people", identities=200, images=6)
    pairs = pairs_from_identities(open_source(folder / "people"), genuine=1000, impostors=1000, seed=0)
    save_bin(pairs, folder / "people.bin")
    return str(folder / "people.bin")


if __name__ == "__main__":
    main()
