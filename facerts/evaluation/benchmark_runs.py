"""Whole evaluations: from model and data on disk to a result folder; what the command line calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from facerts.datasets import PairBenchmark, Source, is_template_benchmark, open_benchmarks, open_templates
from facerts.datasets.fingerprint import ImageHashes, hash_images
from facerts.datasets.folder import LandmarkedFiles
from facerts.datasets.pair_benchmark import repeated_images
from facerts.datasets.template_benchmark import TemplateBenchmark, templates_from_identities
from facerts.embedding.aligned import alignment_notes
from facerts.embedding.embed import AnyEmbedder
from facerts.embedding.embedding_table import EmbeddingTable
from facerts.embedding.outputs import FaceOutputs
from facerts.errors import DataError, Error
from facerts.evaluation.baselines import extremes, image_scores, percentiles, shown_images
from facerts.evaluation.channel_probe import channel_probe
from facerts.evaluation.evaluation_options import (
    DEFAULT_OPTIONS,
    EvaluationOptions,
    check_names,
    measured_outputs,
    people_of,
    reference_embedding,
)
from facerts.evaluation.pair_verification import (
    FMRS,
    template_verification_of,
    verification_of,
)
from facerts.evaluation.probe_search import identification_of
from facerts.evaluation.rejection import reject_of
from facerts.evaluation.result import Result
from facerts.evaluation.result_folder import ResultFolder
from facerts.evaluation.similarity import COSINE, Similarity, check_fmrs, compare_images
from facerts.metrics.all_pairs import AllPairs

Kind = Literal["verification", "reject"]

# Wrong decisions of each kind that a report shows.
SHOWN_PAIRS = 12


def run_pairs(
    embedder: AnyEmbedder,
    kinds: Sequence[Kind],
    data: Sequence[str | Path | PairBenchmark],
    out: str | Path,
    options: EvaluationOptions = DEFAULT_OPTIONS,
    *,
    similarity: Similarity = COSINE,
) -> Result:
    """Embed each benchmark once, run the requested measurements, and return the complete result of the folder.

    Args:
        kinds: "verification" and "reject", one or both.
        data: benchmarks, open or as for ``open_benchmarks`` and ``open_templates``.
        similarity: similarity measure; results are stored under ``similarity.title`` of a benchmark's name.
    """
    folder = ResultFolder(out, embedder)
    templates = [path for path in data if not isinstance(path, PairBenchmark) and is_template_benchmark(path)]
    if templates and ("reject" in kinds or options.every_pair):
        what = "error versus reject needs" if "reject" in kinds else "all pairs are"
        raise Error(f"{templates[0]}: {what} pairs of images, and this benchmark has templates")
    if not similarity.of_directions:
        _check_listed_pairs(similarity, templates, options)
    benchmarks = [
        replace(one, images=options.crops_of(one.images))
        for given in data
        if given not in templates
        for one in ([given] if isinstance(given, PairBenchmark) else open_benchmarks(given))
    ]
    pooled = [open_templates(path) for path in templates]
    check_names([*(one.name for one in benchmarks), *(one.name for one in pooled)])
    for benchmark in benchmarks:
        _check_pairs(benchmark, kinds, options)
    wrapped, flip = similarity.ready(embedder, options.flip)
    reference = reference_embedding(wrapped, options, flip=flip)
    for benchmark in benchmarks:
        hashed = hash_images(benchmark.images)
        outputs = measured_outputs(
            wrapped,
            benchmark.images,
            options,
            flip=flip,
            sha256=hashed.sha256,
            first=hashed.first,
            reference=reference,
        )
        _measure_pairs(folder, embedder, benchmark, outputs, hashed, kinds, options, similarity)
    for of_templates in pooled:
        _measure_templates(folder, embedder, of_templates, options)
    return folder.content


def run_identification(
    embedder: AnyEmbedder,
    data: Sequence[str],
    out: str | Path,
    options: EvaluationOptions = DEFAULT_OPTIONS,
    *,
    enrolled: int = 1,
    unknown: float = 0.5,
    seed: int = 0,
) -> Result:
    """Search people in galleries, IJB's own or one drawn from images with identities, and return the folder's result.

    Args:
        data: benchmarks with galleries, as for ``open_templates``, or sources with identities.
        unknown: share of the people that a drawn gallery does not have.
    """
    folder = ResultFolder(out, embedder)
    benchmarks = [
        _aligned_templates(path, options)
        if is_template_benchmark(path)
        else templates_from_identities(options.crops_of(people_of(path)), enrolled=enrolled, unknown=unknown, seed=seed)
        for path in data
    ]
    check_names([benchmark.name for benchmark in benchmarks])
    for benchmark in benchmarks:
        if not benchmark.galleries or benchmark.probes is None:
            raise DataError(f"{benchmark.name}: no gallery or no probes here; {' '.join(benchmark.notes)}")
        hashed = hash_images(benchmark.images)
        outputs = measured_outputs(embedder, benchmark.images, options, flip=options.flip, sha256=hashed.sha256)
        section = identification_of(outputs, benchmark)
        section.notes = [*benchmark.notes, *_looked_at(embedder, benchmark.images)]
        section.data_sha256 = {benchmark.name: hashed.sha256}
        folder.add("identification", benchmark.name, section)
        folder.write()
    return folder.content


def _aligned_templates(path: str, options: EvaluationOptions) -> TemplateBenchmark:
    """A benchmark of templates; photos without landmarks are aligned as they are read if ``align`` is set."""
    benchmark = open_templates(path)
    if isinstance(benchmark.images, LandmarkedFiles):
        return benchmark
    return replace(benchmark, images=options.crops_of(benchmark.images))


def _measure_pairs(
    folder: ResultFolder,
    embedder: AnyEmbedder,
    benchmark: PairBenchmark,
    outputs: FaceOutputs,
    hashed: ImageHashes,
    kinds: Sequence[Kind],
    options: EvaluationOptions,
    similarity: Similarity,
) -> None:
    name = similarity.title(benchmark.name)
    rows, every = _every_pair(benchmark, outputs, hashed) if options.every_pair else (None, None)
    notes = [*benchmark.notes, *repeated_images(benchmark, hashed.first), *alignment_notes(benchmark.images)]
    if "verification" in kinds:
        wrapped, flip = similarity.ready(embedder, options.flip)
        table = isinstance(wrapped, EmbeddingTable)
        if not isinstance(wrapped, EmbeddingTable):
            probed = channel_probe(
                wrapped, benchmark, outputs, options, flip=flip, similarity=similarity, sha256=hashed.sha256
            )
            notes += [] if probed is None else [probed]
        section, arrays = verification_of(
            outputs,
            benchmark,
            flip=None if table else options.flip,
            fmrs=options.fmrs,
            similarity=similarity,
            every=every,
        )
        section.notes = notes
        arrays.update(percentiles(embedder, outputs))
        if options.keep_crops:
            scores = similarity.of_pairs(outputs, benchmark.pairs)
            arrays.update(shown_images(benchmark.images, _shown_rows(benchmark, outputs, scores)))
        section.data_sha256 = {benchmark.name: hashed.sha256}
        folder.add("verification", name, section, arrays)
    if "reject" in kinds:
        section, arrays = reject_of(
            outputs,
            benchmark,
            fmr=options.fmr,
            similarity=similarity,
            every=every,
            rows=rows,
        )
        section.data_sha256, section.notes = {benchmark.name: hashed.sha256}, notes
        folder.add("reject", name, section, arrays)
    folder.write()


def _looked_at(embedder: AnyEmbedder, images: Source) -> list[str]:
    """Notes on the alignment of images; none for embeddings computed elsewhere, which may be of other images."""
    return [] if isinstance(embedder, EmbeddingTable) else alignment_notes(images)


def _shown_rows(benchmark: PairBenchmark, outputs: FaceOutputs, scores: NDArray[np.float64]) -> NDArray[np.int64]:
    """Images of the pairs that are furthest on the wrong side, and of the best and worst by each score."""
    genuine, impostors = np.flatnonzero(benchmark.same), np.flatnonzero(~benchmark.same)
    worst = np.concatenate(
        [
            genuine[np.argsort(scores[genuine])[:SHOWN_PAIRS]],
            impostors[np.argsort(-scores[impostors])[:SHOWN_PAIRS]],
        ]
    )
    rows = [benchmark.pairs[worst].reshape(-1)]
    for values in image_scores(outputs).values():
        rows += extremes(values)
    return np.concatenate(rows)


def _every_pair(
    benchmark: PairBenchmark, outputs: FaceOutputs, hashed: ImageHashes
) -> tuple[NDArray[np.int64], AllPairs]:
    """All pairs of the images that are not repetitions, and which images these are."""
    labels = benchmark.images.labels
    assert labels is not None  # _check_pairs saw to it
    rows = np.flatnonzero(hashed.first == np.arange(len(labels)))
    return rows, compare_images(benchmark.name, outputs.embedding[rows], labels[rows])


def _measure_templates(
    folder: ResultFolder, embedder: AnyEmbedder, benchmark: TemplateBenchmark, options: EvaluationOptions
) -> None:
    if not len(benchmark.pairs):
        raise DataError(
            f"{benchmark.name}: its pairs of templates are missing; see its notes: {' '.join(benchmark.notes)}"
        )
    check_fmrs(options.fmrs or (), int((~benchmark.same).sum()), benchmark.name)
    hashed = hash_images(benchmark.images)
    outputs = measured_outputs(embedder, benchmark.images, options, flip=options.flip, sha256=hashed.sha256)
    flip = None if isinstance(embedder, EmbeddingTable) else options.flip
    for pooling, section in template_verification_of(outputs, benchmark, options.fmrs or FMRS, flip=flip).items():
        section.data_sha256 = {benchmark.name: hashed.sha256}
        section.notes = [*benchmark.notes, *_looked_at(embedder, benchmark.images)]
        folder.add("verification", f"{benchmark.name} ({pooling})", section)
    folder.write()


def _check_pairs(benchmark: PairBenchmark, kinds: Sequence[Kind], options: EvaluationOptions) -> None:
    """Refuse what could not be measured, before anything is embedded."""
    for fold in np.unique(benchmark.folds):
        others = benchmark.same[benchmark.folds != fold]
        if others.all() or not others.any():
            raise DataError(
                f"{benchmark.name}: outside fold {fold} there are {int(others.sum())} genuine and "
                f"{int((~others).sum())} impostor pairs, and a threshold needs both; distribute them over the folds"
            )
    if options.every_pair and benchmark.images.labels is None:
        raise Error(
            f"{benchmark.name}: all pairs need the identity of each image, which this benchmark does not have; "
            "a .bin set never has it, use the raw layout"
        )
    impostors = int((~benchmark.same).sum())
    if "verification" in kinds and not options.every_pair:
        check_fmrs(options.fmrs or (), impostors, benchmark.name, ", or measure all pairs")
    if "reject" in kinds:
        check_fmrs([options.fmr], impostors, benchmark.name)


def _check_listed_pairs(similarity: Similarity, templates: Sequence[str | Path], options: EvaluationOptions) -> None:
    """Refuse what only a similarity of directions can measure."""
    if options.every_pair:
        raise Error(
            f"all pairs cannot be compared by {similarity.name}, only by the cosine, because millions of pairs are "
            "computed as one matrix product; leave out --all-pairs, or compare by the cosine"
        )
    if templates:
        raise Error(
            f"{templates[0]}: templates cannot be compared by {similarity.name}: images are pooled into one unit "
            "embedding, which has no variance; compare them by the cosine"
        )
