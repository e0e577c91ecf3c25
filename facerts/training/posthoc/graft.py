"""Heads joined to the graph of somebody else's embedder: one ONNX file with its outputs and the heads' own."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from facerts.embedding import FaceOutputs, OnnxEmbedder
from facerts.errors import ModelError
from facerts.onnx.contract import Description
from facerts.training.export.onnx_file import write_module
from facerts.training.posthoc.features import TAP, Features
from facerts.training.posthoc.train import Trained

if TYPE_CHECKING:
    from onnx import ModelProto

# What the embedder gives already, as it was.
KEPT = ("embedding", "norm")


class Scorer(nn.Module):
    """Heads and their method's score in one graph, without what the embedder gives itself.

    Attributes:
        roles: of its outputs, in their order.
    """

    def __init__(self, trained: Trained) -> None:
        super().__init__()
        self.heads = trained.heads
        self.state = trained.method.state
        self._score = trained.method.score
        self.eval()
        with torch.no_grad():
            scored = self._score(self.heads(*self.examples()))
        self.roles = [role for role in scored if role not in KEPT]

    def examples(self) -> list[Tensor]:
        """What ``forward`` takes, for two images."""
        return [torch.zeros(2, size) for size in self.heads.sizes if size]

    def forward(self, vector: Tensor, tap: Tensor | None = None) -> tuple[Tensor, ...]:
        scored = self._score(self.heads(vector, tap))
        return tuple(scored[role] for role in self.roles)

    @torch.no_grad()
    def outputs(self, features: Features) -> FaceOutputs:
        """What the grafted file should give, by PyTorch."""
        values = self(torch.from_numpy(features.embedding), torch.from_numpy(features.tap))
        scored = {role: value.numpy() for role, value in zip(self.roles, values, strict=True)}
        quality, uncertainty = scored.pop("quality"), scored.pop("uncertainty")
        return FaceOutputs(features.unit, features.norm, quality, uncertainty, scored)


def add_features(model: ModelProto, told: Description, tap: str | None) -> list[str]:
    """Give a graph the tensors that heads read, as outputs of (N, …); a tapped map is pooled to its mean.

    Returns:
        their names: the embedding before normalization and, where there is one, the tapped tensor.

    Raises:
        ModelError: there is no tensor of the tapped name, or none that heads can read.
    """
    from onnx import TensorProto, helper

    graph = model.graph
    taken = _names(model)

    def add(kind: str, inputs: Sequence[str], name: str) -> str:
        name = _unused(f"facerts_{name}", taken.__contains__)
        axis = {"axis": 1} if kind == "Flatten" else {}
        graph.node.append(helper.make_node(kind, inputs, [name], name, **axis))  # type: ignore[arg-type]
        return name

    vector = add("Flatten", [told.outputs["embedding"]], "embedding")
    if "norm" in told.outputs and not told.normalize_embedding:
        norm = add("Flatten", [told.outputs["norm"]], "norm")
        vector = add("Mul", [vector, norm], "vector")
    tensors = [vector]
    if tap is not None:
        pooled = add("GlobalAveragePool", [tap], "pooled") if _rank(model, tap) == 4 else tap
        tensors.append(add("Flatten", [pooled], "tap"))
    for name in tensors:
        graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))
    return tensors


def tapped(embedder: OnnxEmbedder, model: ModelProto, tensor: str, threads: int | None) -> OnnxEmbedder:
    """An embedder that gives a tensor of its graph among its extras, see ``add_features``."""
    import onnx

    told = embedder.description
    with TemporaryDirectory() as scratch:
        path = Path(scratch) / "tapped.onnx"
        onnx.save(model, str(path))
        description = told.model_copy(update={"outputs": {**told.outputs, TAP: tensor}})
        return OnnxEmbedder(
            path,
            description=description,
            providers=embedder.providers,
            threads=threads,
            batch_size=embedder.batch_size,
        )


def graft(model: ModelProto, inputs: Sequence[str], scorer: Scorer, path: Path) -> dict[str, str]:
    """Write the embedder with the scorer behind it.

    Args:
        model: the embedder's graph.
        inputs: what ``add_features`` added to it.
        scorer: what to join.
        path: of the file.

    Returns:
        the tensor of each role that the scorer adds.

    Raises:
        ModelError: the two graphs cannot be brought to one version of ONNX's operators.
    """
    import onnx
    from onnx import compose

    with TemporaryDirectory() as scratch:
        part = Path(scratch) / "scorer.onnx"
        examples = dict(zip(("vector", "tap"), scorer.examples(), strict=False))
        write_module(scorer, examples, scorer.roles, part)
        head = onnx.load(str(part))
    version = max(_opset(model), _opset(head))
    model, head = _converted(model, version), _converted(head, version)
    model.ir_version = head.ir_version = max(model.ir_version, head.ir_version)
    taken = _names(model)
    prefix = _unused("facerts/", lambda prefix: any(name.startswith(prefix) for name in taken))
    head = compose.add_prefix(head, prefix)
    names = {role: _unused(role, taken.__contains__) for role in scorer.roles}
    _rename(head, {f"{prefix}{role}": name for role, name in names.items()})
    kept = [output.name for output in model.graph.output if output.name not in inputs]
    joined = compose.merge_models(
        model,
        head,
        [(tensor, f"{prefix}{name}") for tensor, name in zip(inputs, examples, strict=True)],
        outputs=[*kept, *names.values()],
        name=model.graph.name,
    )
    onnx.save(joined, str(path))
    return names


def _rank(model: ModelProto, tensor: str) -> int:
    """How many axes a tensor has.

    Raises:
        ModelError: there is none of that name, it is not float32, or its shape is not known.
    """
    from onnx import TensorProto, shape_inference

    known = [name for node in model.graph.node for name in node.output if name]
    if tensor not in known:
        near = difflib.get_close_matches(tensor, known, n=3, cutoff=0.3) or known[-3:]
        raise ModelError(f"the model computes no tensor {tensor!r}; there are {', '.join(near)}, and others")
    graph = shape_inference.infer_shapes(model).graph
    types = {value.name: value.type.tensor_type for value in (*graph.value_info, *graph.output)}
    if tensor not in types or not types[tensor].HasField("shape"):
        raise ModelError(f"the shape of the tensor {tensor!r} cannot be told from the model; tap another")
    if types[tensor].elem_type != TensorProto.FLOAT:
        raise ModelError(f"the tensor {tensor!r} does not hold float32 numbers; tap another")
    return len(types[tensor].shape.dim)


def _names(model: ModelProto) -> set[str]:
    """All names of tensors and nodes."""
    return {name for node in model.graph.node for name in (*node.input, *node.output, node.name)}


def _opset(model: ModelProto) -> int:
    return next(int(entry.version) for entry in model.opset_import if entry.domain in ("", "ai.onnx"))


def _converted(model: ModelProto, version: int) -> ModelProto:
    from onnx import version_converter

    if _opset(model) == version:
        return model
    try:
        return version_converter.convert_version(model, version)
    except Exception as error:  # the converter's errors share no base class but Exception
        raise ModelError(
            f"the model's operators are those of ONNX opset {_opset(model)}, and cannot be brought to {version} "
            f"({str(error).strip().splitlines()[0]})"
        ) from error


def _unused(name: str, taken: Callable[[str], bool]) -> str:
    while taken(name):
        name = f"posthoc_{name}"
    return name


def _rename(model: ModelProto, names: Mapping[str, str]) -> None:
    """Give tensors other names, wherever they stand."""
    for node in model.graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    for value in (*model.graph.output, *model.graph.value_info):
        value.name = names.get(value.name, value.name)
