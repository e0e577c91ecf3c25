"""All pictures of a source through an embedder, decoded ahead of it, in bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from facerts.datasets.source import Source
from facerts.embedding.outputs import CropScore, Embedder, FaceOutputs, Scores
from facerts.embedding.table import EmbeddingTable
from facerts.io.progress import track

# What can be judged: a model, or embeddings that were computed elsewhere.
AnyEmbedder = Embedder | EmbeddingTable

# Batches that may be decoded before the embedder asks for them.
AHEAD = 3

Batch = tuple[NDArray[np.uint8], dict[str, Scores]]


def outputs_of(
    judged: AnyEmbedder,
    source: Source,
    *,
    flip: bool,
    first: NDArray[np.int64] | None = None,
    batch_size: int = 64,
    also: Mapping[str, CropScore] | None = None,
    progress: bool = True,
) -> FaceOutputs:
    """A source's outputs, from a model or from a table; repeated pictures go through a model once.

    Args:
        judged: model or table.
        source: of aligned pictures.
        flip: see ``embed_source``; a table has its embeddings as it has them.
        first: ``(N,)`` of each picture the first with the same bytes, see ``pictures.hash_images``.
        batch_size: crops per call of the embedder.
        also: scores of crops to be had on the way; they become extras by their names.
        progress: show a bar.
    """
    once, place = np.unique(np.arange(len(source)) if first is None else first, return_inverse=True)
    if isinstance(judged, EmbeddingTable):
        outputs = judged.outputs(source)
        extras = {
            name: scores[place]
            for name, scores in score_source(
                source, also or {}, indices=once, batch_size=batch_size, progress=progress
            ).items()
        }
        return replace(outputs, extras={**outputs.extras, **extras})
    outputs = embed_source(
        judged, source, flip=flip, indices=once, batch_size=batch_size, also=also, progress=progress
    )
    return outputs if len(once) == len(place) else outputs.take(place)


def embed_source(
    embedder: Embedder,
    source: Source,
    *,
    flip: bool,
    indices: Sequence[int] | NDArray[np.integer] | None = None,
    batch_size: int = 64,
    also: Mapping[str, CropScore] | None = None,
    progress: bool = True,
) -> FaceOutputs:
    """Embed aligned pictures in order.

    Args:
        embedder: crops in, outputs out.
        source: of aligned pictures.
        flip: the embedding is the sum of those of the crop and of its mirror, normalized; quality, uncertainty,
            norm and extras come from the crop itself.
        indices: which pictures; None for all.
        batch_size: crops per call of the embedder.
        also: scores of crops to be had on the way; they become extras by their names.
        progress: show a bar.

    Raises:
        Error: a picture cannot be read; the message names it.
    """
    chosen = np.arange(len(source)) if indices is None else np.asarray(indices)
    batches = _batches(
        source, chosen, batch_size, also or {}, f"embedding {source.name}" if progress else None
    )
    parts = []
    for crops, scores in batches:
        outputs = embed_crops(embedder, crops, flip=flip)
        parts.append(replace(outputs, extras={**outputs.extras, **scores}) if scores else outputs)
    return concatenate(parts)


def embed_crops(embedder: Embedder, crops: NDArray[np.uint8], *, flip: bool) -> FaceOutputs:
    """One batch of crops, with their mirrors where asked for."""
    outputs = embedder(crops)
    if not flip:
        return outputs
    # Of the mirror nothing else is wanted, and some embedders have scores that cost many passes.
    mirroring: Embedder = getattr(embedder, "without_scores", embedder)
    mirrored = mirroring(np.ascontiguousarray(crops[:, :, ::-1]))
    summed = outputs.embedding + mirrored.embedding
    # Opposite embeddings would sum to nothing; they keep the zero rather than become NaN.
    length = np.maximum(np.linalg.norm(summed, axis=1, keepdims=True), np.float32(1e-12))
    return FaceOutputs(summed / length, outputs.norm, outputs.quality, outputs.uncertainty, outputs.extras)


def score_source(
    source: Source,
    scores: Mapping[str, CropScore],
    *,
    indices: Sequence[int] | NDArray[np.integer] | None = None,
    batch_size: int = 64,
    progress: bool = True,
) -> dict[str, Scores]:
    """Scores of aligned images that need no embedding, such as those of ``OnnxQuality``.

    Args:
        source: of aligned images.
        scores: by name, each from a batch of crops.
        indices: which images; None for all.
        batch_size: crops per batch.
        progress: show a bar.

    Returns:
        ``(N,)`` by name.

    Raises:
        Error: an image cannot be read; the message names it.
    """
    if not scores:
        return {}
    chosen = np.arange(len(source)) if indices is None else np.asarray(indices)
    text = f"scoring {source.name}" if progress else None
    parts = [batch for _, batch in _batches(source, chosen, batch_size, scores, text)]
    return {name: np.concatenate([part[name] for part in parts]) for name in scores}


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


def _batches(
    source: Source,
    chosen: NDArray[np.integer],
    batch_size: int,
    also: Mapping[str, CropScore],
    progress: str | None,
) -> Iterator[Batch]:
    """Crops and their scores, prepared in another thread while the embedder works."""
    starts = range(0, len(chosen), batch_size)

    def prepare(start: int) -> Batch:
        crops = np.stack([source.crop(int(row)) for row in chosen[start : start + batch_size]])
        return crops, {name: score(crops) for name, score in also.items()}

    def prepared() -> Iterator[Batch]:
        waiting: deque[Future[Batch]] = deque()
        with ThreadPoolExecutor(max_workers=1) as pool:
            for start in starts:
                waiting.append(pool.submit(prepare, start))
                if len(waiting) > AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()

    return prepared() if progress is None else track(prepared(), progress, total=len(starts), unit="batches")
