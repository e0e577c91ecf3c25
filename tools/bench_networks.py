"""Compares backbones with a reference model: inference time on one core, and time of a training step.

The networks are untrained, because the time does not depend on the weights. Each is exported and alternates with the
reference, round by round, so that other load on the machine affects all equally. A call has a batch of crops, or one
crop if a model's batch size is fixed. Training is measured by compiled steps (RTS, with class centers, in bf16 if the
CPU has units for it) on random crops.

    python tools/bench_networks.py compact compact_bottleneck iresnet18_lite:0.25 --reference mobilefacenet.onnx
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

import torch
from bench import machine, parser_of, ratios
from bench_embed import time_models
from bench_train import random_batch, seconds

from facerts.training.checkpoint import FILE, save_checkpoint
from facerts.training.export.from_checkpoint import export_run
from facerts.training.learner import Learner
from facerts.training.network_embedder import to_network_input
from facerts.training.nn.flops import count_multiply_adds, count_parameters
from facerts.training.recipe import Recipe

WARM_UP = 3
PASSES = 20


def main() -> None:
    parser = parser_of(
        __doc__,
        {
            "--batch": (32, "crops per call"),
            "--steps": (12, "number of timed training steps of 128 crops; 0 for none"),
        },
        rounds=20,
    )
    parser.add_argument("networks", nargs="+", metavar="BACKBONE[:WIDTH]")
    parser.add_argument("--reference", required=True, help="ONNX file or name of a model to compare with")
    options = parser.parse_args()
    recipes = [recipe_of(text, compile_steps=options.steps > 0) for text in options.networks]
    with tempfile.TemporaryDirectory() as folder:
        files = [export(recipe, Path(folder) / str(number)) for number, recipe in enumerate(recipes)]
        models = [options.reference, *map(str, files)]
        reference, *times = time_models(models, options.batch, options.rounds).values()
    print(f"{machine()}; {options.reference}: {statistics.median(reference):.2f} ms per crop on one core\n")
    print(
        "| backbone | parameters, M | multiply-adds, G | ms per crop | of the reference | trained images/s |"
    )
    print("|---|---|---|---|---|---|")
    for text, recipe, per_crop in zip(options.networks, recipes, times, strict=True):
        network = Learner(recipe, identities=2).network
        ratio = statistics.median(ratios(per_crop, reference))
        rate = training_rate(recipe, options.steps) if options.steps else float("nan")
        print(
            f"| {text} | {count_parameters(network) / 1e6:.2f} | {count_multiply_adds(network) / 1e9:.3f} | "
            f"{statistics.median(per_crop):.2f} | {ratio:.2f} | {rate:.0f} |",
            flush=True,
        )


def recipe_of(text: str, *, compile_steps: bool) -> Recipe:
    name, _, width = text.partition(":")
    return Recipe.model_validate(
        {
            "name": name,
            "data": {"name": "random", "terms": "none", "train": "none"},
            "backbone": {"name": name, "width": float(width or 1), "embedding_size": 256},
            "method": {"name": "rts"},
            "optim": {"epochs": 1, "batch_size": 128},
            "compute": {"compile": compile_steps},
        }
    )


def export(recipe: Recipe, folder: Path) -> Path:
    """Export the network, after a few forward passes that give BatchNorm statistics which keep its outputs finite."""
    learner = Learner(recipe, identities=2)
    learner.network.train()
    with torch.no_grad():
        for step in range(PASSES):
            crops, _ = random_batch(recipe, 2, step)
            learner.network(to_network_input(crops[:16], channels_last=True))
    save_checkpoint(folder / FILE, recipe, {"step": 0, "position": 0.0, **learner.state_dict()})
    export_run(folder, folder / "network.onnx")
    return folder / "network.onnx"


def training_rate(recipe: Recipe, steps: int) -> float:
    """Images/s at the median time of a step."""
    torch._dynamo.reset()
    learner = Learner(recipe, identities=8648)
    times = []
    for step in range(steps + WARM_UP):
        crops, labels = random_batch(recipe, 8648, step)
        times.append(seconds(learner, crops, labels, step))
    return recipe.optim.batch_size / statistics.median(times[WARM_UP:])


if __name__ == "__main__":
    main()
