"""Random weights in the form in which insightface's arcface_torch saves them."""

from collections.abc import Sequence

import torch
from torch import Tensor


def draw_published(
    blocks: Sequence[int],
    channels: Sequence[int],
    embedding_size: int,
    *,
    dtype: torch.dtype = torch.float64,
    seed: int = 1,
) -> dict[str, Tensor]:
    """A state dict of random weights and BatchNorm statistics, in the order that the published network has them.

    There is a number of blocks and of channels for each of the four stages.
    """
    generator = torch.Generator().manual_seed(seed)
    weights: dict[str, Tensor] = {}

    def uniform(*shape: int, low: float = 0.5, high: float = 1.5) -> Tensor:
        return torch.rand(*shape, dtype=dtype, generator=generator) * (high - low) + low

    def conv(name: str, inputs: int, outputs: int, size: int) -> None:
        spread = (inputs * size * size) ** -0.5
        weights[f"{name}.weight"] = torch.randn(outputs, inputs, size, size, dtype=dtype, generator=generator) * spread

    def norm(name: str, size: int, *, scaled: bool = True) -> None:
        weights[f"{name}.weight"] = uniform(size) if scaled else torch.ones(size, dtype=dtype)
        weights[f"{name}.bias"] = uniform(size, low=-0.5, high=0.5)
        weights[f"{name}.running_mean"] = uniform(size, low=-0.5, high=0.5)
        weights[f"{name}.running_var"] = uniform(size)
        weights[f"{name}.num_batches_tracked"] = torch.tensor(1000)

    def prelu(name: str, size: int) -> None:
        weights[f"{name}.weight"] = uniform(size, low=0.1, high=0.4)

    inputs = channels[0]
    conv("conv1", 3, inputs, 3)
    norm("bn1", inputs)
    prelu("prelu", inputs)
    for stage, (count, outputs) in enumerate(zip(blocks, channels, strict=True), 1):
        for block in range(count):
            at = f"layer{stage}.{block}"
            norm(f"{at}.bn1", inputs)
            conv(f"{at}.conv1", inputs, outputs, 3)
            norm(f"{at}.bn2", outputs)
            prelu(f"{at}.prelu", outputs)
            conv(f"{at}.conv2", outputs, outputs, 3)
            norm(f"{at}.bn3", outputs)
            if block == 0:
                conv(f"{at}.downsample.0", inputs, outputs, 1)
                norm(f"{at}.downsample.1", outputs)
            inputs = outputs
    norm("bn2", inputs)
    features = inputs * 7 * 7
    weights["fc.weight"] = torch.randn(embedding_size, features, dtype=dtype, generator=generator) * features**-0.5
    weights["fc.bias"] = uniform(embedding_size, low=-0.1, high=0.1)
    norm("features", embedding_size, scaled=False)
    return weights
