"""A quality for a recognizer from another model, with thresholds on the user's own faces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from facerts.calibration.quality_thresholds import calibrate
from facerts.errors import ModelError
from facerts.export.join_quality import JoinedModel, check_target, join_quality
from facerts.io.files import scratch_folder


def graft_quality(
    model: str | Path,
    quality: str | Path,
    out: str | Path,
    *,
    faces: str | Path | Sequence[str | Path] | None = None,
    **runtime: Any,
) -> JoinedModel:
    """Join a recognizer and the quality of another model, and calibrate both together if there are faces.

    Args:
        out: path of the .onnx file; nothing is written if the check or the calibration fails.
        faces: aligned faces to choose quality and match thresholds on, in any layout that ``open_source`` accepts; None
            keeps the thresholds that the two models have.
        runtime: providers, threads and batch size, see ``load_embedder``.
    """
    out = Path(out)
    check_target(out, model, quality)
    with scratch_folder() as folder:
        file = out if faces is None else folder / out.name
        try:
            joined = join_quality(model, quality, file, **runtime)
            if faces is None:
                return joined
            result = calibrate(file, faces, out=out, **runtime)
        except ModelError as error:
            raise ModelError(str(error).replace(str(file), str(out))) from error
    return replace(joined, description=result.description, left_out=result.left_out)
