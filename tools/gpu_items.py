"""The items of tools/gpu_suite.py that are not benchmarks of their own; each runs in its own process.

    python tools/gpu_items.py "same as on the CPU" --json out.json

The reference of every comparison is the CPU, in float32 without TF32.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from measuring import seconds_of

from facerts.datasets.synthetic import write_synthetic_faces
from facerts.losses import LOSSES
from facerts.onnx.providers import PROVIDERS
from facerts.scoring.provider_times import measure_providers
from facerts.training.checkpoint import FILE
from facerts.training.learner import Learner
from facerts.training.loader import Batch
from facerts.training.recipe import Recipe, load_recipe

PEOPLE = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("item", choices=ITEMS)
    parser.add_argument("--json", type=Path, required=True, metavar="PATH", help="File for the result.")
    parser.add_argument("--rehearse", action="store_true", help="Tiny sizes on the CPU.")
    options = parser.parse_args()
    device = "cpu" if options.rehearse else "cuda"
    if not options.rehearse and not torch.cuda.is_available():
        result: dict[str, Any] = {"missing": "a GPU that PyTorch can use"}
    else:
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        result = ITEMS[options.item](device, options.rehearse)
    options.json.write_text(json.dumps(result))


def machine(device: str, rehearse: bool) -> dict[str, Any]:
    """What the machine is, and its rates of copying and of matrix products."""
    rates: dict[str, Any] = {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "device": device,
    }
    if device == "cuda":
        card = torch.cuda.get_device_properties(0)
        rates |= {"device": card.name, "memory_gb": card.total_memory / 1e9}
        rates |= {"cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}
    side, copied = (256, 1 << 20) if rehearse else (8192, 1 << 30)
    buffer = torch.randint(0, 255, (copied,), dtype=torch.uint8, device=device)
    target = torch.empty_like(buffer)
    # Each byte is read and written.
    rates["copy_gb_per_s"] = 2 * copied / best_time(lambda: target.copy_(buffer), device) / 1e9
    for name, dtype in (("fp32", torch.float32), ("tf32", torch.float32), ("bf16", torch.bfloat16)):
        torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
        matrix = torch.randn(side, side, device=device).to(dtype)
        rate = 2 * side**3 / best_time(lambda matrix=matrix: matrix @ matrix, device)
        rates[f"{name}_product_tflops"] = rate / 1e12
    return rates


def best_time(work: Callable[[], Any], device: str) -> float:
    """Shortest time of ten runs, after a warm-up."""

    def run() -> None:
        work()
        if device == "cuda":
            torch.cuda.synchronize()

    return min([seconds_of(run) for _ in range(11)][1:])


def small_recipe(device: str, *overrides: str) -> Recipe:
    """A small network in float32 on the device."""
    return load_recipe(
        "casia_rts",
        [
            f"compute.device={device}", "compute.precision=fp32", "backbone.name=mobilefacenet",
            "backbone.width=0.25", "backbone.embedding_size=64", "backbone.dropout=0", "data.workers=0",
            "optim.batch_size=16", "optim.lr=0.05", *overrides,
        ],
    )  # fmt: skip


def random_step(views: int, step: int, device: str) -> Batch:
    """Random crops of some people, the same for the same step."""
    generator = torch.Generator().manual_seed(step)
    size = 16
    crops = torch.randint(0, 256, (views * size, 112, 112, 3), dtype=torch.uint8, generator=generator)
    labels = torch.arange(size).div(2, rounding_mode="floor").repeat(views)
    return Batch.of(crops, labels.to(device), torch.arange(size).repeat(views))


def weights(learner: Learner) -> torch.Tensor:
    """All weights of its network, on the CPU."""
    return torch.cat([p.detach().cpu().flatten() for p in learner.network.parameters()])


def same_as_on_the_cpu(device: str, rehearse: bool) -> dict[str, Any]:
    """Relative differences from the CPU of each method's loss and of the weights' change in one step.

    The change of the weights is the gradient, scaled by the learning rate. BatchNorm in an untrained network, with 16
    images, amplifies the rounding of float32 thousands of times, by method; so "rounding" has how far the change moves
    on the CPU alone when all outputs of convolutions are off by about 1e-7.
    """
    found = {}
    for name in sorted(LOSSES):
        if LOSSES[name].trains == "heads":
            continue  # would need a trained network
        overrides = [f"method={name}"] if name != "rts" else []
        reference, own, rounded = (
            Learner(small_recipe(where, *overrides, "optim.weight_decay=0"), PEOPLE) for where in ("cpu", device, "cpu")
        )
        before = weights(reference)
        own.load_state_dict(reference.state_dict())
        rounded.load_state_dict(reference.state_dict())
        disturb(rounded)
        (loss, change), (own_loss, own_change), (_, rounded_change) = (
            one_step(learner, before) for learner in (reference, own, rounded)
        )
        found[name] = {
            "loss": abs(own_loss - loss) / abs(loss),
            "weights": float((own_change - change).norm() / change.norm()),
            "rounding": float((rounded_change - change).norm() / change.norm()),
        }
    return found


def disturb(learner: Learner) -> None:
    """Let the outputs of all convolutions, and their gradients, be off by as much as float32 rounds."""
    generator = torch.Generator().manual_seed(0)

    def off(module: torch.nn.Module, inputs: Any, output: torch.Tensor) -> torch.Tensor:
        return output * (1 + 1e-7 * torch.randn(output.shape, generator=generator))

    for module in learner.network.modules():
        if isinstance(module, torch.nn.Conv2d):
            module.register_forward_hook(off)


def one_step(learner: Learner, before: torch.Tensor) -> tuple[float, torch.Tensor]:
    """The loss of the first step, and how it changes the weights."""
    loss = learner.step(random_step(learner.loss.views, 0, learner.device.type), 0, 0.05).total.double().item()
    return loss, (weights(learner) - before).double()


def waits(device: str, rehearse: bool) -> dict[str, Any]:
    """Waits for the device in ten steps of some methods, by PyTorch's own debug mode."""
    steps, found = (2, {}) if rehearse else (40, {})
    for name in ("rts", "arcface", "magface", "adaface", "dul", "crfiqa"):
        learner = Learner(small_recipe(device, f"method={name}", "compute.precision=auto"), PEOPLE)
        inputs = [random_step(1, step, device) for step in range(2 * steps)]
        for step, batch in enumerate(inputs[:steps]):
            learner.step(batch, step, 0.01)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            if device == "cuda":
                torch.cuda.set_sync_debug_mode("warn")
            for step, batch in enumerate(inputs[steps:], steps):
                learner.step(batch, step, 0.01)
            if device == "cuda":
                torch.cuda.set_sync_debug_mode("default")
        count = sum("synchroniz" in str(warning.message).lower() for warning in caught)
        found[name] = 10 * count / steps
    return found


