"""Pictures to rows: decoding, detection and alignment in threads, ahead of the network; memory is bounded."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from facerts.align import align
from facerts.data.source import Source
from facerts.detect import Detection, Detector
from facerts.embedder.description import Calibration
from facerts.embedder.outputs import Embedder, FaceOutputs
from facerts.errors import Error, ModelError
from facerts.image import as_crop, decode
from facerts.progress import track
from facerts.scoring.row import Row


@dataclass(frozen=True)
class Scored:
    """A row, and the embedding of its face."""

    row: Row
    embedding: NDArray[np.float32] | None
    norm: float | None


@dataclass(frozen=True)
class _Prepared:
    """A picture's crops, or its error."""

    path: str
    faces: list[tuple[Detection | None, NDArray[np.uint8]]]
    error: str | None = None


@dataclass(frozen=True)
class Picture:
    """A picture that is not loaded yet.

    Attributes:
        path: its name in rows.
        load: gives ``(H, W, 3) uint8`` RGB, or raises ``Error``; called in a thread.
    """

    path: str
    load: Callable[[], NDArray[np.uint8]]


def score_source(
    embedder: Embedder,
    source: Source,
    *,
    detector: Detector | None = None,
    min_quality: float | None = None,
    calibration: Calibration | None = None,
    batch_size: int = 64,
    workers: int | None = None,
    progress: str = "",
) -> Iterator[Scored]:
    """Score every picture of a source, in order; see ``score_pictures``.

    Args:
        source: of aligned crops, or of photos where there is a detector.
        progress: text of a progress bar; empty for none.
    """

    def load(index: int) -> NDArray[np.uint8]:
        return decode(source.read(index), where=source.location(index))

    pictures: Iterator[Picture] = (
        Picture(source.location(index), partial(load, index)) for index in range(len(source))
    )
    if progress:
        pictures = track(pictures, progress, total=len(source), unit="pictures")
    yield from score_pictures(
        embedder,
        pictures,
        detector=detector,
        min_quality=min_quality,
        calibration=calibration,
        batch_size=batch_size,
        workers=workers,
    )


def score_pictures(
    embedder: Embedder,
    pictures: Iterable[Picture],
    *,
    detector: Detector | None = None,
    min_quality: float | None = None,
    calibration: Calibration | None = None,
    batch_size: int = 64,
    workers: int | None = None,
) -> Iterator[Scored]:
    """Score pictures in order; one that cannot be loaded becomes a row with its error.

    Args:
        embedder: crops in, outputs out.
        pictures: aligned crops, or photos where there is a detector; taken as they are needed.
        detector: finds the faces in photos; None where pictures are aligned crops.
        min_quality: faces at or above it are accepted; None makes no decision.
        calibration: of the model, for percentiles; None leaves them out.
        batch_size: crops in a call of the embedder.
        workers: threads that load, detect and align; None for one per core.

    Raises:
        ModelError: faces are to be accepted by quality, and the model has none.
    """
    waiting: list[_Prepared] = []
    crops = 0
    for picture in _prepared(pictures, detector, batch_size, workers or os.cpu_count() or 1):
        waiting.append(picture)
        crops += len(picture.faces)
        if crops >= batch_size:
            yield from _rows(embedder, waiting, min_quality, calibration)
            waiting, crops = [], 0
    yield from _rows(embedder, waiting, min_quality, calibration)


def _prepared(
    pictures: Iterable[Picture], detector: Detector | None, batch_size: int, workers: int
) -> Iterator[_Prepared]:
    """Pictures in order, prepared by threads up to two batches ahead."""
    ahead: deque[Future[_Prepared]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        for picture in pictures:
            ahead.append(pool.submit(_prepare, picture, detector))
            if len(ahead) >= 2 * batch_size:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()


def _prepare(picture: Picture, detector: Detector | None) -> _Prepared:
    try:
        image = picture.load()
        if detector is None:
            return _Prepared(picture.path, [(None, as_crop(image, where=picture.path))])
        return _Prepared(picture.path, [(face, align(image, face.points)) for face in detector(image)])
    except Error as error:
        return _Prepared(picture.path, [], str(error))


def _rows(
    embedder: Embedder,
    pictures: list[_Prepared],
    min_quality: float | None,
    calibration: Calibration | None,
) -> Iterator[Scored]:
    crops = [crop for picture in pictures for _, crop in picture.faces]
    outputs = embedder(np.stack(crops)) if crops else None
    if min_quality is not None and outputs is not None and outputs.quality is None:
        raise ModelError(f"{embedder.name} has no quality, so there is nothing to accept faces by")
    position = 0
    for picture in pictures:
        if picture.error is not None:
            yield Scored(Row(picture.path, error=picture.error, model_sha256=embedder.sha256), None, None)
        elif not picture.faces or outputs is None:
            found = Row(
                picture.path,
                accepted=None if min_quality is None else False,
                reason="no face found",
                model_sha256=embedder.sha256,
            )
            yield Scored(found, None, None)
        else:
            for face, (detection, _) in enumerate(picture.faces):
                yield _scored(
                    embedder, picture.path, face, detection, outputs, position, min_quality, calibration
                )
                position += 1


def _scored(
    embedder: Embedder,
    path: str,
    face: int,
    detection: Detection | None,
    outputs: FaceOutputs,
    position: int,
    min_quality: float | None,
    calibration: Calibration | None,
) -> Scored:
    quality = None if outputs.quality is None else _number(outputs.quality[position])
    accepted = None if min_quality is None or quality is None else quality >= min_quality
    row = Row(
        path,
        face=face,
        box=None if detection is None else _rounded(detection.box),
        points=None if detection is None else _rounded(detection.points.reshape(-1)),
        det_score=None if detection is None else round(detection.score, 4),
        quality=quality,
        percentile=None if calibration is None or quality is None else calibration.percentile(quality),
        uncertainty=None if outputs.uncertainty is None else _number(outputs.uncertainty[position]),
        accepted=accepted,
        reason="quality below the threshold" if accepted is False else None,
        model_sha256=embedder.sha256,
    )
    norm = None if outputs.norm is None else _number(outputs.norm[position])
    return Scored(row, outputs.embedding[position], norm)


def _rounded(values: NDArray[np.float64]) -> list[float]:
    return [round(value, 2) for value in values.tolist()]


def _number(value: np.float32) -> float:
    """Without the digits that float32 never had."""
    return float(str(value))
