"""Backbones beside a reference model: time of use on one core, and of training steps.

Networks are untrained: the time does not depend on the weights. Each is exported, and takes turns with the reference,
round by round, so that what else the machine does meets all alike; a call has a batch of crops, or one where a model's
batch is fixed. Then a compiled training step (bf16, RTS, its class centers included) on random crops.

    python tools/bench_networks.py compact compact_bottleneck iresnet18_lite:0.25 --reference mobilefacenet.onnx
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from bench_train import random_batch, seconds

from facerts.datasets.synthetic import draw_face
from facerts.embedding import load_embedder
from facerts.training.checkpoint import FILE, save_checkpoint
from facerts.training.export.from_checkpoint import export_run
from facerts.training.learner import Learner
from facerts.training.network_embedder import to_network_input
from facerts.training.nn.flops import count_multiply_adds, count_parameters
from facerts.training.recipe import Recipe

WARM_UP = 3
PASSES = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("networks", nargs="+", metavar="BACKBONE[:WIDTH]")
    parser.add_argument("--reference", required=True, help="a model, or the name of one that ships")
    parser.add_argument("--embedding-size", type=int, default=256)
    parser.add_argument("--batch", type=int, default=32, help="crops in a call")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=12, help="training steps to time; 0 for none")
    parser.add_argument("--train-batch", type=int, default=128)
    options = parser.parse_args()
    recipes = [
        recipe_of(text, options.embedding_size, options.train_batch, compile_steps=options.steps > 0)
        for text in options.networks
    ]
    with tempfile.TemporaryDirectory() as folder:
        files = [export(recipe, Path(folder) / str(number)) for number, recipe in enumerate(recipes)]
        reference, *times = in_turn([options.reference, *map(str, files)], options.batch, options.rounds)
    print(
        f"{Path(options.reference).stem}: {1000 * statistics.median(reference):.2f} ms a crop on one core\n"
    )
    print(
        "| backbone | parameters, M | multiply-adds, G | ms a crop | of the reference's | trained images/s |"
    )
    print("|---|---|---|---|---|---|")
    for text, recipe, taken in zip(options.networks, recipes, times, strict=True):
        network = Learner(recipe, identities=2).network
        ratio = statistics.median(mine / other for mine, other in zip(taken, reference, strict=True))
        rate = training_rate(recipe, options.steps) if options.steps else float("nan")
        print(
            f"| {text} | {count_parameters(network) / 1e6:.2f} | {count_multiply_adds(network) / 1e9:.3f} | "
            f"{1000 * statistics.median(taken):.2f} | {ratio:.2f} | {rate:.0f} |",
            flush=True,
        )


def recipe_of(text: str, embedding_size: int, batch: int, *, compile_steps: bool) -> Recipe:
    name, _, width = text.partition(":")
    return Recipe.model_validate(
        {
            "name": name,
            "data": {"name": "random", "terms": "none", "train": "none"},
            "backbone": {"name": name, "width": float(width or 1), "embedding_size": embedding_size},
            "method": {"name": "rts"},
            "optim": {"epochs": 1, "batch_size": batch},
            "compute": {"compile": compile_steps},
        }
    )


def export(recipe: Recipe, folder: Path) -> Path:
    """The network as ONNX, after a few passes in which BatchNorm finds statistics that keep its outputs finite."""
    learner = Learner(recipe, identities=2)
    learner.network.train()
    with torch.no_grad():
        for step in range(PASSES):
            crops, _ = random_batch(recipe, 2, step)
            learner.network(to_network_input(crops[:16], channels_last=True))
    save_checkpoint(folder / FILE, recipe, {"step": 0, **learner.state_dict()})
    export_run(folder, folder / "network.onnx")
    return folder / "network.onnx"


def in_turn(models: list[str], batch: int, rounds: int) -> list[list[float]]:
    """Seconds a crop of each model in each round, one thread each."""
    embedders = [load_embedder(model, threads=1, batch_size=batch) for model in models]
    crops = np.stack([draw_face(number, 0) for number in range(batch)])
    taken: list[list[float]] = [[] for _ in models]
    for number in range(rounds + 1):
        for which, embedder in enumerate(embedders):
            began = time.perf_counter()
            embedder(crops)
            if number:  # the first round warms up
                taken[which].append((time.perf_counter() - began) / batch)
    return taken


def training_rate(recipe: Recipe, steps: int) -> float:
    """Images a second of the median step."""
    torch._dynamo.reset()
    learner = Learner(recipe, identities=8648)
    taken = []
    for step in range(steps + WARM_UP):
        crops, labels = random_batch(recipe, 8648, step)
        taken.append(seconds(learner, crops, labels, step))
    return recipe.optim.batch_size / statistics.median(taken[WARM_UP:])


if __name__ == "__main__":
    main()
