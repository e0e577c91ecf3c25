"""ONNX Runtime: the only module that opens and runs its sessions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from facerts.errors import MissingExtraError, ModelError, first_line
from facerts.io.cache import cache_folder
from facerts.io.console import warn
from facerts.onnx.providers import AUTO, CPU, PROVIDERS, automatic_order, full_names

LOG_ERRORS = 3
LOG_FATAL = 4

# Providers of which it was said that they do not start.
_passed_over: set[str] = set()


class ProviderError(ModelError):
    """A provider does not start on this machine, or ONNX Runtime does not have it."""


def open_session(
    path: Path,
    *,
    content: bytes | None = None,
    providers: str | Sequence[str] | None = None,
    threads: int | None = None,
    inference: bool = True,
    varying_sizes: bool = False,
    photos: bool = False,
) -> Any:
    """Open an ONNX Runtime session of a model file.

    Args:
        content: content of the file if it was already read or changed; the path then only names it in errors.
        providers: execution providers by name (``cuda``, ``CUDAExecutionProvider``), all of which must start; ``auto``
            for the first of ``automatic_order`` that starts, or of the names after it; None for the CPU.
        inference: False to inspect only the inputs and outputs, without optimizing the graph or logging errors.
        varying_sizes: whether input sizes vary between forward passes, so that memory is not planned per size.
        photos: whether it is a detector: ``auto`` then goes by the time of a photo.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtraError(
            "running a model needs ONNX Runtime: pip install onnxruntime, or 'onnxruntime-gpu[cuda,cudnn]' for a GPU; "
            "uvx and pipx run take --with onnxruntime"
        ) from error
    if content is None and not path.is_file():
        raise ModelError(f"{path}: no such model file")
    refuse_arrays(path)
    options = onnxruntime.SessionOptions()
    # Some models of packs declare output shapes that they do not keep; ONNX Runtime would warn at every forward pass.
    options.log_severity_level = LOG_ERRORS if inference else LOG_FATAL
    if not inference:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.enable_mem_pattern = not varying_sizes
    if threads is not None:
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
    model = str(path) if content is None else content
    named = [providers] if isinstance(providers, str) else list(providers or [CPU])
    if named[0].lower() != AUTO:
        try:
            return _open(path, model, options, full_names(named))
        except ModelError as error:
            # A file that the CPU cannot load either is not the provider's fault.
            _open(path, model, options, [CPU])
            raise ProviderError(f"{error}; the provider auto is one that starts") from error
    session, problems = None, {}
    for provider in named[1:] or automatic_order(photos=photos):
        try:
            session = _open(path, model, options, list(dict.fromkeys([*full_names([provider]), CPU])))
            break
        except ModelError as error:
            problems[provider] = error
    # The CPU's error comes first: what it cannot load is not the accelerators' fault.
    session = session or _open(path, model, options, [CPU])
    if new := problems.keys() - _passed_over:
        _passed_over.update(new)
        said = "; ".join(str(problem) for provider, problem in problems.items() if provider in new)
        warn(f"{said}; running on {session.get_providers()[0]} instead")
    return session


def refuse_arrays(path: Path) -> None:
    """Refuse a gallery or a table of embeddings, of which ONNX Runtime only says that it is no protobuf."""
    if path.suffix.lower() == ".npz":
        raise ModelError(
            f"{path} has the embeddings of a gallery or a table and is no model; give the name of a model or an .onnx "
            "file"
        )


def _open(path: Path, model: str | bytes, options: Any, providers: Sequence[str]) -> Any:
    import onnxruntime

    settings = [_settings(provider, options) for provider in providers]
    try:
        # Without its own fallback, which prints to standard output.
        session = onnxruntime.InferenceSession(
            model, options, providers=providers, provider_options=settings, enable_fallback=0
        )
        # Reading a tensor name that is not valid UTF-8 raises an error; find out now.
        _ = [tensor.name for tensor in (*session.get_inputs(), *session.get_outputs())]
    except Exception as error:  # ONNX Runtime's errors have no common base class but Exception
        problem = f"{path}: ONNX Runtime cannot load it ({first_line(error)})"
        raise (ModelError if list(providers) == [CPU] else ProviderError)(problem) from error
    # ONNX Runtime goes on without a provider whose libraries or device it does not find.
    if lost := [name for name in providers if name not in session.get_providers()]:
        raise ProviderError(
            f"{path}: ONNX Runtime could not start {', '.join(lost)} here (a library or the device is missing)"
        )
    return session


def _settings(provider: str, options: Any) -> dict[str, str]:
    """What a provider does not take from the session's options."""
    threads = options.intra_op_num_threads
    if provider == PROVIDERS["openvino"] and threads:
        return {"num_of_threads": str(threads)}
    if provider == PROVIDERS["tensorrt"]:
        # Otherwise every process would compile the model again.
        return {"trt_engine_cache_enable": "1", "trt_engine_cache_path": str(cache_folder() / "tensorrt")}
    return {}


def metadata_of(session: Any, path: Path) -> dict[str, str]:
    """The metadata of a model by key."""
    try:
        return dict(session.get_modelmeta().custom_metadata_map)
    except UnicodeDecodeError as error:
        raise ModelError(f"{path}: its metadata is not UTF-8 ({error})") from error


def run_session(session: Any, path: Path, outputs: Sequence[str] | None, feeds: Mapping[str, Any]) -> list[Any]:
    """Run a forward pass and return the outputs, all by default; a missing input is an error only if it is read."""
    import onnxruntime

    options = onnxruntime.RunOptions()
    # It would also print an error, with names of the graph as they are.
    options.log_severity_level = LOG_FATAL
    try:
        if len(session.get_inputs()) == len(feeds):
            values: list[Any] = session.run(outputs, feeds, options)
            return values
        # Some files list weights as inputs that no node reads; only a binding leaves them out.
        binding = session.io_binding()
        for name, value in feeds.items():
            binding.bind_cpu_input(name, value)
        for name in outputs or [tensor.name for tensor in session.get_outputs()]:
            binding.bind_output(name)
        session.run_with_iobinding(binding, options)
        values = binding.copy_outputs_to_cpu()
    except Exception as error:  # as above
        raise ModelError(f"{path}: ONNX Runtime cannot run it ({first_line(error)})") from error
    return values
