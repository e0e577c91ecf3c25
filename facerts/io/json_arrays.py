"""Arrays in JSON, for the state of a run that pydantic writes and checks."""

from __future__ import annotations

import base64
import math
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import PlainSerializer, PlainValidator

KINDS = {"uint8": np.uint8, "float32": np.float32, "float64": np.float64}


def _write(array: NDArray[Any]) -> dict[str, Any]:
    data = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii")
    return {"type": array.dtype.name, "shape": list(array.shape), "data": data}


def _read(value: Any) -> NDArray[Any]:
    if isinstance(value, np.ndarray):
        return value
    try:
        kind, shape = KINDS[value["type"]], [int(side) for side in value["shape"]]
        data = base64.b64decode(value["data"], validate=True)
        if math.prod(shape) * np.dtype(kind).itemsize != len(data):
            raise ValueError("the data do not have the stated shape")
        return np.frombuffer(data, dtype=kind).reshape(shape).copy()
    except (KeyError, TypeError) as error:
        raise ValueError("not an array") from error


_CHECKED = PlainValidator(_read)
_WRITTEN = PlainSerializer(_write, when_used="json")
Float32Array = Annotated[NDArray[np.float32], _CHECKED, _WRITTEN]
Float64Array = Annotated[NDArray[np.float64], _CHECKED, _WRITTEN]
Uint8Array = Annotated[NDArray[np.uint8], _CHECKED, _WRITTEN]
