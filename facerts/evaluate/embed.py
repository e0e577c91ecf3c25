"""All pictures of a source through an embedder, decoded ahead of it, in bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from facerts.data.source import Source
from facerts.embedder.outputs import Embedder, FaceOutputs
from facerts.progress import track

# Batches that may be decoded before the embedder asks for them.
AHEAD = 3


def embed_source(
    embedder: Embedder,
    source: Source,
    *,
    flip: bool,
    indices: Sequence[int] | NDArray[np.integer] | None = None,
    batch_size: int = 64,
    progress: bool = True,
) -> FaceOutputs:
    """Embed aligned pictures in order.

    Args:
        embedder: crops in, outputs out.
        source: of aligned pictures.
        flip: the embedding is the sum of those of the crop and of its mirror, normalised; quality, uncertainty,
            norm and extras come from the crop itself.
        indices: which pictures; None for all.
        batch_size: crops per call of the embedder.
        progress: show a bar.

    Raises:
        Error: a picture cannot be read; the message names it.
    """
    chosen = np.arange(len(source)) if indices is None else np.asarray(indices)
    starts = range(0, len(chosen), batch_size)
    batches: Iterator[NDArray[np.uint8]] = _decoded(source, chosen, starts, batch_size)
    if progress:
        batches = track(batches, f"embedding {source.name}", total=len(starts), unit="batches")
    return concatenate([embed_crops(embedder, crops, flip=flip) for crops in batches])


def embed_crops(embedder: Embedder, crops: NDArray[np.uint8], *, flip: bool) -> FaceOutputs:
    """One batch of crops, with their mirrors where asked for."""
    outputs = embedder(crops)
    if not flip:
        return outputs
    mirrored = embedder(np.ascontiguousarray(crops[:, :, ::-1]))
    summed = outputs.embedding + mirrored.embedding
    # Opposite embeddings would sum to nothing; they keep the zero rather than become NaN.
    length = np.maximum(np.linalg.norm(summed, axis=1, keepdims=True), np.float32(1e-12))
    return FaceOutputs(summed / length, outputs.norm, outputs.quality, outputs.uncertainty, outputs.extras)


def concatenate(parts: Sequence[FaceOutputs]) -> FaceOutputs:
    """Outputs one after the other."""

    def joined(name: str) -> NDArray[np.float32] | None:
        values = [getattr(part, name) for part in parts]
        return None if any(value is None for value in values) else np.concatenate(values)

    return FaceOutputs(
        np.concatenate([part.embedding for part in parts]),
        joined("norm"),
        joined("quality"),
        joined("uncertainty"),
        {name: np.concatenate([part.extras[name] for part in parts]) for name in parts[0].extras},
    )


def _decoded(
    source: Source, chosen: NDArray[np.integer], starts: range, batch_size: int
) -> Iterator[NDArray[np.uint8]]:
    def decode(start: int) -> NDArray[np.uint8]:
        rows = chosen[start : start + batch_size]
        return np.stack([source.crop(int(row)) for row in rows])

    waiting: deque[Future[NDArray[np.uint8]]] = deque()
    with ThreadPoolExecutor(max_workers=1) as pool:
        for start in starts:
            waiting.append(pool.submit(decode, start))
            if len(waiting) > AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
