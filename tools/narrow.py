"""Takes channels out of the last stage of a trained compact network, to train on as a narrower one.

The channels that carry least are left out: those inside the last block by what its second convolution makes of them,
and those behind it by what the 1 x 1 convolution makes of them, which is then fitted again by least squares.

    python tools/narrow.py runs/facerts_small --data FACES --plan compact_small --channels 192 --out runs/narrow
    facerts train ours/facerts_small backbone.weights=runs/narrow
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from bench import parser_of
from torch import Tensor

from facerts.datasets import open_source
from facerts.evaluation.while_training import to_network_input
from facerts.training.checkpoint import FILE, load_checkpoint, save_checkpoint, trained_network
from facerts.training.recipe import Recipe

IMAGES = 1000


@torch.no_grad()
def main() -> None:
    parser = parser_of(
        __doc__,
        {
            "--data": ("", "aligned faces, on which the channels are measured"),
            "--plan": ("compact_small", "backbone of the narrower network"),
            "--channels": (192, "channels that are kept"),
            "--out": (Path("runs/narrow"), "folder of the narrower run"),
        },
    )
    parser.add_argument("run", type=Path, help="folder of the run")
    options = parser.parse_args()
    recipe, state = load_checkpoint(options.run / FILE)
    network = trained_network(state, options.run).network
    source = open_source(options.data)
    rows = np.linspace(0, len(source) - 1, IMAGES).astype(int)
    crops = torch.from_numpy(np.stack([source.crop(int(row)) for row in rows]))
    trunk = network.trunk
    maps = to_network_input(crops)
    for part in (trunk.stem, *list(trunk.stages)[:-1]):
        maps = part(maps)
    block = trunk.stages[-1][0]
    inside = block.branch[0](maps)
    behind = block.branch[1](inside) + block.shortcut(maps)
    squeeze = trunk.last[0][0].weight
    kept = {
        "branch.0": largest(inside, block.branch[1][0].weight, options.channels),
        "behind": largest(behind, squeeze, options.channels),
    }
    weights = state["average"] or state["network"]
    prefix = f"trunk.stages.{len(trunk.stages) - 1}.0"
    for name in list(weights):
        part = name.removeprefix(f"{prefix}.")
        if part.startswith("branch.0."):
            weights[name] = rows_of(weights[name], kept["branch.0"])
        elif part.startswith(("branch.1.", "shortcut.")) and part != name:
            weights[name] = rows_of(weights[name], kept["behind"])
    name = f"{prefix}.branch.1.0.weight"
    weights[name] = weights[name][:, kept["branch.0"]]
    # Of the narrower block, the outputs that the wider one had.
    features, wanted = columns(behind[:, kept["behind"]]), columns(behind) @ squeeze.flatten(1).T
    fitted = torch.linalg.lstsq(features, wanted).solution.T
    weights["trunk.last.0.0.weight"] = fitted[:, :, None, None].contiguous()
    fields = recipe.model_dump(mode="json")
    narrower = Recipe.model_validate({**fields, "backbone": {**fields["backbone"], "name": options.plan}})
    options.out.mkdir(parents=True, exist_ok=True)
    save_checkpoint(options.out / FILE, narrower, {**state, "network": weights, "average": None})


def largest(maps: Tensor, weight: Tensor, count: int) -> Tensor:
    """The channels of maps ``(N, C, H, W)`` of which a convolution ``(O, C, …)`` makes most, in order."""
    size = maps.square().mean(dim=(0, 2, 3)).sqrt() * weight.flatten(2).norm(dim=(0, 2))
    return size.topk(count).indices.sort().values


def rows_of(values: Tensor, kept: Tensor) -> Tensor:
    return values[kept] if values.ndim else values


def columns(maps: Tensor) -> Tensor:
    """Maps ``(N, C, H, W)`` as rows ``(N·H·W, C)``."""
    return maps.permute(0, 2, 3, 1).flatten(0, 2)


if __name__ == "__main__":
    main()
