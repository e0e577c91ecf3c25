"""A network whose forward and backward passes torch.compile has fused."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from facerts.errors import Error
from facerts.training.nn import FaceNetwork


def compiled(network: FaceNetwork) -> Callable[[Tensor], dict[str, Tensor]]:
    """The network's forward pass, compiled at its first call for the size and the mode that it is called with.

    The network stays as it is, and so do the names of its weights: both calculate with the same ones.

    Raises:
        Error: when called, on a machine where the network cannot be compiled.
    """
    # Takes seconds to import, which only runs that compile should wait for.
    from torch._dynamo.exc import TorchDynamoException

    fused = torch.compile(network, dynamic=False)

    def forward(images: Tensor) -> dict[str, Tensor]:
        try:
            outputs: dict[str, Tensor] = fused(images)
        except TorchDynamoException as error:
            raise Error(
                f"compute.compile: PyTorch cannot compile the network here: {str(error).splitlines()[0]}. It needs a "
                "C++ compiler (g++, or the one that the environment variable CXX names) and, on a GPU, Triton; "
                "install what is missing, or train with compute.compile=false"
            ) from error
        return outputs

    return forward
