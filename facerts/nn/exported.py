"""Networks as ``facerts export`` writes them, and the weights of such files, to go on training from them.

An exported file keeps the names of its weights. Two things change on export: a BatchNorm behind a convolution or a
linear layer becomes part of that layer's weight and bias, and a PReLU becomes ``MaxPReLU`` or loses the name of its
slopes, which are therefore found by the layer before them.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from facerts.errors import ModelError, first_line
from facerts.nn.arcface_torch import check_finite
from facerts.nn.twin_heads import FaceNetwork
from facerts.onnx.contract import Description, find_description
from facerts.onnx.graph_edit import load_graph

if TYPE_CHECKING:
    from onnx import GraphProto, TensorProto

# What the exporter puts before the name of each weight, and after that of one stored in 16 bits.
PREFIX, HALF = "network.", "_fp16"
HEADS, EMBEDDING = "heads.", "embedding."


@dataclass(frozen=True)
class ExportedWeights:
    """The weights of an exported file; ``slopes`` are those of the PReLU that follows a layer, by its name."""

    file: Path
    description: Description
    tensors: Mapping[str, Tensor]
    slopes: Mapping[str, Tensor]


def read_exported(file: Path) -> ExportedWeights:
    """The weights of a file that ``facerts export`` has written in 32 or 16 bits; needs onnx."""
    if not file.is_file():
        raise ModelError(f"{file}: no such file; it is named by backbone.weights")
    model = load_graph(file, "training from an exported file")
    graph = model.graph
    description = find_description(file, {entry.key: entry.value for entry in model.metadata_props})
    if description.precision == "int8":
        raise ModelError(
            f"{file}: its convolutions are in 8 bits, which is too coarse to train from; use the file in 16 or 32 bits"
        )
    stored = {tensor.name: tensor for tensor in graph.initializer}
    tensors = {_own_name(name): _tensor(file, tensor) for name, tensor in stored.items() if name.startswith(PREFIX)}
    layers = _layers(graph)
    for layer in layers:
        if layer.bias in stored:
            tensors[f"{layer.name}.bias"] = _tensor(file, stored[layer.bias])
        elif not layer.bias and f"{layer.name}.weight" in tensors:
            # Expanded, because a forged file could claim any number of empty rows.
            tensors[f"{layer.name}.bias"] = torch.zeros(1).expand(len(tensors[f"{layer.name}.weight"]))
    slopes = {layer.name: _tensor(file, stored[layer.slopes]).reshape(-1) for layer in layers if layer.slopes in stored}
    return ExportedWeights(file, description, tensors, slopes)


def load_exported(network: FaceNetwork, exported: ExportedWeights, *, heads: bool) -> list[_BatchNorm]:
    """Load exported weights into a network, which then computes in evaluation mode what the file computes.

    With ``heads``, those of them that fit are loaded as well, beside trunk and embedding; the embedding of a file
    without one stays as it is. Returns the BatchNorms that the file has no statistics of. They add a bias and nothing
    else; before the network is trained in training mode, ``refit_norms`` must give them the statistics of images.
    """
    weights: dict[str, Tensor] = {}
    folded: list[_BatchNorm] = []
    left_out = {
        _head(name)
        for name, module in _leaves(network)
        if isinstance(module, nn.Linear)
        and getattr(exported.tensors.get(f"{name}.weight"), "shape", None) != module.weight.shape
    }
    layer = ""
    for name, module in _leaves(network):
        if name.startswith(HEADS) and (not heads or _head(name) in left_out):
            continue
        if name.startswith(EMBEDDING) and not exported.description.embedding_size:
            continue
        own = {f"{name}.{entry}": value for entry, value in module.state_dict().items()}
        if isinstance(module, nn.PReLU):
            weights[f"{name}.weight"] = _fitting(exported, exported.slopes, layer, module.weight, f"{name}.weight")
        elif isinstance(module, _BatchNorm) and f"{name}.running_mean" not in exported.tensors:
            weights |= _as_bias(exported, name, module, layer, has_bias=f"{layer}.bias" in weights)
            folded.append(module)
        else:
            weights |= {
                key: _fitting(exported, exported.tensors, key, value)
                for key, value in own.items()
                if not key.endswith("num_batches_tracked")
            }
        if isinstance(module, nn.Conv2d | nn.Linear):
            layer = name
    network.load_state_dict({**network.state_dict(), **weights})
    return folded


def _head(name: str) -> str:
    """The head that a layer belongs to; the layer itself where it is of none."""
    return ".".join(name.split(".")[:2])


@torch.no_grad()
def refit_norms(network: FaceNetwork, norms: Sequence[_BatchNorm], images: Tensor) -> None:
    """Give BatchNorms from ``load_exported`` the statistics of training images ``(B, 3, 112, 112)``.

    So training mode computes about the same, and evaluation mode the same as before: the statistics are undone by
    weight and bias.
    """
    statistics: dict[nn.Module, tuple[Tensor, Tensor]] = {}

    def measure(norm: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        dimensions = [dimension for dimension in range(inputs[0].ndim) if dimension != 1]
        statistics[norm] = torch.var_mean(inputs[0].float(), dim=dimensions, correction=0)

    hooks = [norm.register_forward_pre_hook(measure) for norm in norms]
    training = network.training
    network.eval()(images)
    network.train(training)
    for hook in hooks:
        hook.remove()
    for norm in norms:
        variance, mean = statistics[norm]
        assert norm.running_mean is not None
        assert norm.running_var is not None
        norm.running_mean.copy_(mean)
        norm.bias.add_(mean)
        # The embedding's BatchNorm has a fixed weight of 1, and its outputs had a variance of about 1 in training.
        if norm.weight.requires_grad:
            norm.running_var.copy_(variance)
            norm.weight.copy_((variance + norm.eps).sqrt())


def _leaves(network: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The modules without children, in the order in which they were built, which is that of their use."""
    return ((name, module) for name, module in network.named_modules() if not list(module.children()))