def train_on_drawn(folder: Path, name: str, device: str, rehearse: bool, resume: bool = False) -> list[float]:
    """The losses of a training of faces_small_rts on drawn faces."""
    from facerts.training.loop import train

    people, images, size = (8, 4, 8) if rehearse else (160, 20, 64)
    if not (folder / "faces").exists():
        write_synthetic_faces(folder / "faces", identities=people, images=images)
    settings = [
        f"data.train={folder / 'faces'}", f"compute.device={device}", "data.name=drawn", "data.terms=none",
        "data.holdout_identities=0", "data.workers=0", "validation={}", f"optim.batch_size={size}",
        "optim.epochs=1", "optim.milestones=[]", "compute.precision=fp32", "compute.compile=false",
        "logging.every_steps=1",
    ]  # fmt: skip
    if rehearse:
        settings += ["backbone.name=mobilefacenet", "backbone.width=0.125", "backbone.embedding_size=16"]
    train(load_recipe("faces_small_rts", settings), folder / name, resume=resume)
    lines = map(json.loads, (folder / name / "log.jsonl").read_text().splitlines())
    return [line["loss"] for line in lines if line["kind"] == "train"]


def largest_difference(losses: list[float], others: list[float]) -> float:
    return max(abs(a - b) / b for a, b in zip(losses, others, strict=True))


