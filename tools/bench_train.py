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
- peak memory of a few steps, above the memory of the process before the network is built, in a process of its own;
- the share of the best measured rate of a matrix product. A step counts 6 operations per multiply-add of the network
  and of the computed logits (2 for a frozen network), without recomputation.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
from measuring import alternate, in_process, machine, parser_of, peak_mib, ratios
from torch.nn import functional as F

from facerts.losses.margin import additive_angular
from facerts.nn import build_network
from facerts.nn.device import AUTOCAST, choose_device, choose_precision
from facerts.nn.flops import count_multiply_adds
from facerts.training.learner import Learner
from facerts.training.loader import Batch
from facerts.training.recipe import Recipe, load_recipe

WARM_UP = 3
# Cost of the passes: the gradients of inputs and of weights each cost as much as the forward pass.
FORWARD, BACKWARD = 1, 2


def main() -> None:
    options = read_options()
    # Recipes name files, which the benchmark does not read.
    os.environ.setdefault("FACERTS_DATA", "data")
    plain, identities = options.against == "plain", options.identities
    names = [" ".join([options.recipe, *options.change]), "plain loop" if plain else options.against]
    sources = [
        (False, options.recipe, [*options.overrides, *options.change]),
        (plain, options.recipe if plain else options.against, options.overrides),
    ]
    # First, because a child process inherits the peak memory of its parent.
    peaks = [in_process(memory, *source, identities) for source in sources]
    # As in our training loop and in conventional ones.
    torch.backends.cudnn.benchmark = True
    learners = [build_learner(*source, identities) for source in sources]
    recipes, device = [learner.recipe for learner in learners], learners[0].device
    times = step_times(learners, identities, options.steps)
    compared = sorted(ratios(*times))
    limit = max_rate(recipes[0], device)
    size = recipes[0].optim.batch_size
    medians = [statistics.median(values) for values in times]
    result = {
        "device": str(device),
        "batch": size,
        "identities": identities,
        "product_tflops": limit / 1e12,
        "learners": [
            {
                "name": name,
                "images_per_s": size / duration,
                "mib": peak,
                "share_of_product": size * operations(recipe, identities) / duration / limit,
            }
            for name, recipe, duration, peak in zip(names, recipes, medians, peaks, strict=True)
        ],
        "ratio": {
            "median": statistics.median(compared),
            "quartiles": [compared[len(compared) // 4], compared[(3 * len(compared)) // 4]],
            "pairs": len(compared),
        },
    }
    print(f"{device}, {torch.get_num_threads()} threads, batch {size}, {identities:,} identities; {machine()}")
    print(f"matrix product: at most {limit / 1e12:.2f} TFLOP/s")
    for learner, recipe, duration in zip(result["learners"], recipes, medians, strict=True):
        rate = learner["images_per_s"]
        print(f"{learner['name']}: median {1000 * duration:.1f} ms per step, {rate:.1f} images/s")
        print(f"  {learner['mib']:,.0f} MiB, {learner['share_of_product']:.1%} of the matrix product's rate")
        if options.images:
            print(f"  {estimate(recipe, options.images, rate, options.price)}")
    low, high = result["ratio"]["quartiles"]
    print(
        f"ratio {names[0]} / {names[1]} over {len(compared)} pairs of steps: "
        f"median {result['ratio']['median']:.4f}, quartiles {low:.4f} to {high:.4f}; "
        f"ratio of medians {medians[0] / medians[1]:.4f}"
    )
    if options.json:
        options.json.write_text(json.dumps(result))


def read_options() -> argparse.Namespace:
    parser = parser_of(
        __doc__,
        {
            "--recipe": ("faces_small_rts", "recipe to measure"),
            "--against": (
                "faces_small_arcface",
                'recipe to compare with, or "plain" for a conventional loop on the network of --recipe',
            ),
            "--identities": (8648, "number of identities"),
            "--steps": (40, "number of timed steps of each recipe"),
            "--images": (int, "number of training images, to estimate the duration of a training"),
            "--price": (float, "price of this machine per hour, to estimate the cost of a training"),
            "--json": (Path, "file for the numbers"),
        },
    )
    parser.add_argument(
        "--change",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="Change a field of --recipe only; repeatable.",
    )
    parser.add_argument("overrides", nargs="*", help="Recipe fields to change in both, e.g. backbone.width=0.5.")
    return parser.parse_args()


class PlainLearner:
    """A conventional step to compare with, like ``Learner``: eager, NCHW, autocast, all B x C logits at once.

    Network, precision and optimizer are those of the recipe; nothing is compiled, chunked or fused.
    """

    def __init__(self, recipe: Recipe, identities: int) -> None:
        torch.manual_seed(recipe.seed)
        self.recipe = recipe
        self.device = choose_device(recipe.compute.device)
        self.precision = choose_precision(recipe.compute.precision, self.device)
        backbone, optim = recipe.backbone, recipe.optim
        self.network = build_network(
            backbone.name,
            embedding_size=backbone.embedding_size,
            heads={},
            width=backbone.width,
            dropout=backbone.dropout,
        ).to(self.device)
        self.weight = torch.nn.Parameter(torch.empty(identities, backbone.embedding_size, device=self.device))
        torch.nn.init.normal_(self.weight, std=0.01)
        parameters = [p for p in (*self.network.parameters(), self.weight) if p.requires_grad]
        self.optimizer = torch.optim.SGD(
            parameters, lr=optim.lr, momentum=optim.momentum, weight_decay=optim.weight_decay
        )
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.precision == "fp16")

    def step(self, batch: Batch, step: int, learning_rate: float) -> torch.Tensor:
        self.network.train()
        images = batch.crops.to(self.device).permute(0, 3, 1, 2).contiguous().float().sub_(127.5).div_(127.5)
        dtype = AUTOCAST[self.precision]
        with torch.autocast(self.device.type, dtype=dtype, enabled=dtype is not None):
            embedding = self.network(images)["embedding"]
        cosine = F.linear(F.normalize(embedding), F.normalize(self.weight)).clamp(-1, 1)
        index = batch.labels.unsqueeze(1)
        target = additive_angular(cosine.gather(1, index).squeeze(1), 0.5)
        loss = F.cross_entropy(cosine.scatter(1, index, target.unsqueeze(1)) * 64, batch.labels)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        self.optimizer.zero_grad()
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.detach()


def build_learner(plain: bool, recipe: str, overrides: list[str], identities: int) -> Any:
    loaded = load_recipe(recipe, overrides)
    if threads := loaded.compute.threads:
        torch.set_num_threads(threads)
    return (PlainLearner if plain else Learner)(loaded, identities)


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
    batch = Batch.of(crops, labels.to(learner.device), torch.arange(len(labels)))
    synchronize(learner.device)
    start = time.perf_counter()
    learner.step(batch, step, 0.01)
    synchronize(learner.device)
    return time.perf_counter() - start


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def memory(plain: bool, recipe: str, overrides: list[str], identities: int) -> float:
    """Peak memory of a few steps in MiB, above the memory of the process before."""
    before = peak_mib()
    learner = build_learner(plain, recipe, overrides, identities)
    for step in range(WARM_UP):
        seconds(learner, *random_batch(learner.recipe, identities, step), step)
    if learner.device.type == "cuda":
        return torch.cuda.max_memory_allocated() / (1 << 20)
    return peak_mib() - before


def operations(recipe: Recipe, identities: int) -> float:
    """Operations of a step per image: network and logits, forward and backward."""
    backbone = recipe.backbone
    network = recipe.build_network(recipe.build_loss())
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
