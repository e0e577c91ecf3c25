"""Grafts quality heads onto the graph of an existing embedder: one ONNX file with the outputs of both.

The heads are trained here; ``calibration.graft`` joins the embedder with the quality of another model instead.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from facerts.embedding import FaceOutputs, OnnxEmbedder
from facerts.errors import ModelError
from facerts.io.files import scratch_folder
from facerts.onnx.contract import Description
from facerts.onnx.merge_graphs import append, same_opset, tensor_names, unused
from facerts.training.export import write_module
from facerts.training.posthoc_features import TAP, Features
from facerts.training.train_heads import TrainedHeads

if TYPE_CHECKING:
    from onnx import ModelProto

# Roles that the embedder itself provides, if it has them.
EMBEDDER_ROLES = ("embedding", "norm")


class QualityModule(nn.Module):
    """Heads and their method's score as one module, whose outputs, ``roles``, are those the embedder does not have."""

    def __init__(self, trained: TrainedHeads) -> None:
        super().__init__()
        self.heads = trained.heads
        self.state = trained.method.state
        self._score = trained.method.score
        self.eval()
        with torch.no_grad():
            scored = self._score(self.heads(*self.examples()))
        self.roles = [role for role in scored if role not in EMBEDDER_ROLES]

    def examples(self) -> list[Tensor]:
        """Example inputs of ``forward``, for two images."""
        return [torch.zeros(2, size) for size in self.heads.sizes if size]

    def forward(self, vector: Tensor, tap: Tensor | None = None) -> tuple[Tensor, ...]:
        scored = self._score(self.heads(vector, tap))
        return tuple(scored[role] for role in self.roles)

    @torch.no_grad()
    def outputs(self, features: Features) -> FaceOutputs:
        """The expected outputs of the grafted file, computed by PyTorch."""
        values = self(torch.from_numpy(features.embedding), torch.from_numpy(features.tap))
        scored = {role: value.numpy() for role, value in zip(self.roles, values, strict=True)}
        quality, uncertainty = scored.pop("quality"), scored.pop("uncertainty")
        return FaceOutputs(features.unit, features.norm, quality, uncertainty, scored)

    def quality_of(self, features: Features) -> NDArray[np.float32]:
        """``(N,)`` quality of images, computed by PyTorch."""
        quality = self.outputs(features).quality
        assert quality is not None  # every method's score has it
        return quality


def add_features(model: ModelProto, description: Description, tap: str | None) -> list[str]:
    """Add the inputs of the heads to the outputs of a graph, which is changed in place, each of shape (N, …).

    They are the embedding before normalization and, if there is one, the tensor ``tap``; feature maps are averaged over
    their positions. Returns their names.
    """
    from onnx import TensorProto, helper

    graph = model.graph
    taken = tensor_names(model)

    def add(kind: str, inputs: Sequence[str], name: str) -> str:
        name = unused(f"facerts_{name}", taken.__contains__)
        axis = {"axis": 1} if kind == "Flatten" else {}
        graph.node.append(helper.make_node(kind, inputs, [name], name, **axis))  # type: ignore[arg-type]
        return name

    vector = add("Flatten", [description.outputs["embedding"]], "embedding")
    if "norm" in description.outputs and not description.normalize_embedding:
        norm = add("Flatten", [description.outputs["norm"]], "norm")
        vector = add("Mul", [vector, norm], "vector")
    tensors = [vector]
    if tap is not None:
        pooled = add("GlobalAveragePool", [tap], "pooled") if _rank(model, tap) == 4 else tap
        tensors.append(add("Flatten", [pooled], "tap"))
    for name in tensors:
        graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))
    return tensors


def tapped(embedder: OnnxEmbedder, model: ModelProto, tensor: str, threads: int | None) -> OnnxEmbedder:
    """The embedder with the output ``tensor``, which ``add_features`` added to its graph, among its extras."""
    description = embedder.description
    return OnnxEmbedder(
        embedder.path,
        content=model.SerializeToString(),
        description=description.model_copy(update={"outputs": {**description.outputs, TAP: tensor}}),
        providers=embedder.providers,
        threads=threads,
        batch_size=embedder.batch_size,
    )


def graft(model: ModelProto, inputs: Sequence[str], quality: QualityModule, path: Path) -> dict[str, str]:
    """Write the embedder with the quality module appended to its graph; returns the output name of each of its roles.

    ``inputs`` are the outputs that ``add_features`` added to the graph.
    """
    import onnx

    with scratch_folder() as scratch:
        part = scratch / "quality.onnx"
        examples = dict(zip(("vector", "tap"), quality.examples(), strict=False))
        write_module(quality, examples, quality.roles, part)
        head = onnx.load(str(part))
    model, head = same_opset(model, head)
    kept = [output for output in model.graph.output if output.name not in inputs]
    del model.graph.output[:]
    model.graph.output.extend(kept)
    names = append(model, head, dict(zip(examples, inputs, strict=True)), {role: role for role in quality.roles})
    onnx.save(model, str(path))
    return names


def _rank(model: ModelProto, tensor: str) -> int:
    from onnx import TensorProto, shape_inference

    known = [name for node in model.graph.node for name in node.output if name]
    if tensor not in known:
        suggestions = difflib.get_close_matches(tensor, known, n=3, cutoff=0.3) or known[-3:]
        raise ModelError(f"the model has no tensor {tensor!r}; it has {', '.join(suggestions)} and others")
    graph = shape_inference.infer_shapes(model).graph
    types = {value.name: value.type.tensor_type for value in (*graph.value_info, *graph.output)}
    if tensor not in types or not types[tensor].HasField("shape"):
        raise ModelError(f"the shape of tensor {tensor!r} cannot be inferred; tap another one")
    if types[tensor].elem_type != TensorProto.FLOAT:
        raise ModelError(f"tensor {tensor!r} is not float32; tap another one")
    return len(types[tensor].shape.dim)
