"""Training steps compiled with torch.compile."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from facerts.errors import Error
from facerts.training.nn import FaceNetwork


def compiled(network: FaceNetwork) -> Callable[[Tensor], dict[str, Tensor]]:
    """The network's forward pass, compiled on its first call for that input size and mode.

    The network itself and the names of its weights do not change; the compiled function uses the same weights.

    Raises:
        Error: when the result is called on a machine that cannot compile the network.
    """
    # Imported here because the import takes seconds, and most runs do not compile.
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
