"""Pictures to rows: decoding, detection and alignment in threads, ahead of the network; memory is bounded."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from facerts.align import align
from facerts.data.source import Source
from facerts.detect import Detection, Detector
from facerts.embedder.outputs import Embedder, FaceOutputs
from facerts.errors import Error
from facerts.image import decode, decode_crop
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


def score_source(
    embedder: Embedder,
    source: Source,
    *,
    detector: Detector | None = None,
    min_quality: float | None = None,
    batch_size: int = 64,
    workers: int | None = None,
    progress: str = "",
) -> Iterator[Scored]:
    """Score every picture of a source, in order; a picture that cannot be read becomes a row with its error.

    Args:
        embedder: crops in, outputs out.
        source: of aligned crops, or of photos where there is a detector.
        detector: finds the faces in photos; None where pictures are aligned crops.
        min_quality: faces at or above it are accepted; None makes no decision.
        batch_size: crops in a call of the embedder.
        workers: threads that decode, detect and align; None for one per core.
        progress: text of a progress bar; empty for none.
    """
    waiting: list[_Prepared] = []
    crops = 0
    pictures = _prepared(source, detector, batch_size, workers or os.cpu_count() or 1)
    if progress:
        pictures = track(pictures, progress, total=len(source), unit="pictures")
    for picture in pictures:
        waiting.append(picture)
        crops += len(picture.faces)
        if crops >= batch_size:
            yield from _rows(embedder, waiting, min_quality)
            waiting, crops = [], 0
    yield from _rows(embedder, waiting, min_quality)


def _prepared(
    source: Source, detector: Detector | None, batch_size: int, workers: int
) -> Iterator[_Prepared]:
    """Pictures in order, prepared by threads up to two batches ahead."""
    ahead: deque[Future[_Prepared]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        for index in range(len(source)):
            ahead.append(pool.submit(_prepare, source, index, detector))
            if len(ahead) >= 2 * batch_size:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()


def _prepare(source: Source, index: int, detector: Detector | None) -> _Prepared:
    path = source.location(index)
    try:
        data = source.read(index)
        if detector is None:
            return _Prepared(path, [(None, decode_crop(data, where=path))])
        image = decode(data, where=path)
        return _Prepared(path, [(face, align(image, face.points)) for face in detector(image)])
    except Error as error:
        return _Prepared(path, [], str(error))


def _rows(embedder: Embedder, pictures: list[_Prepared], min_quality: float | None) -> Iterator[Scored]:
    crops = [crop for picture in pictures for _, crop in picture.faces]
    outputs = embedder(np.stack(crops)) if crops else None
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
                yield _scored(embedder, picture.path, face, detection, outputs, position, min_quality)
                position += 1


def _scored(
    embedder: Embedder,
    path: str,
    face: int,
    detection: Detection | None,
    outputs: FaceOutputs,
    position: int,
    min_quality: float | None,
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
