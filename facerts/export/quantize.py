"""Smaller files of an exported network: weights stored in 16 bits, or convolutions computed in 8.

What was measured on eight methods' IResNet-18 at a quarter of its width (faces, drawings, noise; against float32):

- Stored in 16 bits the file has half the size, cosines stay above 0.99999 and qualities within about a thousandth of
  their own standard deviation. A cast follows each weight, which ONNX Runtime folds when it opens the file, so that
  a run takes as long as before.
- Computing in 16 bits would make no smaller a file. On a CPU ONNX Runtime casts forth and back around its float32
  kernels: the same time, and a hundred times the error.
- Convolutions in 8 bits leave a quarter of their size, cosines above 0.99 and qualities within about a tenth of
  their standard deviation. On a CPU with VNNI a run takes nine tenths of the time, and six tenths of it for the lite
  IResNet-18 at half its width; PReLU, BatchNorm and sums stay float32.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from facerts.embedding.onnx_embedder import to_input
from facerts.errors import ModelError
from facerts.onnx.contract import InputSpec

if TYPE_CHECKING:
    from onnx import ModelProto

# Operators with a weight for their second input. Biases and the numbers of BatchNorm are a hundredth of the file.
WEIGHTED = ("Conv", "Gemm", "MatMul")
BATCH = 16
SUFFIX = "_fp16"


def store_half(path: Path) -> None:
    """Store the weights of convolutions and linear layers as float16; everything is still computed in float32.

    Args:
        path: the ONNX file, which is changed.

    Raises:
        ModelError: a weight is beyond the range of float16.
    """
    import onnx

    model = onnx.load(str(path))
    _store_half(model)
    onnx.save(model, str(path))


def quantize(path: Path, faces: NDArray[np.uint8]) -> None:
    """Let the convolutions compute in 8 bits; the heads behind them, which have none, stay float.

    Activations are unsigned with one range for each tensor, from the least to the largest value on the faces given;
    weights are signed with a scale for each output channel. They get 7 of the 8 bits, so that CPUs without VNNI, whose
    products saturate at 16 bits, compute the same as others. The heads' weights are stored as ``store_half`` does.

    Args:
        path: the float32 ONNX file of ``facerts.training.export.from_checkpoint``, which is changed.
        faces: ``(N, 112, 112, 3) uint8`` RGB, aligned, such as the network will be given.

    Raises:
        ModelError: as ``store_half``.
    """
    import onnx
    from onnxruntime.quantization import QuantFormat, QuantType, quant_pre_process, quantize_static

    with TemporaryDirectory() as folder:
        prepared, quantized = Path(folder, "prepared.onnx"), Path(folder, "quantized.onnx")
        # The exporter has folded what can be folded.
        quant_pre_process(str(path), str(prepared), skip_optimization=True, skip_symbolic_shape=True)
        quantize_static(
            str(prepared),
            str(quantized),
            _Batches(faces),
            quant_format=QuantFormat.QDQ,
            op_types_to_quantize=["Conv"],
            per_channel=True,
            reduce_range=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )
        model = onnx.load(str(quantized))
    _store_half(model)
    onnx.save(model, str(path))


class _Batches:
    """Faces as ONNX Runtime's calibration asks for them: a batch at each call, then None."""

    def __init__(self, faces: NDArray[np.uint8]) -> None:
        self._left: Iterator[NDArray[np.uint8]] = (
            faces[start : start + BATCH] for start in range(0, len(faces), BATCH)
        )

    def get_next(self) -> dict[str, NDArray[np.float32]] | None:
        told = InputSpec()
        return next(({told.name: to_input(batch, told)} for batch in self._left), None)


def _store_half(model: ModelProto) -> None:
    from onnx import TensorProto, helper, numpy_helper

    graph = model.graph
    weights = {node.input[1] for node in graph.node if node.op_type in WEIGHTED}
    casts = []
    for tensor in graph.initializer:
        if tensor.name not in weights or tensor.data_type != TensorProto.FLOAT:
            continue
        name, values = tensor.name, numpy_helper.to_array(tensor)
        largest = float(np.abs(values).max(initial=0))
        if not largest <= float(np.finfo(np.float16).max):
            raise ModelError(
                f"the weight {name} has {largest:.4g} in it, beyond the range of float16; export the network as fp32"
            )
        tensor.CopyFrom(numpy_helper.from_array(values.astype(np.float16), name + SUFFIX))
        casts.append(helper.make_node("Cast", [name + SUFFIX], [name], to=TensorProto.FLOAT))
    nodes = [*casts, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
