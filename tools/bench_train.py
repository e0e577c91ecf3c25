"""Compares the training steps of two recipes, alternating between them within one process.

Random crops replace decoded ones, so that only the step is timed. Example:

    python tools/bench_train.py --recipe faces_small_rts --against faces_small_arcface --identities 8648

What compiling the step saves (not counting the time to compile):

    python tools/bench_train.py --change compute.compile=true --against faces_small_rts

Speedup over a conventional loop on the same network, with the duration and price of a whole training at the measured
rate:

    python tools/bench_train.py --change compute.compile=true --against plain --images 490623 --price 3.5

For each recipe it prints:
- images/s;
- the time of each phase, measured in further steps that synchronize after each phase ("backward" includes the update
  of the class centers, if they are updated there);
- peak memory of a few steps, above the memory of the process before the network is built, in a process of its own;
- the share of the best measured rate of a matrix product. A step counts 6 operations per multiply-add of the network
  and of the computed logits (2 for a frozen network), without recomputation.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from bench import alternate, in_process, machine, parser_of, peak_mib, ratios
from plain_loop import PlainLearner

from facerts.training.device import AUTOCAST, choose_precision
from facerts.training.learner import Learner
from facerts.training.methods import Batch
from facerts.training.nn import build_network
from facerts.training.nn.flops import count_multiply_adds
from facerts.training.recipe import Recipe, load_recipe

WARM_UP = 3
# Cost of the passes: the gradients of inputs and of weights each cost as much as the forward pass.
FORWARD, BACKWARD = 1, 2
PHASES = ("network", "loss", "backward", "optimizer")


def main() -> None:
    options = read_options()
    # Recipes name files, which the benchmark does not read.
    os.environ.setdefault("FACERTS_DATA", "data")
    recipes = [load_recipe(options.recipe, [*options.overrides, *options.change])]
    plain = options.against == "plain"
    recipes.append(load_recipe(options.recipe if plain else options.against, options.overrides))
    kinds = (Learner, PlainLearner if plain else Learner)
    if options.memory_of is not None:
        print(json.dumps(memory(kinds[options.memory_of], recipes[options.memory_of], options.identities)))
        return
    # First, because a child process inherits the peak memory of its parent.
    peaks = [in_process(sys.argv[0], [*sys.argv[1:], "--memory-of", str(index)]) for index in (0, 1)]
    names = [" ".join([recipes[0].name, *options.change]), "plain loop" if plain else recipes[1].name]
    if threads := recipes[0].compute.threads:
        torch.set_num_threads(threads)
    # As in our training loop and in conventional ones.
    torch.backends.cudnn.benchmark = True
    learners = [kind(recipe, options.identities) for kind, recipe in zip(kinds, recipes, strict=True)]
    times = step_times(learners, options.identities, options.steps)
    phases = [phase_times(learner, options.identities, max(3, options.steps // 4)) for learner in learners]
    limit = max_rate(recipes[0], learners[0].device)

    size = recipes[0].optim.batch_size
    print(
        f"{learners[0].device}, {torch.get_num_threads()} threads, batch {size}, {options.identities:,} identities; "
        f"{machine()}"
    )
    print(f"matrix product: at most {limit / 1e12:.2f} TFLOP/s")
    measured = []
    for index, recipe in enumerate(recipes):
        duration = statistics.median(times[index])
        share = size * operations(recipe, options.identities) / duration / limit
        measured.append(
            {
                "name": names[index],
                "images_per_s": size / duration,
                "phases_s": phases[index],
                "mib": peaks[index],
                "share_of_product": share,
            }
        )
        print(f"{names[index]}: median {1000 * duration:.1f} ms per step, {size / duration:.1f} images/s")
        print("  " + ", ".join(f"{phase} {1000 * value:.1f} ms" for phase, value in phases[index].items()))
        print(f"  {peaks[index]:,.0f} MiB, {share:.1%} of the matrix product's rate")
        if options.images:
            print(f"  {estimate(recipe, options.images, size / duration, options.price)}")
    compared = sorted(ratios(*times))
    low, high = compared[len(compared) // 4], compared[(3 * len(compared)) // 4]
    print(
        f"ratio {names[0]} / {names[1]} over {len(compared)} pairs of steps: "
        f"median {statistics.median(compared):.4f}, quartiles {low:.4f} to {high:.4f}; "
        f"ratio of medians {statistics.median(times[0]) / statistics.median(times[1]):.4f}"
    )
    if options.json:
        result = {
            "device": str(learners[0].device),
            "batch": size,
            "identities": options.identities,
            "product_tflops": limit / 1e12,
            "learners": measured,
            "ratio": {
                "median": statistics.median(compared),
                "quartiles": [low, high],
                "pairs": len(compared),
            },
        }
        options.json.write_text(json.dumps(result))


def read_options() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("--recipe", default="faces_small_rts", help="Recipe to measure.")
    parser.add_argument(
        "--against",
        default="faces_small_arcface",
        help='Recipe to compare with, or "plain" for a conventional loop on the network of --recipe.',
    )
    parser.add_argument("--identities", type=int, default=8648, help="Number of identities.")
    parser.add_argument("--steps", type=int, default=40, help="Number of timed steps of each recipe.")
    parser.add_argument(
        "--change",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="Change a field of --recipe only; repeatable.",
    )
    parser.add_argument(
        "--images", type=int, help="Number of training images, to estimate the duration of a training."
    )
    parser.add_argument(
        "--price", type=float, help="Price of this machine per hour, to estimate the cost of a training."
    )
    parser.add_argument("--json", type=Path, metavar="PATH", help="File for the numbers.")
    parser.add_argument("--memory-of", type=int, choices=(0, 1), help=argparse.SUPPRESS)
    parser.add_argument(
        "overrides", nargs="*", help="Recipe fields to change in both, e.g. backbone.width=0.5."
    )
    return parser.parse_args()


def step_times(learners: list[Any], identities: int, steps: int) -> list[list[float]]:
    """Seconds of each step of both learners, after a warm-up."""
    numbers = [0, 0]

    def step(index: int) -> float:
        crops, labels = random_batch(learners[0].recipe, identities, numbers[index])
        numbers[index] += 1
        return seconds(learners[index], crops, labels, numbers[index] - 1)

    taken = alternate({str(index): partial(step, index) for index in (0, 1)}, steps, warm_up=WARM_UP)
    return list(taken.values())


def random_batch(recipe: Recipe, identities: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(step)
    size = recipe.optim.batch_size
    crops = torch.randint(0, 256, (size, 112, 112, 3), dtype=torch.uint8, generator=generator)
    return crops, torch.randint(0, identities, (size,), generator=generator)


def seconds(learner: Any, crops: torch.Tensor, labels: torch.Tensor, step: int) -> float:
    """Wall time of one step."""
    batch = Batch(labels.to(learner.device), torch.arange(len(labels)), step, seed=0)
    synchronize(learner.device)
    start = time.perf_counter()
    learner.step(crops, batch, 0.01)
    synchronize(learner.device)
    return time.perf_counter() - start


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def phase_times(learner: Any, identities: int, steps: int) -> dict[str, float]:
    """Median seconds of each phase of a step; "other" is the rest (copies, checks)."""
    times: dict[str, list[float]] = defaultdict(list)
    for step in range(steps + 1):
        crops, labels = random_batch(learner.recipe, identities, step)
        with timed(learner) as phases:
            total = seconds(learner, crops, labels, step)
        # The first step may compile again.
        if step:
            for phase in PHASES:
                times[phase].append(phases[phase])
            times["other"].append(total - sum(phases.values()))
    return {phase: statistics.median(values) for phase, values in times.items()}


@contextmanager
def timed(learner: Any) -> Iterator[dict[str, float]]:
    """Yield the seconds of each phase, summed over the steps in the block."""
    phases: dict[str, float] = defaultdict(float)
    functions = [
        (learner, "forward", "network"),
        (learner, "_loss", "loss"),
        (torch.Tensor, "backward", "backward"),
        (learner.optimizer, "step", "optimizer"),
    ]
    originals = [getattr(owner, name) for owner, name, _ in functions]

    def measured(function: Callable[..., Any], phase: str) -> Callable[..., Any]:
        def run(*arguments: Any, **options: Any) -> Any:
            synchronize(learner.device)
            start = time.perf_counter()
            result = function(*arguments, **options)
            synchronize(learner.device)
            phases[phase] += time.perf_counter() - start
            return result

        return run

    for (owner, name, phase), original in zip(functions, originals, strict=True):
        setattr(owner, name, measured(original, phase))
    try:
        yield phases
    finally:
        for (owner, name, _), original in zip(functions, originals, strict=True):
            setattr(owner, name, original)


def memory(kind: Callable[[Recipe, int], Any], recipe: Recipe, identities: int) -> float:
    """Peak memory of a few steps in MiB, above the memory of the process before."""
    if threads := recipe.compute.threads:
        torch.set_num_threads(threads)
    before = peak_mib()
    learner = kind(recipe, identities)
    for step in range(WARM_UP):
        crops, labels = random_batch(recipe, identities, step)
        seconds(learner, crops, labels, step)
    if learner.device.type == "cuda":
        return torch.cuda.max_memory_allocated() / (1 << 20)
    return peak_mib() - before


def operations(recipe: Recipe, identities: int) -> float:
    """Operations of a step per image: network and logits, forward and backward."""
    backbone = recipe.backbone
    network = build_network(
        backbone.name,
        embedding_size=backbone.embedding_size,
        heads=recipe.build_method().heads(),
        width=backbone.width,
    )
    logits = identities * backbone.embedding_size * (recipe.compute.class_sample or 1.0)
    passes = FORWARD if backbone.frozen else FORWARD + BACKWARD
    return 2 * (passes * count_multiply_adds(network) + (FORWARD + BACKWARD) * logits)


def max_rate(recipe: Recipe, device: torch.device) -> float:
    """Best measured rate of a large matrix product, in operations/s, in float32 and in the step's precision."""
    side = 8192 if device.type == "cuda" else 2048
    rates = []
    precision = choose_precision(recipe.compute.precision, device)
    for dtype in {torch.float32, AUTOCAST[precision] or torch.float32}:
        matrix = torch.randn(side, side, device=device, dtype=dtype)
        for _ in range(10):
            synchronize(device)
            start = time.perf_counter()
            matrix @ matrix
            synchronize(device)
            rates.append(2 * side**3 / (time.perf_counter() - start))
    return max(rates)


def estimate(recipe: Recipe, images: int, rate: float, price: float | None) -> str:
    """Estimated duration and cost of a whole training; only the steps are counted."""
    hours = recipe.optim.epochs * images / rate / 3600
    cost = "" if price is None else f", {hours * price:,.0f} at {price:g} per hour"
    return f"estimate: {recipe.optim.epochs:g} epochs of {images:,} images in {hours:,.1f} h{cost}"


if __name__ == "__main__":
    main()
