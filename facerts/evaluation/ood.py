"""Faces against non-faces, by each score that an embedder has of an image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from facerts.datasets.fingerprint import hash_images
from facerts.embedding.aligned import alignment_notes
from facerts.embedding.embed import AnyEmbedder
from facerts.embedding.embedding_table import EmbeddingTable
from facerts.embedding.outputs import FaceOutputs
from facerts.errors import Error
from facerts.evaluation.baselines import extremes, image_arrays, image_scores, shown_images
from facerts.evaluation.evaluation_options import (
    DEFAULT_OPTIONS,
    EvaluationOptions,
    check_names,
    measured_outputs,
    open_without,
    reference_embedding,
)
from facerts.evaluation.result_folder import Arrays, ResultFolder
from facerts.evaluation.results import Result, Sections
from facerts.evaluation.results.ood_result import ExcludedFiles, OodNumbers, OodResult, OodScore
from facerts.metrics.pair_intervals import verification_intervals
from facerts.metrics.separation import separation, tnr_interval


def ood_of(
    faces: Mapping[str, FaceOutputs], others: Mapping[str, FaceOutputs], names: Mapping[str, list[str]]
) -> tuple[OodResult, Arrays]:
    """Measure outputs for faces against those for others: a result's section ``ood``, and its arrays by source."""
    if not faces or not others:
        raise Error("give sources of faces (--in) and of non-faces (--out-of)")
    sources = {**faces, **others}
    by = {}
    named = {source: image_scores(outputs) for source, outputs in sources.items()}
    for name in next(iter(named.values())):
        if all(name in scores for scores in named.values()):
            by[name] = _by({source: scores[name] for source, scores in named.items()}, faces, others)
    if not by:
        raise Error(
            "this model outputs neither a quality nor a norm, so it has no score to separate faces from non-faces"
        )
    arrays: Arrays = {}
    for source, outputs in sources.items():
        kept = image_arrays(outputs, names[source])
        arrays.update({f"{source}/{key}": value for key, value in kept.items() if key != "embeddings"})
    section = OodResult(
        faces={name: len(outputs) for name, outputs in faces.items()},
        others={name: len(outputs) for name, outputs in others.items()},
        by=by,
        interval="bootstrap over images",
    )
    return section, arrays


def run_ood(
    embedder: AnyEmbedder,
    faces: Sequence[str],
    others: Sequence[str],
    out: str | Path,
    options: EvaluationOptions = DEFAULT_OPTIONS,
    *,
    exclude_faces: str | None = None,
    exclude_others: str | None = None,
) -> Result:
    """Measure how well scores separate sources of faces from sources of non-faces, and return the folder's result.

    Args:
        faces: in-distribution sources, each measured by itself and all together.
        options: how to measure; the embeddings are of the crop alone.
        exclude_faces: file names (with ``*``) to leave out of the faces.
        exclude_others: file names to leave out of the others, such as those that choices were made on.
    """
    opened = [
        [open_without(path, exclude) for path in paths]
        for paths, exclude in ((faces, exclude_faces), (others, exclude_others))
    ]
    check_names([source.name for sources in opened for source in sources])
    inside, outside = ({source.name: options.crops_of(source) for source in sources} for sources in opened)
    folder = ResultFolder(out, embedder)
    sources = {**inside, **outside}
    reference = reference_embedding(embedder, options, flip=False)
    hashes = {name: hash_images(source).sha256 for name, source in sources.items()}
    outputs = {
        name: measured_outputs(
            embedder, source, options, flip=False, sha256=hashes[name], reference=reference
        )
        for name, source in sources.items()
    }
    names = {name: [source.key(i) for i in range(len(source))] for name, source in sources.items()}
    section, arrays = ood_of(
        {name: outputs[name] for name in inside}, {name: outputs[name] for name in outside}, names
    )
    # Embeddings that were computed elsewhere may be of other images.
    looked_at = {} if isinstance(embedder, EmbeddingTable) else inside
    section.notes = [
        f"{name}: {note}" for name, source in looked_at.items() for note in alignment_notes(source)
    ]
    section.excluded = ExcludedFiles(faces=exclude_faces, others=exclude_others)
    section.data_sha256 = hashes
    if options.keep_crops:
        for name, source in sources.items():
            rows = np.concatenate([end for s in image_scores(outputs[name]).values() for end in extremes(s)])
            shown = shown_images(source, rows)
            arrays.update({f"{name}/{key}": value for key, value in shown.items()})
    folder.add(Sections(ood=section), arrays)
    folder.write()
    return folder.content


def _by(
    scored: dict[str, NDArray[np.float32]],
    faces: Mapping[str, FaceOutputs],
    others: Mapping[str, FaceOutputs],
) -> OodScore:
    inside, outside = (np.concatenate([scored[name] for name in names]) for names in (faces, others))
    pooled = separation_numbers(inside, outside)
    return OodScore(
        **dict(pooled),
        per_source={name: separation_numbers(scored[name], outside) for name in faces},
        per_out_source={name: separation_numbers(inside, scored[name]) for name in others},
    )


def separation_numbers(inside: NDArray[np.float32], outside: NDArray[np.float32]) -> OodNumbers:
    """All measures of separation of faces' scores ``(N,)`` from non-faces' ``(M,)``, with their intervals."""
    measured = separation(inside, outside)
    flags = np.repeat([True, False], [len(inside), len(outside)])
    return OodNumbers(
        auroc=measured.auroc,
        aupr=measured.aupr,
        fpr95=measured.fpr95,
        tnr_at_tpr={"0.90": measured.tnr_at_tpr[0.9], "0.95": measured.tnr_at_tpr[0.95]},
        ci95={
            "auroc": verification_intervals(np.concatenate([inside, outside]), flags, []).auroc,
            "0.90": tnr_interval(inside, outside, 0.9),
            "0.95": tnr_interval(inside, outside, 0.95),
        },
    )
