"""What a training step costs beside another one: both in one process, step by step in turn.

Random crops stand for decoded ones, so that nothing but the step is timed. Example:

    python tools/bench_train.py --recipe faces_small_rts --against faces_small_arcface --identities 8648

What compiling the step saves, the time that compiling itself takes left out:

    python tools/bench_train.py --change compute.compile=true --against faces_small_rts

What is gained over a loop in the field's usual style on the same network; how long and how dear a training would be at
the rate that was measured:

    python tools/bench_train.py --change compute.compile=true --against plain --images 490623 --price 3.5

Printed are images/s; where a step's time goes, measured in further steps that wait at the end of each phase ("backward"
has the step of the class centers in it, where they step there); the most memory that steps took above what the process
had before it built the network, in a process for each; and the share of the largest rate of a product of matrices that
was seen here: a step counts 6 operations for each multiply-add of the network and of the logits that are looked at, 2
for the network where it is frozen, whatever is computed twice.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from plain_loop import PlainLearner

from facerts.training.learner import AUTOCAST, Learner
from facerts.training.methods import Batch
from facerts.training.nn import build_network
from facerts.training.nn.flops import count_multiply_adds
from facerts.training.recipe import Recipe, load_recipe

WARM_UP = 3
# Passes: the gradients of the inputs and of the weights cost as much as the forward pass, each.
FORWARD, BACKWARD = 1, 2
PHASES = ("network", "loss", "backward", "optimizer")


def main() -> None:
    options = read_options()
    recipes = [load_recipe(options.recipe, [*options.overrides, *options.change])]
    plain = options.against == "plain"
    recipes.append(load_recipe(options.recipe if plain else options.against, options.overrides))
    kinds = (Learner, PlainLearner if plain else Learner)
    if options.memory_of is not None:
        print(json.dumps(memory(kinds[options.memory_of], recipes[options.memory_of], options.identities)))
        return
    # First, because a process begins with the most memory that the one which started it has had.
    peaks = [in_another_process(which) for which in (0, 1)]
    names = [" ".join([recipes[0].name, *options.change]), "plain loop" if plain else recipes[1].name]
    if threads := recipes[0].compute.threads:
        torch.set_num_threads(threads)
    # As training has it, and the field's loops.
    torch.backends.cudnn.benchmark = True
    learners = [kind(recipe, options.identities) for kind, recipe in zip(kinds, recipes, strict=True)]
    times = in_turn(learners, options.identities, options.steps)
    phases = [phase_times(learner, options.identities, max(3, options.steps // 4)) for learner in learners]
    limit = largest_rate(recipes[0], learners[0].device)

    size = recipes[0].optim.batch_size
    print(
        f"{learners[0].device}, {torch.get_num_threads()} threads, batch {size}, {options.identities:,} identities"
    )
    print(f"product of matrices: at most {limit / 1e12:.2f} TFLOP/s")
    for which, recipe in enumerate(recipes):
        taken = statistics.median(times[which])
        share = size * operations(recipe, options.identities) / taken / limit
        print(f"{names[which]}: median {1000 * taken:.1f} ms a step, {size / taken:.1f} images/s")
        print("  " + ", ".join(f"{phase} {1000 * value:.1f} ms" for phase, value in phases[which].items()))
        print(f"  {peaks[which]:,.0f} MiB, {share:.1%} of that product's rate")
        if options.images:
            print(f"  {expected(recipe, options.images, size / taken, options.price)}")
    ratios = sorted(first / second for first, second in zip(*times, strict=True))
    low, high = ratios[len(ratios) // 4], ratios[(3 * len(ratios)) // 4]
    print(
        f"ratio {names[0]} / {names[1]} over {len(ratios)} pairs of steps: "
        f"median {statistics.median(ratios):.4f}, quartiles {low:.4f} to {high:.4f}; "
        f"ratio of medians {statistics.median(times[0]) / statistics.median(times[1]):.4f}"
    )


def read_options() -> argparse.Namespace:
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
    parser.add_argument(
        "--images", type=int, help="of a data set: say how long the recipe's epochs would take"
    )
    parser.add_argument("--price", type=float, help="of this machine for an hour: say what they would cost")
    parser.add_argument("--memory-of", type=int, choices=(0, 1), help=argparse.SUPPRESS)
    parser.add_argument("overrides", nargs="*", help="recipe fields for both, e.g. backbone.width=0.5")
    return parser.parse_args()


def in_turn(learners: list[Any], identities: int, steps: int) -> list[list[float]]:
    """Seconds of each step of both, after some that warm up."""
    times: list[list[float]] = [[], []]
    for step in range(steps + WARM_UP):
        crops, labels = random_batch(learners[0].recipe, identities, step)
        # Who goes first changes from step to step, so that a drift of the machine hits both alike.
        for which in (0, 1) if step % 2 else (1, 0):
            taken = seconds(learners[which], crops, labels, step)
            if step >= WARM_UP:
                times[which].append(taken)
    return times


def random_batch(recipe: Recipe, identities: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(step)
    size = recipe.optim.batch_size
    crops = torch.randint(0, 256, (size, 112, 112, 3), dtype=torch.uint8, generator=generator)
    return crops, torch.randint(0, identities, (size,), generator=generator)


def seconds(learner: Any, crops: torch.Tensor, labels: torch.Tensor, step: int) -> float:
    """Wall time of one step."""
    batch = Batch(labels.to(learner.device), torch.arange(len(labels)), step, seed=0)
    wait(learner.device)
    began = time.perf_counter()
    learner.step(crops, batch, 0.01)
    wait(learner.device)
    return time.perf_counter() - began


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def phase_times(learner: Any, identities: int, steps: int) -> dict[str, float]:
    """Median seconds of a step's phases; what is in none of them (copies, checks) is named last."""
    found: dict[str, list[float]] = defaultdict(list)
    for step in range(steps + 1):
        crops, labels = random_batch(learner.recipe, identities, step)
        with timed(learner) as phases:
            whole = seconds(learner, crops, labels, step)
        # The first step compiles anew what now waits.
        if step:
            for phase in PHASES:
                found[phase].append(phases[phase])
            found["the rest"].append(whole - sum(phases.values()))
    return {phase: statistics.median(values) for phase, values in found.items()}