def _tensor(file: Path, stored: TensorProto) -> Tensor:
    from onnx import TensorProto, numpy_helper

    if stored.data_type not in (TensorProto.FLOAT, TensorProto.FLOAT16):
        raise ModelError(f"{file}: weight {stored.name!r} is not in 32 or 16 bits")
    try:
        values = torch.from_numpy(numpy_helper.to_array(stored).astype(np.float32))
    except (ValueError, TypeError, OverflowError) as error:
        raise ModelError(f"{file}: weight {stored.name!r} is broken ({first_line(error)})") from error
    check_finite({stored.name: values}, file)
    return values


class _Layer(NamedTuple):
    """A convolution or linear layer of a graph: its name in the network, and the names of tensors ("" for none)."""

    name: str
    bias: str
    slopes: str


def _layers(graph: GraphProto) -> list[_Layer]:
    """The convolutions and linear layers, each with its bias and the slopes of the PReLU that follows it.

    Equal biases of several layers may be stored once, under one of their names, and a bias of zeros not at all.
    """
    # MaxPReLU is a product with the slopes, in either order.
    slopes = {
        node.input[0]: node.input[1] for node in graph.node if node.op_type in ("PRelu", "Mul") and len(node.input) == 2
    }
    slopes |= {node.input[1]: node.input[0] for node in graph.node if node.op_type == "Mul" and len(node.input) == 2}
    layers = []
    for node in graph.node:
        if node.op_type in ("Conv", "Gemm") and len(node.input) in (2, 3) and node.output:
            weight, bias = node.input[1], node.input[2] if len(node.input) == 3 else ""
            name = _own_name(weight).removesuffix(".weight")
            layers.append(_Layer(name, bias, slopes.get(node.output[0], "")))
    return layers


def _own_name(name: str) -> str:
    return name.removeprefix(PREFIX).removesuffix(HALF)


def _as_bias(
    exported: ExportedWeights, name: str, norm: _BatchNorm, layer: str, *, has_bias: bool
) -> dict[str, Tensor]:
    """The state of a BatchNorm that adds the bias of the layer that it became part of, if that has none itself."""
    assert norm.running_var is not None
    bias = torch.zeros_like(norm.bias)
    if not has_bias:
        bias = _fitting(exported, exported.tensors, f"{layer}.bias", bias, f"{name}.bias")
    return {
        f"{name}.weight": torch.ones_like(norm.weight),
        f"{name}.bias": bias,
        f"{name}.running_mean": torch.zeros_like(bias),
        f"{name}.running_var": torch.full_like(norm.running_var, 1 - norm.eps),
    }


def _fitting(exported: ExportedWeights, tensors: Mapping[str, Tensor], key: str, own: Tensor, name: str = "") -> Tensor:
    """One of the tensors, if it has the shape of the network's own."""
    value = tensors.get(key)
    if value is not None and value.shape == own.shape:
        return value
    description = exported.description
    problem = "is missing" if value is None else f"is {tuple(value.shape)}, expected {tuple(own.shape)}"
    raise ModelError(
        f"{exported.file}: the weights do not fit the network of this recipe ({name or key} {problem}); the file's is "
        f"{description.backbone or 'not from facerts export'}, with embeddings of size {description.embedding_size}"
    )


class MaxPReLU(nn.Module):
    """PReLU as a maximum, max(x, a x), which is the same if no slope a ``(C,)`` is above 1.

    ONNX Runtime multiplies and takes maxima with vector instructions, but not its PReLU: on one core with AVX2 that
    took more than three times as long as both.
    """

    def __init__(self, slopes: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(slopes.detach().reshape(-1, 1, 1), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.maximum(x, self.weight * x)


def for_inference(network: nn.Module) -> nn.Module:
    """A copy of a network in evaluation mode that computes the same in less time; it cannot be trained.

    PReLU becomes ``MaxPReLU`` where that is the same.
    """
    network = copy.deepcopy(network)
    for module in list(network.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.PReLU) and bool((child.weight <= 1).all()):
                setattr(module, name, MaxPReLU(child.weight))
    return network