def resume(device: str, rehearse: bool) -> dict[str, Any]:
    """Largest relative differences of the losses of a run that was interrupted halfway, and of a second run."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        whole, again = (train_on_drawn(folder, name, device, rehearse) for name in ("whole", "again"))
        step, numbers = Learner.step, itertools.count(1)

        def interrupted(*inputs: Any) -> Any:
            if next(numbers) == len(whole) // 2:
                signal.raise_signal(signal.SIGINT)
            return step(*inputs)

        with patch.object(Learner, "step", interrupted), suppress(KeyboardInterrupt):
            train_on_drawn(folder, "cut", device, rehearse)
        resumed = train_on_drawn(folder, "cut", device, rehearse, resume=True)
    return {
        "steps": len(whole),
        "resumed after": next(numbers) - 1,
        "two runs": largest_difference(again, whole),
        "with a resume": largest_difference(resumed, whole),
    }


def first_steps(device: str, rehearse: bool) -> dict[str, Any]:
    """The losses of a training on the device and on the CPU."""
    with tempfile.TemporaryDirectory() as scratch:
        losses, on_cpu = (
            train_on_drawn(Path(scratch), name, where, rehearse)
            for name, where in (("device", device), ("reference", "cpu"))
        )
    third = max(1, len(losses) // 3)
    return {
        "steps": len(losses),
        "largest relative difference, first third": largest_difference(losses[:third], on_cpu[:third]),
        "largest relative difference": largest_difference(losses, on_cpu),
        "mean of the last third": sum(losses[-third:]) / third,
        "mean of the last third on the CPU": sum(on_cpu[-third:]) / third,
    }


def onnx_runtime(device: str, rehearse: bool) -> dict[str, Any]:
    """Images/s of the model that ships by batch size, and how far its scores are from the CPU's."""
    import onnxruntime

    if PROVIDERS[device] not in onnxruntime.get_available_providers():
        return {"missing": "onnxruntime-gpu, and no onnxruntime beside it"}
    times = measure_providers(detector="none", rounds=1 if rehearse else 7)
    found = {measured.provider: measured for measured in times.measured}
    if PROVIDERS[device] not in found:
        raise RuntimeError(times.problems[PROVIDERS[device]])
    return {
        **{
            f"images/s, {provider}": {size: 1000 / ms for size, ms in measured.ms_per_crop.items()}
            for provider, measured in found.items()
        },
        "1 - smallest cosine": 1 - found[PROVIDERS[device]].cosine,
        "largest difference of quality": found[PROVIDERS[device]].quality_error,
    }


def two_processes(device: str, rehearse: bool) -> dict[str, Any]:
    """Whether two processes can train together; NCCL may refuse to share a single card."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_synthetic_faces(folder / "faces", identities=8, images=4)
        command = [
            sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "facerts",
            "train", "casia_rts", f"data.train={folder / 'faces'}", "data.name=drawn", "data.terms=none",
            "data.workers=0", "validation.benchmarks=[]", f"compute.device={device}", "compute.precision=fp32",
            "backbone.name=mobilefacenet", "backbone.width=0.125", "backbone.embedding_size=16",
            "optim.batch_size=8", "optim.epochs=2", "optim.milestones=[]", "--out", str(folder / "run"),
        ]  # fmt: skip
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        process = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, check=False)
        errors = [line for line in process.stderr.splitlines() if "rror" in line]
        trained = (folder / "run" / FILE).exists()
    # NCCL says why it failed in a line on standard error.
    why = {} if trained else {"error": (errors or [process.stderr[-300:]])[0][:300]}
    return {"trained": trained, **why}


ITEMS = {
    "machine": machine,
    "same as on the CPU": same_as_on_the_cpu,
    "waits": waits,
    "resume": resume,
    "first steps": first_steps,
    "ONNX Runtime": onnx_runtime,
    "two processes": two_processes,
}


if __name__ == "__main__":
    main()