@contextmanager
def timed(learner: Any) -> Iterator[dict[str, float]]:
    """Seconds of each phase of the steps within."""
    phases: dict[str, float] = defaultdict(float)
    places = [
        (learner, "forward", "network"),
        (learner, "_loss", "loss"),
        (torch.Tensor, "backward", "backward"),
        (learner.optimizer, "step", "optimizer"),
    ]
    originals = [getattr(owner, name) for owner, name, _ in places]

    def measured(function: Callable[..., Any], phase: str) -> Callable[..., Any]:
        def run(*arguments: Any, **options: Any) -> Any:
            wait(learner.device)
            began = time.perf_counter()
            result = function(*arguments, **options)
            wait(learner.device)
            phases[phase] += time.perf_counter() - began
            return result

        return run

    for (owner, name, phase), original in zip(places, originals, strict=True):
        setattr(owner, name, measured(original, phase))
    try:
        yield phases
    finally:
        for (owner, name, _), original in zip(places, originals, strict=True):
            setattr(owner, name, original)


def in_another_process(which: int) -> float:
    """MiB that ``memory`` finds there."""
    command = [sys.executable, *sys.argv, "--memory-of", str(which)]
    return float(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout))


def memory(kind: Callable[[Recipe, int], Any], recipe: Recipe, identities: int) -> float:
    """The most MiB that this process holds in a few steps, above what it had before."""
    if threads := recipe.compute.threads:
        torch.set_num_threads(threads)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    learner = kind(recipe, identities)
    for step in range(WARM_UP):
        crops, labels = random_batch(recipe, identities, step)
        seconds(learner, crops, labels, step)
    if learner.device.type == "cuda":
        return torch.cuda.max_memory_allocated() / (1 << 20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before


def operations(recipe: Recipe, identities: int) -> float:
    """Of a step, for one image: network and logits, forward and backward."""
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


def largest_rate(recipe: Recipe, device: torch.device) -> float:
    """Operations in a second of a large product of matrices, in float32 or the step's precision."""
    side = 8192 if device.type == "cuda" else 2048
    rates = []
    for dtype in {torch.float32, AUTOCAST[recipe.compute.precision] or torch.float32}:
        one = torch.randn(side, side, device=device, dtype=dtype)
        for _ in range(10):
            wait(device)
            began = time.perf_counter()
            one @ one
            wait(device)
            rates.append(2 * side**3 / (time.perf_counter() - began))
    return max(rates)


def expected(recipe: Recipe, images: int, rate: float, price: float | None) -> str:
    """How long and how dear the recipe's training would be; nothing but the steps is in it."""
    hours = recipe.optim.epochs * images / rate / 3600
    cost = "" if price is None else f", {hours * price:,.0f} at {price:g} an hour"
    return f"expected: {recipe.optim.epochs:g} epochs of {images:,} images in {hours:,.1f} h{cost}"


if __name__ == "__main__":
    main()
