"""ONNX Runtime: the one place that opens its sessions and runs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from facerts.errors import MissingExtraError, ModelError, first_line

CPU = "CPUExecutionProvider"
LOG_ERRORS = 3
LOG_FATAL = 4


def open_session(
    path: Path,
    *,
    content: bytes | None = None,
    providers: Sequence[str] | None = None,
    threads: int | None = None,
    run: bool = True,
    varied: bool = False,
) -> Any:
    """A session of a model file.

    Args:
        path: the .onnx file.
        content: of the file, where it was read already or changed; then the path only names it.
        providers: execution providers by name, in order of preference; None for the CPU.
        threads: of one run; None leaves ONNX Runtime's choice.
        run: False where only the inputs and outputs are asked for: no time for optimizing, and no complaints.
        varied: inputs differ in size from run to run, so memory is not planned for each size and kept for the next.

    Raises:
        ModelError: no such file, not an ONNX model, or no such provider.
        MissingExtraError: ONNX Runtime is not installed.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtraError(
            "running a model needs ONNX Runtime: pip install 'facerts[cpu]', or 'facerts[gpu]' with a GPU"
        ) from error
    if content is None and not path.is_file():
        raise ModelError(f"{path}: no such model file")
    wanted = list(providers or [CPU])
    missing = [name for name in wanted if name not in onnxruntime.get_available_providers()]
    if missing:
        raise ModelError(
            f"ONNX Runtime has no {', '.join(missing)} here; it has {', '.join(onnxruntime.get_available_providers())}"
        )
    options = onnxruntime.SessionOptions()
    # Networks of model packs promise outputs of one shape and give others, of which it would warn at every run.
    options.log_severity_level = LOG_ERRORS if run else LOG_FATAL
    if not run:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.enable_mem_pattern = not varied
    if threads is not None:
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(
            str(path) if content is None else content, options, providers=wanted
        )
        # Asked for a name that is no text, it fails.
        _ = [tensor.name for tensor in (*session.get_inputs(), *session.get_outputs())]
    except Exception as error:  # ONNX Runtime's errors share no base class but Exception
        raise ModelError(f"{path}: ONNX Runtime cannot load it ({first_line(error)})") from error
    return session


def metadata_of(session: Any, path: Path) -> dict[str, str]:
    """What a model's file says of itself under keys.

    Raises:
        ModelError: it is no text.
    """
    try:
        return dict(session.get_modelmeta().custom_metadata_map)
    except UnicodeDecodeError as error:
        raise ModelError(f"{path}: its metadata is not UTF-8 ({error})") from error


def run_session(
    session: Any, path: Path, outputs: Sequence[str] | None, feeds: Mapping[str, Any]
) -> list[Any]:
    """What a model gives.

    Args:
        session: of the model.
        path: of its file, for errors.
        outputs: names of what is wanted; None for all.
        feeds: its inputs by name.

    Raises:
        ModelError: ONNX Runtime cannot compute it.
    """
    try:
        given: list[Any] = session.run(outputs, feeds)
    except Exception as error:  # as above
        raise ModelError(f"{path}: ONNX Runtime cannot run it ({first_line(error)})") from error
    return given
