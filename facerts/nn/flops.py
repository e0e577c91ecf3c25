"""The cost of a network: parameters and multiply-adds, counted as published tables count them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from facerts.images import CROP_SIZE


def count_parameters(module: nn.Module) -> int:
    """The number of parameters, trainable or not."""
    return sum(parameter.numel() for parameter in module.parameters())


@torch.no_grad()
def count_multiply_adds(module: nn.Module) -> int:
    """Multiply-adds for one crop, which model zoos call "FLOPs".

    A convolution or linear layer counts one per weight and output position, BatchNorm two per element, PReLU and ReLU
    one per element.
    """
    total = 0

    def count(layer: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        nonlocal total
        if isinstance(layer, nn.Conv2d):
            total += output[0].numel() * (layer.weight[0].numel() + (layer.bias is not None))
        elif isinstance(layer, nn.Linear):
            total += layer.weight.numel() + (0 if layer.bias is None else layer.bias.numel())
        elif isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
            total += 2 * output[0].numel()
        elif isinstance(layer, nn.PReLU | nn.ReLU):
            total += output[0].numel()

    hooks = [layer.register_forward_hook(count) for layer in module.modules()]
    training = module.training
    try:
        module.eval()(torch.zeros(1, 3, CROP_SIZE, CROP_SIZE))
    finally:
        module.train(training)
        for hook in hooks:
            hook.remove()
    return total
