"""The softmax over all identities by their number: memory and time of a step, whole, in chunks, and sampled.

    python tools/bench_classes.py --identities 10000 181000 1000000 2000000 --batch 128 --size 512

Each row is measured in a process of its own: the most memory above what it had with the embeddings and the centres in
it, and the median time of forward, backward and SGD's step after one that warms up. "whole" is the loss as it is
usually written, with B x C logits; "sampled" looks at a tenth of the centres.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time

import torch
from torch import Tensor
from torch.nn import functional as F

from facerts.methods.margin import additive_angular
from facerts.train.centres import ClassCentres

WAYS = ("whole", "in chunks", "sampled, 10 %")
SCALE, MARGIN = 64.0, 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--identities", type=int, nargs="+", default=[10_000, 181_000, 1_000_000])
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--size", type=int, default=512, help="numbers of an embedding")
    parser.add_argument("--chunk", type=int, default=16_384)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--way", choices=WAYS, help="measure this one alone, here, and print JSON")
    options = parser.parse_args()
    if options.way:
        print(json.dumps(measure(options, options.identities[0])))
        return
    print(
        f"batch {options.batch}, {options.size} numbers, {options.device}, {torch.get_num_threads()} threads"
    )
    for identities in options.identities:
        for way in WAYS:
            told = ["--way", way, "--identities", str(identities)]
            for name in ("batch", "size", "chunk", "steps", "device"):
                told += [f"--{name}", str(getattr(options, name))]
            done = subprocess.run(
                [sys.executable, __file__, *told], capture_output=True, text=True, check=False
            )
            if done.returncode:
                print(
                    f"{identities:>9,} {way:14}: failed ({done.stderr.strip().splitlines()[-1:]})", flush=True
                )
                continue
            found = json.loads(done.stdout)
            print(
                f"{identities:>9,} {way:14}: {found['mib']:>9,.0f} MiB above {found['base_mib']:,.0f}, "
                f"{found['ms']:>9,.1f} ms a step, loss {found['loss']:.3f}",
                flush=True,
            )


def measure(options: argparse.Namespace, identities: int) -> dict[str, float]:
    device = torch.device(options.device)
    torch.manual_seed(0)
    sample = 0.1 if options.way == WAYS[2] else None
    centres = ClassCentres(identities, options.size, chunk=options.chunk, sample=sample).to(device)
    embedding = torch.randn(options.batch, options.size, device=device, requires_grad=True)
    labels = torch.randint(0, identities, (options.batch,), device=device)
    optimizer = torch.optim.SGD(centres.parameters(), lr=0.1)
    loss = whole if options.way == WAYS[0] else by_centres
    base = used(device)
    times = []
    for step in range(options.steps + 1):
        began = time.perf_counter()
        centres.step = step
        optimizer.zero_grad(set_to_none=True)
        embedding.grad = None
        value = loss(centres, embedding, labels)
        value.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if device.type == "cuda":
            torch.cuda.synchronize()
        if step:
            times.append(time.perf_counter() - began)
    return {
        "mib": used(device) - base,
        "base_mib": base,
        "ms": 1000 * statistics.median(times),
        "loss": value.item(),
    }


def by_centres(centres: ClassCentres, embedding: Tensor, labels: Tensor) -> Tensor:
    scale = torch.tensor(SCALE, device=embedding.device)
    return centres(embedding, labels, lambda cosine: additive_angular(cosine, MARGIN), scale).mean()


def whole(centres: ClassCentres, embedding: Tensor, labels: Tensor) -> Tensor:
    """As it is usually written."""
    logits = F.linear(F.normalize(embedding), F.normalize(centres.weight)).clamp(-1, 1)
    index = labels.unsqueeze(1)
    target = additive_angular(logits.gather(1, index).squeeze(1), MARGIN)
    return F.cross_entropy(logits.scatter(1, index, target.unsqueeze(1)) * SCALE, labels)


def used(device: torch.device) -> float:
    """The most MiB so far."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated() / (1 << 20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
