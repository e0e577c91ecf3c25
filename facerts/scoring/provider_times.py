"""How long the execution providers of this machine take for crops and photos, and how exact they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter

import cv2
import numpy as np
from numpy.typing import NDArray

from facerts.datasets.synthetic import draw_face
from facerts.detection import Detection, OpenDetector, open_detector
from facerts.embedding import FaceOutputs, OnnxEmbedder, load_embedder
from facerts.embedding.parity import Tolerance, check_crops, measure_parity
from facerts.errors import ModelError
from facerts.hub.find import find_or_pull
from facerts.io.progress import progress_bar
from facerts.onnx.providers import CPU, PROVIDERS, MeasuredProvider

BATCH_SIZES = (1, 16, 64)
# Shorter floats than the CPU's 32 bits, as graphics cards use them, move an embedding by less than an image's recoding.
CLOSE = Tolerance(cosine=0.999, quality_error=1e-3, quality_spreads=0.05)
# In place of a batch size.
PHOTO = 0
# Of the same face found by two providers, in pixels.
MAX_SHIFT = 2.0
PHOTO_SIZE = (768, 1024)
FACES_IN_PHOTO, FACE_SIDE = 4, 160


@dataclass(frozen=True)
class ProviderTimes:
    """What was measured.

    Attributes:
        measured: the providers that computed, the CPU last.
        problems: why others did not, or are not exact, by provider.
    """

    model: str
    measured: tuple[MeasuredProvider, ...]
    problems: Mapping[str, str]


@dataclass(frozen=True)
class _Opened:
    """A model and a detector on one provider, and what they compute."""

    embedder: OnnxEmbedder
    detector: OpenDetector | None
    outputs: FaceOutputs
    faces: list[Detection]


def measure_providers(
    model: str | Path | None = None,
    *,
    detector: str | Path = "yunet",
    rounds: int = 7,
) -> ProviderTimes:
    """Measure a model and a detector on every provider that ONNX Runtime has here.

    The providers take turns, so that what else the machine does meets all of them alike. The model is as in ``load``;
    the detector is for the time of photos, "none" leaves it out.
    """
    import onnxruntime

    problems: dict[str, str] = {}
    path = find_or_pull(model)
    on_cpu = _open(path, detector, CPU)
    opened: dict[str, _Opened] = {}
    for name in PROVIDERS.values():
        if name in onnxruntime.get_available_providers():
            try:
                opened[name] = on_cpu if name == CPU else _open(path, detector, name)
            except ModelError as error:
                problems[name] = str(error)
    times = _times(opened, rounds)
    measured = []
    for name, one in opened.items():
        parity = measure_parity(on_cpu.outputs, one.outputs)
        assert parity.cosine is not None  # of embedders
        exact, finds_the_same = parity.within(CLOSE), _same_faces(on_cpu.faces, one.faces)
        if not exact:
            problems[name] = "it computes something else than the CPU, so auto does not choose it"
        elif not finds_the_same:
            problems[name] = "it finds other faces than the CPU, so auto does not choose it for photos"
        measured.append(
            MeasuredProvider(
                provider=name,
                ms_per_crop={size: times[name, size] for size in _batch_sizes(on_cpu.embedder)},
                ms_per_photo=times.get((name, PHOTO)) if finds_the_same else None,
                cosine=parity.cosine,
                quality_error=parity.quality_error,
                exact=exact,
            )
        )
    return ProviderTimes(on_cpu.embedder.name, tuple(measured), problems)


def _open(path: Path, detector: str | Path, provider: str) -> _Opened:
    """Open and run both, which is when providers compile what they run."""
    providers = [provider]
    embedder = load_embedder(path, batch_size=max(BATCH_SIZES), providers=providers)
    finder = None if detector == "none" else open_detector(detector, providers=providers)
    return _Opened(embedder, finder, embedder(check_crops()), [] if finder is None else finder(_photo()))


def _times(opened: Mapping[str, _Opened], rounds: int) -> dict[tuple[str, int], float]:
    """Median milliseconds by provider and batch size for a crop, and by provider and ``PHOTO`` for a photo."""
    crops, photo = check_crops(), _photo()
    timed: dict[tuple[str, int], Callable[[], object]] = {}
    for name, one in opened.items():
        for size in _batch_sizes(one.embedder):
            timed[name, size] = partial(one.embedder, np.resize(crops, (size, *crops.shape[1:])))
        if one.detector is not None:
            timed[name, PHOTO] = partial(one.detector, photo)
    taken: dict[tuple[str, int], list[float]] = {key: [] for key in timed}
    with progress_bar() as bar:
        shown = bar.add_task("measuring", total=rounds + 1, unit="rounds")
        for _ in range(rounds + 1):
            for (name, size), run in timed.items():
                begin = perf_counter()
                run()
                taken[name, size].append(1000 * (perf_counter() - begin) / max(size, 1))
            bar.advance(shown)
    # Each size is compiled in the first round.
    return {key: median(times[1:]) for key, times in taken.items()}


def _batch_sizes(embedder: OnnxEmbedder) -> Sequence[int]:
    only = embedder.description.input.batch
    return BATCH_SIZES if only is None else (only,)


def _same_faces(expected: Sequence[Detection], actual: Sequence[Detection]) -> bool:
    return len(expected) == len(actual) and all(
        np.abs(face.points - other.points).max() <= MAX_SHIFT for face, other in zip(expected, actual, strict=True)
    )


def _photo() -> NDArray[np.uint8]:
    photo = np.full((*PHOTO_SIZE, 3), 128, np.uint8)
    for number in range(FACES_IN_PHOTO):
        side = FACE_SIDE - 16 * number
        left = 40 + number * (FACE_SIDE + 80)
        face = cv2.resize(draw_face(number, 0), (side, side), interpolation=cv2.INTER_CUBIC)
        photo[300 : 300 + side, left : left + side] = face
    return photo
