"""The corruption benchmark: what becomes of scores and embeddings as faces are corrupted with rising severity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from facerts.datasets.fingerprint import hash_images
from facerts.datasets.source import Source
from facerts.detection.detector import OpenDetector
from facerts.embedding.aligned import alignment_notes
from facerts.embedding.embed import AnyEmbedder, concatenate
from facerts.embedding.embedding_table import EmbeddingTable
from facerts.embedding.outputs import CropScore, Embedder, FaceOutputs
from facerts.errors import Error
from facerts.evaluation.baselines import crop_scores
from facerts.evaluation.evaluation_options import (
    DEFAULT_OPTIONS,
    EvaluationOptions,
    Kept,
    check_names,
    faces_of,
    kept_outputs,
)
from facerts.evaluation.image_scores import image_scores
from facerts.evaluation.result_folder import Arrays, ResultFolder
from facerts.evaluation.results import Result, Sections
from facerts.evaluation.results.corruptions_result import (
    CorruptedScore,
    CorruptionKind,
    CorruptionResult,
    Percentiles,
)
from facerts.images.changes import KINDS, apply_change
from facerts.io.progress import track
from facerts.metrics.verification import auroc, pair_cosine

# Blur reaches radius 5, so that its steps are the radii 1 to 5 of a crop of 112 pixels.
SEVERITIES = (0.2, 0.4, 0.6, 0.8, 1.0)
PERCENTILES = (5, 50, 95)
IMAGES = 500


def corruptions_of(
    embedder: Embedder,
    source: Source,
    *,
    images: int = IMAGES,
    batch_size: int = 64,
    detector: OpenDetector | None = None,
    seed: int = 0,
    kept: Kept | None = None,
) -> tuple[CorruptionResult, Arrays]:
    """Corrupt evenly spaced images by every kind and severity: a result's section ``corruptions[NAME]`` and its arrays.

    Args:
        images: number of faces.
        detector: its score of each crop becomes a baseline; None for no such baseline.
        kept: takes the outputs of each step from a cache, see ``options.kept_outputs``; None for no cache.
    """
    rows = np.unique(np.linspace(0, len(source) - 1, min(images, len(source))).astype(int))
    steps = [("clean", 0.0)] + [(kind, severity) for kind in KINDS for severity in SEVERITIES]
    measured: dict[tuple[str, float], tuple[FaceOutputs, dict[str, NDArray[np.float32]]]] = {}
    for step in track(steps, f"corrupting {source.name}", unit="steps"):
        compute = partial(_corrupted, embedder, source, rows, *step, seed, batch_size, crop_scores(detector))
        outputs = compute() if kept is None else kept(compute, rows, what="corruption", step=[*step, seed])
        measured[step] = outputs, image_scores(outputs)
    clean, clean_scores = measured["clean", 0.0]
    kinds = {}
    arrays: Arrays = {f"clean/{name}": values for name, values in clean_scores.items()}
    for kind in KINDS:
        worse = [measured[kind, severity] for severity in SEVERITIES]
        cosines = [_to_clean(clean, outputs) for outputs, _ in worse]
        kinds[kind] = CorruptionKind(
            cosine=_percentiles([np.ones(len(rows)), *cosines]),
            by={
                name: _score(values, [scores[name] for _, scores in worse])
                for name, values in clean_scores.items()
            },
        )
        for severity, (_, scores) in zip(SEVERITIES, worse, strict=True):
            arrays.update({f"{kind}/{severity:g}/{name}": values for name, values in scores.items()})
    section = CorruptionResult(images=len(rows), severity=[0.0, *SEVERITIES], seed=seed, kinds=kinds)
    return section, arrays


def run_corruptions(
    embedder: AnyEmbedder,
    data: Sequence[str],
    out: str | Path,
    options: EvaluationOptions = DEFAULT_OPTIONS,
    *,
    images: int = IMAGES,
) -> Result:
    """Corrupt faces with rising severity, see what becomes of their scores, and return the folder's result."""
    if isinstance(embedder, EmbeddingTable):
        raise Error(
            "the corruption benchmark creates new images, so it needs a model, not embeddings computed elsewhere"
        )
    sources = [options.crops_of(faces_of(path)) for path in data]
    check_names([source.name for source in sources])
    folder = ResultFolder(out, embedder)
    for source in sources:
        sha256 = hash_images(source).sha256
        section, arrays = corruptions_of(
            embedder,
            source,
            images=images,
            batch_size=options.batch_size,
            detector=options.detector_baseline,
            kept=partial(kept_outputs, options, embedder, source, sha256=sha256),
        )
        section.notes = alignment_notes(source)
        section.data_sha256 = sha256
        folder.add(Sections(corruptions={source.name: section}), arrays)
        folder.write()
    return folder.content


def _corrupted(
    embedder: Embedder,
    source: Source,
    rows: NDArray[np.int64],
    kind: str,
    severity: float,
    seed: int,
    batch_size: int,
    also: Mapping[str, CropScore],
) -> FaceOutputs:
    """Outputs of some images after one corruption, with further scores of the corrupted crops among their extras."""
    parts = []
    for start in range(0, len(rows), batch_size):
        batch = {int(row): source.crop(int(row)) for row in rows[start : start + batch_size]}
        if kind != "clean":
            batch = {row: apply_change(crop, kind, severity, (seed, row)) for row, crop in batch.items()}
        crops = np.stack(list(batch.values()))
        outputs = embedder(crops)
        scores = {name: score(crops) for name, score in also.items()}
        parts.append(replace(outputs, extras={**outputs.extras, **scores}))
    return concatenate(parts)


def _to_clean(clean: FaceOutputs, worse: FaceOutputs) -> NDArray[np.float64]:
    """``(N,)`` cosine of each corrupted image to itself when clean."""
    count = len(clean)
    both = np.concatenate([clean.embedding, worse.embedding])
    return pair_cosine(both, np.stack([np.arange(count), np.arange(count) + count], axis=1))


def _score(clean: NDArray[np.float32], worse: list[NDArray[np.float32]]) -> CorruptedScore:
    percentiles = _percentiles([clean, *worse])
    flags = np.repeat([True, False], len(clean))
    return CorruptedScore(
        p5=percentiles.p5,
        p50=percentiles.p50,
        p95=percentiles.p95,
        auroc=[auroc(np.concatenate([clean, values]), flags) for values in worse],
        monotone=bool((np.diff(percentiles.p50) < 0).all()),
    )


def _percentiles(steps: Sequence[NDArray[np.floating]]) -> Percentiles:
    p5, p50, p95 = ([float(np.percentile(values, at)) for values in steps] for at in PERCENTILES)
    return Percentiles(p5=p5, p50=p50, p95=p95)
