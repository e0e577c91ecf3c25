"""``facerts doctor``: what works with the packages that are installed, and how fast this machine's providers are."""

from __future__ import annotations

import platform
from importlib import import_module, metadata
from typing import Annotated

import typer

from facerts.cli.config import settings_rows
from facerts.cli.ending import OPTIONAL
from facerts.cli.output import number, print_result, print_rows, warn
from facerts.cli.settings import CommandSettings
from facerts.cli.shared_options import Json
from facerts.errors import ModelError, install_hint
from facerts.io.console import say
from facerts.version import __version__


def doctor(
    *,
    bench: Annotated[bool, typer.Option("--bench")] = False,
    settings: CommandSettings,
    json: Json = False,
) -> None:
    """Show the versions of packages, what works with them and what to install for the rest, and the settings made.

    Example: facerts doctor --bench

    Args:
        bench: Instead, measure every provider of ONNX Runtime on this machine; auto, the default of the setting
            provider, then uses the fastest. With the detector none, no photos are timed.
    """
    if bench:
        detector = settings.detector or "auto"
        _bench(settings.recognizer, "yunet" if detector == "auto" else detector, json=json)
        return
    rows = settings_rows(settings.found)
    print_result(examine(settings), json, details={"settings": rows})
    if not json:
        print_rows([row for row in rows if row["key"] in settings.found], [("setting", "key"), "value", "from"])


def _bench(model: str | None, detector: str, *, json: bool) -> None:
    from facerts.onnx.providers import PROVIDERS, automatic_order, store_measured
    from facerts.scoring.provider_times import measure_providers

    times = measure_providers(model, detector=detector)
    file = store_measured(times.measured, times.model)
    names = {full: name for name, full in PROVIDERS.items()}
    order, for_photos = ([names[full] for full in automatic_order(photos=photos)] for photos in (False, True))
    rows = [
        {
            "provider": names[found.provider],
            **{f"batch of {size}": number(f"{ms:.2f}") for size, ms in found.ms_per_crop.items()},
            "photo": None if found.ms_per_photo is None else number(f"{found.ms_per_photo:.1f}"),
            "cosine": number(f"{found.cosine:.6f}"),
            "quality": None if found.quality_error is None else number(f"{found.quality_error:.1g}"),
        }
        for found in times.measured
    ]
    if not json:
        print_rows(rows, title=f"{times.model}: ms per crop, ms to find the faces in a photo, how far from the CPU")
        for name, problem in times.problems.items():
            warn(f"{names.get(name, name)}: {problem}")
    measured = [found.model_dump() for found in times.measured]
    print_result(
        {"order": order, "order_for_photos": for_photos},
        json,
        details={"model": times.model, "measured": measured, "problems": times.problems},
    )
    say(f"auto takes the first that starts; stored in {file}")


def examine(settings: CommandSettings) -> dict[str, object]:
    """Versions of packages, the providers of ONNX Runtime, what works with the packages, and the models in use."""
    import cv2
    import numpy

    result: dict[str, object] = {
        "facerts": __version__,
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "opencv": cv2.__version__,
    }
    lacking: dict[str, list[str]] = {}
    for module, (packages, _, use) in OPTIONAL.items():
        missing = lacking.setdefault(use, [])
        try:
            imported = import_module(module)
        except ImportError as error:
            installed = any(_version(package) for package in packages)
            result[module] = f"installed, but cannot be imported ({error})" if installed else "missing"
            missing.append(module)
            continue
        result[module] = next((_version(package) for package in packages if _version(package)), "present")
        if module == "onnxruntime":
            result["providers"] = imported.get_available_providers()
    for use, missing in lacking.items():
        result[use] = (
            f"no, without {' and '.join(missing)}: {install_hint(OPTIONAL[missing[0]][1])}" if missing else "yes"
        )
    return result | _models(settings)


def _models(settings: CommandSettings) -> dict[str, str]:
    """The recognizer that is used if a command names none, its terms, and the quality."""
    from facerts.hub.catalog import catalog_models
    from facerts.hub.find import default_model, default_quality
    from facerts.hub.registry import shipped_models

    try:
        recognizer, quality = settings.recognizer or default_model(), settings.quality or default_quality()
        terms = {model.name: model.terms for model in (*catalog_models(), *shipped_models())}
    except ModelError as error:
        return {"recognizer": str(error)}
    models = {"recognizer": recognizer, "its terms": terms.get(recognizer or "", "see the file"), "quality": quality}
    return {what: model or "none ships with this copy" for what, model in models.items()}


def _version(package: str) -> str:
    """The version of a package; empty if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
