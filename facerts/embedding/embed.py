"""Embed all images of a source, decoding ahead of the embedder, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from facerts.datasets.source import Source
from facerts.embedding.embedding_table import EmbeddingTable
from facerts.embedding.outputs import CropScore, Embedder, FaceOutputs, Scores
from facerts.io.map_ahead import map_ahead
from facerts.io.progress import track

# A model, or embeddings that were computed elsewhere.
AnyEmbedder = Embedder | EmbeddingTable

# Batches that are decoded ahead of the embedder, and that a thread-safe embedder works on at a time.
AHEAD, IN_FLIGHT = 3, 2

Batch = tuple[NDArray[np.uint8], dict[str, Scores]]
Result = TypeVar("Result")


def outputs_of(
    embedder: AnyEmbedder,
    source: Source,
    *,
    flip: bool,
    first: NDArray[np.int64] | None = None,
    batch_size: int = 64,
    also: Mapping[str, CropScore] | None = None,
    progress: bool = True,
) -> FaceOutputs:
    """Outputs for a source's images, from a model or a table; a model embeds repeated images only once.

    ``first`` ``(N,)`` is from ``fingerprint.hash_images``; ``flip`` is as for ``embed_source``, ignored for a table.
    """
    unique, inverse = np.unique(np.arange(len(source)) if first is None else first, return_inverse=True)
    if isinstance(embedder, EmbeddingTable):
        outputs = embedder.outputs(source)
        extras = {
            name: scores[inverse]
            for name, scores in score_source(
                source, also or {}, indices=unique, batch_size=batch_size, progress=progress
            ).items()
        }
        return replace(outputs, extras={**outputs.extras, **extras})
    outputs = embed_source(
        embedder, source, flip=flip, indices=unique, batch_size=batch_size, also=also, progress=progress
    )
    return outputs if len(unique) == len(inverse) else outputs.take(inverse)


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
    """Embed aligned images in order.

    Args:
        flip: use the normalized sum of the embeddings of the crop and its mirror image; quality, uncertainty, norm and
            extras come from the crop alone.
        also: further scores to compute from the crops; they become extras, by name.
    """

    def embed(batch: Batch) -> FaceOutputs:
        crops, scores = batch
        outputs = embed_crops(embedder, crops, flip=flip)
        return replace(outputs, extras={**outputs.extras, **scores}) if scores else outputs

    parallel = getattr(embedder, "thread_safe", False)
    text = f"embedding {source.name}" if progress else ""
    return concatenate(_of_batches(source, indices, batch_size, also or {}, embed, text, parallel=parallel))


def embed_crops(embedder: Embedder, crops: NDArray[np.uint8], *, flip: bool) -> FaceOutputs:
    """Embed a batch of crops, optionally with their mirror images; see ``embed_source``."""
    outputs = embedder(crops)
    if not flip:
        return outputs
    # Only the mirror's embedding is needed, and some embedders compute scores that take many forward passes.
    mirroring: Embedder = getattr(embedder, "without_scores", embedder)
    mirrored = mirroring(np.ascontiguousarray(crops[:, :, ::-1]))
    summed = outputs.embedding + mirrored.embedding
    # Opposite embeddings sum to zero, which must stay zero rather than become NaN.
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
    """Scores ``(N,)``, by name, of aligned images that need no embedding, such as those of ``OnnxQuality``."""
    if not scores:
        return {}
    text = f"scoring {source.name}" if progress else ""
    together = {name: score for name, score in scores.items() if getattr(score, "thread_safe", False)}
    in_turn = {name: score for name, score in scores.items() if name not in together}

    def score_batch(batch: Batch) -> dict[str, Scores]:
        crops, in_turn_scores = batch
        return {**in_turn_scores, **{name: score(crops) for name, score in together.items()}}

    parts = _of_batches(source, indices, batch_size, in_turn, score_batch, text, parallel=bool(together))
    return {name: np.concatenate([part[name] for part in parts]) for name in scores}


def concatenate(parts: Sequence[FaceOutputs]) -> FaceOutputs:
    """Concatenate the outputs of several batches."""

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


def _of_batches(
    source: Source,
    indices: Sequence[int] | NDArray[np.integer] | None,
    batch_size: int,
    also: Mapping[str, CropScore],
    compute: Callable[[Batch], Result],
    text: str,
    *,
    parallel: bool,
) -> list[Result]:
    """What a function makes of each batch of crops with scores, which are prepared in another thread meanwhile."""
    chosen = np.arange(len(source)) if indices is None else np.asarray(indices)
    starts = range(0, len(chosen), batch_size)

    def prepare(start: int) -> Batch:
        crops = np.stack([source.crop(int(row)) for row in chosen[start : start + batch_size]])
        return crops, {name: score(crops) for name, score in also.items()}

    with (
        ThreadPoolExecutor(1) as loader,
        ThreadPoolExecutor(IN_FLIGHT) as pool,
        closing(map_ahead(loader, prepare, starts, AHEAD + 1)) as prepared,  # type: ignore[type-var]
    ):
        batches = track(prepared, text, total=len(starts), unit="batches")
        # While one batch is in the network, the next one becomes its input and the last one its outputs.
        return list(map_ahead(pool, compute, batches, IN_FLIGHT + 1) if parallel else map(compute, batches))
