"""The softmax over all identities by their number: memory and time of a step, whole, in chunks, and sampled.

    python tools/bench_classes.py --identities 10000 181000 1000000 2000000 --batch 128 --size 512

Each row is measured in a process of its own: the most memory above what it had with the embeddings and the centers in
it, and the median time of forward, backward and SGD's step after one that warms up. "B x C" is the loss as it is
usually written, with all logits; "a tenth of B x C" the same of a tenth of the centers that is drawn for each step,
with a gradient and a step for these alone, as Partial FC has it. "in chunks" is ours, whose centers step in the
backward pass, and "a tenth in chunks" ours of a tenth; "in chunks, gathered" first has the gradient of all centers, as
clipping, AdamW and accumulation need it.
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

from facerts.training.class_head.centers import ClassCenters
from facerts.training.class_head.row_updates import RowSteps
from facerts.training.methods.margin import additive_angular

WAYS = ("B x C", "a tenth of B x C", "in chunks", "in chunks, gathered", "a tenth in chunks")
TENTH = 0.1
SCALE, MARGIN = 64.0, 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--identities", type=int, nargs="+", default=[10_000, 181_000, 1_000_000])
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--size", type=int, default=512, help="numbers of an embedding")
    parser.add_argument("--chunk", type=int, default=16_384)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--ways", choices=WAYS, nargs="+", default=WAYS)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way:
        print(json.dumps(measure(options, options.identities[0])))
        return
    print(
        f"batch {options.batch}, {options.size} numbers, {options.device}, {torch.get_num_threads()} threads"
    )
    for identities in options.identities:
        for way in options.ways:
            told = ["--way", way, "--identities", str(identities)]
            for name in ("batch", "size", "chunk", "steps", "device"):
                told += [f"--{name}", str(getattr(options, name))]
            done = subprocess.run(
                [sys.executable, __file__, *told], capture_output=True, text=True, check=False
            )
            if done.returncode:
                print(
                    f"{identities:>9,} {way:20}: failed ({done.stderr.strip().splitlines()[-1:]})", flush=True
                )
                continue
            found = json.loads(done.stdout)
            print(
                f"{identities:>9,} {way:20}: {found['mib']:>9,.0f} MiB above {found['base_mib']:,.0f}, "
                f"{found['ms']:>9,.1f} ms a step, loss {found['loss']:.3f}",
                flush=True,
            )


def measure(options: argparse.Namespace, identities: int) -> dict[str, float]:
    device = torch.device(options.device)
    torch.manual_seed(0)
    ours, tenth = "chunks" in options.way, "tenth" in options.way
    sample = TENTH if ours and tenth else None
    centers = ClassCenters(identities, options.size, chunk=options.chunk, sample=sample).to(device)
    embedding = torch.randn(options.batch, options.size, device=device, requires_grad=True)
    labels = torch.randint(0, identities, (options.batch,), device=device)
    optimizer = torch.optim.SGD(centers.parameters(), lr=0.1, fused=True)
    if ours and "gathered" not in options.way:
        centers.row_steps = RowSteps(optimizer, centers.weight)
    loss = by_centers if ours else (a_tenth if tenth else whole)
    base = used(device)
    times = []
    for step in range(options.steps + 1):
        began = time.perf_counter()
        centers.begin(step)
        optimizer.zero_grad(set_to_none=True)
        embedding.grad = None
        value = loss(centers, embedding, labels)
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


def by_centers(centers: ClassCenters, embedding: Tensor, labels: Tensor) -> Tensor:
    scale = torch.tensor(SCALE, device=embedding.device)
    loss = centers(embedding, labels, lambda cosine: additive_angular(cosine, MARGIN), scale).mean()
    loss.backward()  # type: ignore[no-untyped-call]
    return loss


def whole(centers: ClassCenters, embedding: Tensor, labels: Tensor) -> Tensor:
    """As it is usually written."""
    loss = usual(centers.weight, embedding, labels)
    loss.backward()  # type: ignore[no-untyped-call]
    return loss


def a_tenth(centers: ClassCenters, embedding: Tensor, labels: Tensor) -> Tensor:
    """The same for some of the centers, which are picked, step and are put back."""
    order = torch.rand(centers.identities, device=labels.device)
    order[labels] = 2.0
    drawn = order.topk(int(TENTH * centers.identities)).indices.sort().values
    picked = centers.weight.detach()[drawn].requires_grad_()
    loss = usual(picked, embedding, torch.searchsorted(drawn, labels))
    loss.backward()  # type: ignore[no-untyped-call]
    torch.optim.SGD([picked], lr=0.1, fused=True).step()
    centers.weight.data[drawn] = picked.detach()
    return loss


def usual(weight: Tensor, embedding: Tensor, labels: Tensor) -> Tensor:
    logits = F.linear(F.normalize(embedding), F.normalize(weight)).clamp(-1, 1)
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
