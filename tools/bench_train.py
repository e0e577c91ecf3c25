"""What one recipe costs over another in a training step: both in one process, step by step in turn.

Random crops stand for decoded ones, so that nothing but the step is timed. Example:

    python tools/bench_train.py --recipe faces_small_rts --against faces_small_arcface --identities 8648

What compiling the step saves, the time that compiling itself takes left out:

    python tools/bench_train.py --change compute.compile=true --against faces_small_rts

What is gained over a loop in the field's usual style on the same network, images/s and, on a GPU, memory:

    python tools/bench_train.py --change compute.compile=true --against plain
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from plain_loop import PlainLearner

from facerts.methods import Batch
from facerts.train.learner import Learner
from facerts.train.recipe import load_recipe


def seconds(learner: Learner | PlainLearner, crops: torch.Tensor, batch: Batch) -> float:
    """Wall time of one step."""
    if learner.device.type == "cuda":
        torch.cuda.synchronize()
    began = time.perf_counter()
    learner.step(crops, batch, 0.01)
    if learner.device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--recipe", default="faces_small_rts")
    parser.add_argument(
        "--against",
        default="faces_small_arcface",
        help='a recipe, or "plain" for the usual loop on --recipe\'s network',
    )
    parser.add_argument("--identities", type=int, default=8648)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument(
        "--change",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a field of --recipe alone; repeatable",
    )
    parser.add_argument("overrides", nargs="*", help="recipe fields for both, e.g. backbone.width=0.5")
    options = parser.parse_args()

    plain = options.against == "plain"
    recipes = [
        load_recipe(options.recipe, [*options.overrides, *options.change]),
        load_recipe(options.recipe if plain else options.against, options.overrides),
    ]
    names = [" ".join([recipes[0].name, *options.change]), "plain loop" if plain else recipes[1].name]
    if threads := recipes[0].compute.threads:
        torch.set_num_threads(threads)
    kinds = (Learner, PlainLearner if plain else Learner)
    learners = [kind(recipe, options.identities) for kind, recipe in zip(kinds, recipes, strict=True)]
    peaks = [0.0, 0.0]
    size = recipes[0].optim.batch_size
    generator = torch.Generator().manual_seed(0)
    times: list[list[float]] = [[], []]
    for step in range(options.steps + 3):
        crops = torch.randint(0, 256, (size, 112, 112, 3), dtype=torch.uint8, generator=generator)
        labels = torch.randint(0, options.identities, (size,), generator=generator)
        # Who goes first changes from step to step, so that a drift of the machine hits both alike.
        for which in (0, 1) if step % 2 else (1, 0):
            batch = Batch(labels.to(learners[which].device), torch.arange(size), step, seed=0)
            if torch.cuda.is_available():
                torch.cuda.reset_peak_memory_stats()
            taken = seconds(learners[which], crops, batch)
            if torch.cuda.is_available():
                peaks[which] = torch.cuda.max_memory_allocated() / (1 << 20)
            if step >= 3:
                times[which].append(taken)
    ratios = sorted(first / second for first, second in zip(*times, strict=True))
    for name, taken, peak in zip(names, times, peaks, strict=True):
        rate = size / statistics.median(taken)
        memory = f", {peak:,.0f} MiB with both in memory" if peak else ""
        print(f"{name}: median {1000 * statistics.median(taken):.1f} ms a step, {rate:.1f} images/s{memory}")
    low, high = ratios[len(ratios) // 4], ratios[(3 * len(ratios)) // 4]
    print(
        f"ratio {names[0]} / {names[1]} over {len(ratios)} pairs of steps: "
        f"median {statistics.median(ratios):.4f}, quartiles {low:.4f} to {high:.4f}; "
        f"ratio of medians {statistics.median(times[0]) / statistics.median(times[1]):.4f}"
    )


if __name__ == "__main__":
    main()
