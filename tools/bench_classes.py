"""Memory and time of the softmax over all identities, by number of identities and implementation.

    python tools/bench_classes.py --identities 10000 181000 1000000 2000000 --batch 128 --size 512

Each row is measured in a process of its own: peak memory above that of the embeddings and centers, and the median time
of forward pass, backward pass and SGD update, after a warm-up step. The implementations:

- "B x C": the usual one, with all logits at once;
- "a tenth of B x C": the same for a tenth of the centers, sampled in each step, with a gradient and an update for these
  alone, as in Partial FC;
- "in chunks": ours, which updates the centers in the backward pass;
- "a tenth in chunks": ours for a sampled tenth;
- "in chunks, gathered": ours with the gradient of all centers, which clipping, AdamW and accumulation need.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import time
from pathlib import Path

import torch
from bench import in_process, machine, parser_of, peak_mib
from torch import Tensor
from torch.nn import functional as F

from facerts.losses.margin import additive_angular
from facerts.losses.partial_fc import PartialFC, RowUpdates

IMPLEMENTATIONS = ("B x C", "a tenth of B x C", "in chunks", "in chunks, gathered", "a tenth in chunks")
TENTH, CHUNK = 0.1, 16_384
SCALE, MARGIN = 64.0, 0.5


def main() -> None:
    parser = parser_of(
        __doc__,
        {
            "--identities": ([10_000, 181_000, 1_000_000], "numbers of identities"),
            "--batch": (128, "batch size"),
            "--size": (512, "embedding size"),
            "--steps": (3, "number of timed steps"),
            "--momentum": (0.0, "momentum of SGD"),
            "--device": ("cuda" if torch.cuda.is_available() else "cpu", "device; a GPU if there is one"),
            "--json": (Path, "file for the numbers"),
        },
    )
    parser.add_argument("--implementations", choices=IMPLEMENTATIONS, nargs="+", default=IMPLEMENTATIONS)
    options = parser.parse_args()
    print(
        f"batch {options.batch}, embedding size {options.size}, {options.device}, "
        f"{torch.get_num_threads()} threads, {machine()}"
    )
    common = (options.batch, options.size, options.steps, options.momentum, options.device)
    rows = []
    for identities in options.identities:
        for implementation in options.implementations:
            row = f"{identities:>9,} {implementation:20}"
            try:
                result = in_process(measure, implementation, identities, *common)
            except subprocess.CalledProcessError as error:
                print(f"{row}: failed ({error.stderr.strip().splitlines()[-1:]})", flush=True)
                continue
            rows.append({"identities": identities, "implementation": implementation, **result})
            print(
                f"{row}: {result['mib']:>9,.0f} MiB above {result['base_mib']:,.0f}, "
                f"{result['ms']:>9,.1f} ms per step, loss {result['loss']:.3f}",
                flush=True,
            )
    if options.json:
        options.json.write_text(json.dumps({"batch": options.batch, "size": options.size, "rows": rows}))


def measure(
    implementation: str, identities: int, batch: int, size: int, steps: int, momentum: float, where: str
) -> dict[str, float]:
    """Memory in MiB, time in ms and loss of one implementation."""
    device = torch.device(where)
    torch.manual_seed(0)
    ours, tenth = "chunks" in implementation, "tenth" in implementation
    centers = PartialFC(identities, size, chunk=CHUNK, sample=TENTH if ours and tenth else None).to(device)
    embedding = torch.randn(batch, size, device=device, requires_grad=True)
    labels = torch.randint(0, identities, (batch,), device=device)
    optimizer = torch.optim.SGD(centers.parameters(), lr=0.1, momentum=momentum, fused=True)
    if ours and "gathered" not in implementation:
        centers.row_updates = RowUpdates(optimizer, centers.weight)
    loss = chunked_step if ours else (sampled_step if tenth else full_step)
    base = peak_memory(device)
    times = []
    for step in range(steps + 1):
        start = time.perf_counter()
        centers.begin(step)
        optimizer.zero_grad(set_to_none=True)
        embedding.grad = None
        value = loss(centers, embedding, labels)
        optimizer.step()
        if device.type == "cuda":
            torch.cuda.synchronize()
        if step:
            times.append(time.perf_counter() - start)
    return {
        "mib": peak_memory(device) - base,
        "base_mib": base,
        "ms": 1000 * statistics.median(times),
        "loss": value.item(),
    }


def chunked_step(centers: PartialFC, embedding: Tensor, labels: Tensor) -> Tensor:
    """The loss after forward and backward pass of our implementation."""
    scale = torch.tensor(SCALE, device=embedding.device)
    loss = centers(embedding, labels, lambda cosine: additive_angular(cosine, MARGIN), scale).mean()
    loss.backward()  # type: ignore[no-untyped-call]
    return loss


def full_step(centers: PartialFC, embedding: Tensor, labels: Tensor) -> Tensor:
    """The loss after forward and backward pass of the usual implementation."""
    loss = full_softmax(centers.weight, embedding, labels)
    loss.backward()  # type: ignore[no-untyped-call]
    return loss


def sampled_step(centers: PartialFC, embedding: Tensor, labels: Tensor) -> Tensor:
    """As ``full_step`` for a sample of the centers, which is copied out, updated and copied back."""
    order = torch.rand(centers.num_classes, device=labels.device)
    order[labels] = 2.0
    indices = order.topk(int(TENTH * centers.num_classes)).indices.sort().values
    sample = centers.weight.detach()[indices].requires_grad_()
    loss = full_softmax(sample, embedding, torch.searchsorted(indices, labels))
    loss.backward()  # type: ignore[no-untyped-call]
    torch.optim.SGD([sample], lr=0.1, fused=True).step()
    centers.weight.data[indices] = sample.detach()
    return loss


def full_softmax(weight: Tensor, embedding: Tensor, labels: Tensor) -> Tensor:
    logits = F.linear(F.normalize(embedding), F.normalize(weight)).clamp(-1, 1)
    index = labels.unsqueeze(1)
    target = additive_angular(logits.gather(1, index).squeeze(1), MARGIN)
    return F.cross_entropy(logits.scatter(1, index, target.unsqueeze(1)) * SCALE, labels)


def peak_memory(device: torch.device) -> float:
    """Peak memory so far, in MiB."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated() / (1 << 20)
    return peak_mib()


if __name__ == "__main__":
    main()
