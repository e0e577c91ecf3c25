"""How long the execution providers of this machine take for crops and photos, and how exact they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

import cv2
import numpy as np
from numpy.typing import NDArray

from facerts.datasets.synthetic import draw_face
from facerts.embedding import FaceOutputs
from facerts.errors import MissingModelError, ModelError
from facerts.export.parity import Tolerance, check_crops, compare_outputs
from facerts.io.progress import progress_bar
from facerts.onnx.providers import CPU, PROVIDERS, MeasuredProvider
from facerts.onnx.session import ProviderError
from facerts.scoring.scorer import Scorer, load

BATCH_SIZES = (1, 16, 64)
# Shorter floats than the CPU's 32 bits, as graphics cards use them, move an embedding by less than an image's recoding.
CLOSE = Tolerance(cosine=0.999, quality_error=1e-3, quality_spreads=0.05)
PHOTO = (768, 1024)
FACES_IN_PHOTO, FACE_SIDE = 4, 160


@dataclass(frozen=True)
class ProviderTimes:
    """What was measured.

    Attributes:
        model: name of the model.
        measured: the providers that started, the CPU last.
        problems: why others did not, or are not exact, by provider; and why photos were not measured, by "photos".
    """

    model: str
    measured: tuple[MeasuredProvider, ...]
    problems: Mapping[str, str]


def measure_providers(
    model: str | Path | None = None,
    *,
    detector: str | Path = "yunet",
    threads: int | None = None,
    rounds: int = 7,
) -> ProviderTimes:
    """Measure a model and a detector on every provider that ONNX Runtime has here.

    The providers take turns, so that what else the machine does meets all of them alike.

    Args:
        model: as in ``load``.
        detector: for the time of photos; "none" leaves it out.

    Raises:
        Error: as for ``load``, on the CPU.
    """
    import onnxruntime

    problems: dict[str, str] = {}
    try:
        load(model, detector=detector, providers=[CPU])
    except MissingModelError as error:
        problems["photos"] = str(error)
        detector = "none"
    scorers: dict[str, Scorer] = {}
    for name in PROVIDERS.values():
        if name in onnxruntime.get_available_providers():
            try:
                scorers[name] = load(
                    model, detector=detector, providers=[name], threads=threads, batch_size=max(BATCH_SIZES)
                )
            except ProviderError as error:
                problems[name] = str(error)
    crops = check_crops()
    outputs = {name: scorer.embedder(crops) for name, scorer in scorers.items()}
    crop_times, photo_times = _times(scorers, crops, rounds)
    measured = []
    for name in scorers:
        problem, cosine, quality_error = _distance(outputs[CPU], outputs[name])
        if problem:
            problems[name] = problem
        measured.append(
            MeasuredProvider(
                provider=name,
                ms_per_crop=crop_times[name],
                ms_per_photo=photo_times.get(name),
                cosine=cosine,
                quality_error=quality_error,
                exact=not problem,
            )
        )
    return ProviderTimes(scorers[CPU].embedder.name, tuple(measured), problems)


def _times(
    scorers: Mapping[str, Scorer], crops: NDArray[np.uint8], rounds: int
) -> tuple[dict[str, dict[int, float]], dict[str, float]]:
    """Median milliseconds per crop by provider and batch size, and per photo by provider."""
    photo = _photo()
    only = scorers[CPU].embedder.description.input.batch
    sizes: Sequence[int] = BATCH_SIZES if only is None else [only]
    batches = {size: np.resize(crops, (size, *crops.shape[1:])) for size in sizes}
    of_crops: dict[tuple[str, int], list[float]] = {(name, size): [] for name in scorers for size in sizes}
    of_photos: dict[str, list[float]] = {
        name: [] for name, scorer in scorers.items() if scorer.detector is not None
    }
    with progress_bar() as bar:
        shown = bar.add_task("measuring", total=rounds + 1, unit="rounds")
        for _ in range(rounds + 1):
            for (name, size), taken in of_crops.items():
                begin = perf_counter()
                scorers[name].embedder(batches[size])
                taken.append(1000 * (perf_counter() - begin) / size)
            for name, taken in of_photos.items():
                begin = perf_counter()
                scorers[name].score([photo])
                taken.append(1000 * (perf_counter() - begin))
            bar.advance(shown)
    # In the first round, providers compile what they run.
    by_crop: dict[str, dict[int, float]] = {name: {} for name in scorers}
    for (name, size), taken in of_crops.items():
        by_crop[name][size] = median(taken[1:])
    return by_crop, {name: median(taken[1:]) for name, taken in of_photos.items()}


def _distance(expected: FaceOutputs, actual: FaceOutputs) -> tuple[str, float, float | None]:
    """What is wrong with a provider's outputs; their cosine similarity and the error of their qualities."""
    cosine = float(np.einsum("nd,nd->n", expected.embedding.astype(np.float64), actual.embedding).min())
    error = None
    if expected.quality is not None and actual.quality is not None:
        error = float(np.abs(expected.quality - actual.quality).max())
    try:
        compare_outputs(expected, actual, CLOSE)
    except ModelError:
        return "it computes something else than the CPU, so auto does not choose it", cosine, error
    return "", cosine, error


def _photo() -> NDArray[np.uint8]:
    """A photo of several drawn faces."""
    photo = np.full((*PHOTO, 3), 128, np.uint8)
    for number in range(FACES_IN_PHOTO):
        face = cv2.resize(draw_face(number, 0), (FACE_SIDE, FACE_SIDE), interpolation=cv2.INTER_CUBIC)
        left = 40 + number * (FACE_SIDE + 80)
        photo[300 : 300 + FACE_SIDE, left : left + FACE_SIDE] = face
    return photo
