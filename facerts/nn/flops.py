"""The cost of a network: parameters and multiply-adds."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from facerts.images import CROP_SIZE


def count_parameters(module: nn.Module) -> int:
    """The number of parameters, trainable or not."""
    return sum(parameter.numel() for parameter in module.parameters())


@torch.no_grad()
def count_multiply_adds(module: nn.Module) -> int:
    """Multiply-adds of the convolutions and linear layers for one crop, which model zoos call "FLOPs"."""
    training = module.training
    with FlopCounterMode(display=False) as counter:
        module.eval()(torch.zeros(1, 3, CROP_SIZE, CROP_SIZE))
    module.train(training)
    total: int = counter.get_total_flops()
    return total // 2
