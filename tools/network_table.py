"""Prints parameters and multiply-adds of all backbones as a Markdown table, for docs/networks.md."""

from __future__ import annotations

from facerts.nn import BACKBONES, build_network
from facerts.nn.flops import count_multiply_adds, count_parameters

print("| backbone | embedding | parameters, M | multiply-adds, G |\n|---|---|---|---|")
for name in BACKBONES:
    size = 128 if name == "mobilefacenet" else 512
    network = build_network(name, embedding_size=size)
    millions, billions = count_parameters(network) / 1e6, count_multiply_adds(network) / 1e9
    print(f"| {name} | {size} | {millions:.2f} | {billions:.2f} |", flush=True)
