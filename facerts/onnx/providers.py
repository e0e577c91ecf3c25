"""Execution providers of ONNX Runtime, which compute on the CPU or on an accelerator, and the choice of one.

``facerts doctor --bench`` measures those of a machine and stores what it found below the cache folder; ``auto`` goes by
that, and otherwise by a fixed order.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Literal, TypedDict

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from facerts.errors import ModelError, did_you_mean, problems_text
from facerts.io.cache import ADVICE, cache_folder
from facerts.io.files import atomic_write

AUTO = "auto"
CPU = "CPUExecutionProvider"
# By short name, in the order in which they are tried where nothing was measured.
PROVIDERS = {
    "cuda": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
    "migraphx": "MIGraphXExecutionProvider",
    "rocm": "ROCMExecutionProvider",
    "coreml": "CoreMLExecutionProvider",
    "openvino": "OpenVINOExecutionProvider",
    "cpu": CPU,
}
# They compile a model for every input size that they meet, for minutes: not for photos, and not before it was measured.
COMPILING = frozenset(PROVIDERS[name] for name in ("tensorrt", "migraphx"))
# Those that share the processor's cores.
CORES = frozenset({CPU, PROVIDERS["openvino"]})
# Those of graphics cards, of which a scheduler gives each process one.
GPU_PROVIDERS = frozenset(PROVIDERS[name] for name in ("cuda", "tensorrt", "migraphx", "rocm"))
# Crops in a batch where nothing was measured: larger ones are no faster on the CPU.
CPU_BATCH_SIZE, BATCH_SIZE = 16, 64

Milliseconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Runtime(TypedDict, total=False):
    """How a model computes.

    Attributes:
        providers: ONNX Runtime's execution providers by name (``["cuda"]``), which must start; ``["auto"]`` for the
            fastest, as ``facerts doctor --bench`` measured it or by a fixed order; after "auto", the first of these
            names that starts, or the CPU; None for the CPU.
        threads: threads per forward pass; None leaves it to ONNX Runtime.
        batch_size: crops per forward pass, if the model accepts any number; None for the best that was measured, or 16
            on the CPU and 64 elsewhere.
    """

    providers: Sequence[str] | None
    threads: int | None
    batch_size: int | None


class MeasuredProvider(BaseModel):
    """What a provider takes on this machine, and how exact it is.

    Attributes:
        ms_per_crop: milliseconds to embed a crop, by batch size.
        ms_per_photo: milliseconds to find the faces in a photo; None if no detector was measured, or it finds others.
        cosine: minimum cosine similarity of its embeddings to those on the CPU.
        quality_error: largest difference of its qualities from those on the CPU; None for models without quality.
        exact: whether both are small enough for ``auto`` to choose the provider.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    provider: str
    ms_per_crop: dict[int, Milliseconds] = Field(min_length=1)
    ms_per_photo: Milliseconds | None = None
    cosine: float
    quality_error: float | None = None
    exact: bool

    @property
    def batch_size(self) -> int:
        """The batch size with the least time per crop."""
        return min(self.ms_per_crop, key=lambda size: self.ms_per_crop[size])


class MeasuredProviders(BaseModel):
    """What was measured on a machine.

    Attributes:
        machine: its name: folders may be shared by several machines.
        onnxruntime: version.
        available: the providers that ONNX Runtime had.
        model: name of the model that was measured; what was found counts for all.
        providers: those that started.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_: Literal["facerts.providers/1"] = Field(default="facerts.providers/1", alias="schema")
    machine: str
    onnxruntime: str
    available: tuple[str, ...]
    model: str
    providers: tuple[MeasuredProvider, ...]


def measured_file() -> Path:
    """Where the measurements of this machine are, or would be."""
    return cache_folder() / f"providers-{_machine()}.json"


def store_measured(providers: Sequence[MeasuredProvider], model: str) -> Path:
    """Store what was measured with a model, for ``auto``, and return the file."""
    import onnxruntime

    measured = MeasuredProviders(
        machine=_machine(),
        onnxruntime=onnxruntime.__version__,
        available=tuple(onnxruntime.get_available_providers()),
        model=model,
        providers=tuple(providers),
    )
    with atomic_write(measured_file(), "w", advice=ADVICE) as file:
        file.write(measured.model_dump_json(by_alias=True, indent=1) + "\n")
    return measured_file()


def measured_providers() -> tuple[MeasuredProvider, ...]:
    """What was measured on this machine with this ONNX Runtime; empty if nothing was."""
    import onnxruntime

    path = measured_file()
    if not path.is_file():
        return ()
    try:
        measured = MeasuredProviders.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror}); delete it, or set FACERTS_CACHE") from error
    except ValidationError as error:
        raise ModelError(
            f"{path}: {problems_text(error.errors())}; delete it, and run facerts doctor --bench again"
        ) from error
    same = (measured.onnxruntime, list(measured.available)) == (
        onnxruntime.__version__,
        onnxruntime.get_available_providers(),
    )
    return measured.providers if same else ()


def automatic_order(*, photos: bool = False) -> list[str]:
    """The available providers as ``auto`` tries them: the fastest for crops, or for photos, first; the CPU last."""
    import onnxruntime

    available = onnxruntime.get_available_providers()
    order = [name for name in PROVIDERS.values() if name in available and name not in COMPILING]
    if measured := measured_providers():
        if photos:
            times = {found.provider: found.ms_per_photo for found in measured if found.provider not in COMPILING}
        else:
            times = {found.provider: min(found.ms_per_crop.values()) for found in measured if found.exact}
        known = {name: time for name, time in times.items() if time is not None}
        order = sorted(known, key=lambda name: known[name])
    return [*takewhile(lambda name: name != CPU, order), CPU]


def full_names(providers: Sequence[str]) -> list[str]:
    """Names of ONNX Runtime for names of either kind."""
    import onnxruntime

    available = onnxruntime.get_available_providers()
    if AUTO in map(str.lower, providers):
        raise ModelError(f"{AUTO} comes first, before the names of those that it may take")
    names = [PROVIDERS.get(name.lower(), name) for name in providers]
    for given, name in zip(providers, names, strict=True):
        if name not in available:
            hint = "" if name in PROVIDERS.values() else did_you_mean(given, [*PROVIDERS, AUTO])
            has = ", ".join(known for known, full in PROVIDERS.items() if full in available)
            raise ModelError(f"ONNX Runtime has no {name} here{hint}; it has {has}")
    return names


def usual_batch_size(provider: str) -> int:
    """Crops in a batch: the number with the least time per crop if that was measured, of several."""
    found = [
        measured for measured in measured_providers() if measured.provider == provider and len(measured.ms_per_crop) > 1
    ]
    return found[0].batch_size if found else CPU_BATCH_SIZE if provider == CPU else BATCH_SIZE


def _machine() -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in platform.node()) or "here"
