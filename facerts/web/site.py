"""The folder of the browser page: what is built from ``web/``, the models, and ``facerts.json``.

``facerts.json`` has every number that decides, from where Python has it, so that the page has none of its own.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

from facerts.detection import photo_search, yunet
from facerts.detection.detector import FIT
from facerts.embedding import OnnxModel
from facerts.errors import Error
from facerts.hub.fetch import find_file
from facerts.images.align import TEMPLATE
from facerts.images.crop import CROP_SIZE, MIN_CROP_SIZE
from facerts.images.limits import MAX_BYTES, MAX_PIXELS
from facerts.io.files import atomic_write, read_file, writing
from facerts.onnx.wire import make_shape_dynamic
from facerts.scoring import Row, reasons
from facerts.scoring.parts import DEFAULT_FMR, GOOD, USABLE, ModelPart, Quality, Recognizer
from facerts.scoring.row_builder import NON_FACE, VERDICTS
from facerts.scoring.verify import IDENTICAL
from facerts.version import __version__

# What is built from web/.
STATIC = Path(__file__).with_name("static")
SCHEMA = "facerts.web/1"
SITE, SERVICE_WORKER, RECOGNIZER = "facerts.json", "service-worker.js", "recognizer.onnx"
# The first is the default.
QUALITIES = "facerts-quality", "facerts-quality-int8"
RUNTIME = {"wasm": "ort.wasm.gz", "glue": "ort.mjs"}
# Of the service, which shares the folder of what is built.
NOT_OF_THE_SITE = {"service.html", "service.js", "reference.html", "reference.js"}


def write_site(out: str | Path, recognizer: str | Path | None = None) -> dict[str, int]:
    """Write the folder: static files for any web server, which need no other.

    Args:
        out: a new or empty folder, or one that this function wrote, which is brought up to date.
        recognizer: name or .onnx file of the recognizer that compares faces; None for none.

    Returns:
        Bytes by file.

    Raises:
        Error: there are other files in the folder, or the recognizer is no single .onnx file.
    """
    out = Path(out)
    with writing(out):
        if out.exists() and any(out.iterdir()) and not (out / SITE).is_file():
            raise Error(f"{out} has other files; give a new folder, or one that facerts web wrote")
    detector = find_file("yunet")
    if not STATIC.is_dir():
        raise Error(f"{STATIC} is missing: reinstall facerts, or build it with make web")
    files = {path.name: read_file(path) for path in STATIC.iterdir() if path.name not in NOT_OF_THE_SITE}
    files[detector.name] = make_shape_dynamic(read_file(detector), where=detector)
    parts: list[ModelPart] = [Quality(name) for name in QUALITIES]
    parts += [] if recognizer is None else [Recognizer(recognizer)]
    models = []
    for part in parts:
        model = part.opened
        if not isinstance(model, OnnxModel) or part.path.suffix != ".onnx":
            raise Error(f"{part.path}: a browser loads one .onnx file; give one as --recognizer")
        # Of any name, which an address could not have, or which is that of another file here.
        file = RECOGNIZER if isinstance(part, Recognizer) else part.path.name
        files[file] = read_file(part.path)
        models.append(_model(part, file))
    site = {
        "schema": SCHEMA,
        "version": __version__,
        "runtime": RUNTIME,
        "qualities": models[: len(QUALITIES)],
        "recognizer": models[-1] if recognizer is not None else None,
        "detector": _detector(detector.name, files[detector.name]),
        **_rules(),
    }
    files[SITE] = json.dumps(site, separators=(",", ":")).encode()
    files[SERVICE_WORKER] = _service_worker(files)
    # The list of the files comes after them.
    for name in sorted(files, key=lambda name: name in (SITE, SERVICE_WORKER)):
        with atomic_write(out / name) as written:
            written.write(files[name])
    return {name: len(content) for name, content in files.items()}


def _model(part: ModelPart, file: str) -> dict[str, object]:
    return {
        "name": part.name,
        "sha256": part.sha256,
        "file": file,
        "bytes": part.path.stat().st_size,
        "description": part.description.model_dump(mode="json", by_alias=True),
    }


def _detector(file: str, content: bytes) -> dict[str, object]:
    network = yunet.YuNet
    return {
        "name": network.__name__,
        "file": file,
        "sha256": hashlib.sha256(content).hexdigest(),
        "threshold": yunet.THRESHOLD,
        "size": network.size,
        "max_iou": network.max_iou,
        "sure": network.sure,
        "strides": yunet.STRIDES,
        "max_candidates": yunet.MAX_CANDIDATES,
        **_constants(
            photo_search,
            *("SHARE", "USUAL_ASPECT", "MAX_PIXELS", "MIN_SIZE", "STEP", "LARGEST_FACE", "MAX_PASS_PIXELS"),
            *("TILE", "MAX_INSIDE", "EDGE", "LOOK", "SURROUNDINGS"),
        ),
    }


def _rules() -> dict[str, object]:
    return {
        "template": TEMPLATE.tolist(),
        "template_size": CROP_SIZE,
        "min_crop_size": MIN_CROP_SIZE,
        "head_fit": FIT.tolist(),
        "reasons": {
            "order": reasons.REASONS,
            **_constants(
                reasons,
                *("LOOKING_LIKE_NONE", "MAX_OUTSIDE", "MIN_EYE_DISTANCE", "MAX_YAW", "MIN_LUMINANCE"),
                *("MAX_LUMINANCE", "MIN_SHARPNESS", "MAX_NOISE", "FACE_REGION", "FLOOR"),
            ),
        },
        "verdicts": VERDICTS,
        "not_a_face": NON_FACE,
        "usable": USABLE,
        "good": GOOD,
        "default_fmr": DEFAULT_FMR,
        "identical": IDENTICAL,
        "max_bytes": MAX_BYTES,
        "max_pixels": MAX_PIXELS,
        "columns": [field.name for field in fields(Row)],
    }


def _constants(module: Any, *names: str) -> dict[str, object]:
    return {name.lower(): getattr(module, name) for name in names}


def _service_worker(files: dict[str, bytes]) -> bytes:
    """The worker that keeps the files for when there is no network; it changes when any of them does."""
    digest = hashlib.sha256()
    for name in sorted(files):
        digest.update(hashlib.sha256(files[name]).digest())
    names = sorted(set(files) - {SERVICE_WORKER})
    listed = json.dumps({"version": digest.hexdigest()[:16], "files": names})
    return f"self.site = {listed};\n".encode() + files[SERVICE_WORKER]
