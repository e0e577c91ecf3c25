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
from facerts.evaluation.baselines import extremes, image_arrays, image_scores, percentiles, shown_images
from facerts.evaluation.evaluation_options import (
    DEFAULT_OPTIONS,
    EvaluationOptions,
    check_names,
    measured_outputs,
    open_without,
    reference_embedding,
)
from facerts.evaluation.measure import Evaluation, Measure, PairedTest, Plot, Series
from facerts.evaluation.result import Result
from facerts.evaluation.result_folder import Arrays, ResultFolder
from facerts.evaluation.wording import against, counts, joined, measured, score_in_words
from facerts.metrics.pair_intervals import verification_intervals
from facerts.metrics.separation import separation, tnr_interval

# Results hold one such section of a model.
NAME = "non-faces"
BY_SOURCE = "All faces against each source of non-faces"


def ood_of(
    faces: Mapping[str, FaceOutputs], others: Mapping[str, FaceOutputs], names: Mapping[str, list[str]]
) -> tuple[Evaluation, Arrays]:
    """Measure outputs for faces against those for others: a result's section ``ood``, and its arrays by source."""
    if not faces or not others:
        raise Error("give sources of faces (--in) and of non-faces (--out-of)")
    sources = {**faces, **others}
    named = {source: image_scores(outputs) for source, outputs in sources.items()}
    scores = [name for name in next(iter(named.values())) if all(name in of_source for of_source in named.values())]
    if not scores:
        raise Error(
            "this model outputs neither a quality nor a norm, so it has no score to separate faces from non-faces"
        )
    # All together first, then each source of faces, then each of non-faces.
    sides = [(list(faces), list(others))]
    sides += [([name], list(others)) for name in faces if len(faces) > 1]
    sides += [(list(faces), [name]) for name in others if len(others) > 1]
    measures = []
    for score in scores:
        for inside, outside in sides:
            of = {"score": score, "faces": joined(inside), "non-faces": joined(outside)}
            one, other = (np.concatenate([named[name][score] for name in of_side]) for of_side in (inside, outside))
            keys = [[f"{name}/{score}" for name in of_side] for of_side in (inside, outside)]
            table = "" if len(outside) == len(others) else BY_SOURCE
            for measure in separation_measures(one, other):
                if measure.test is not None:
                    measure.test.faces, measure.test.others = keys
                measures.append(measure.model_copy(update={"of": of, "table": table}))
    for measure in measures[:3:2]:
        measure.headline = True
    arrays: Arrays = {}
    for source, outputs in sources.items():
        kept = image_arrays(outputs, names[source])
        arrays.update({f"{source}/{key}": value for key, value in kept.items() if key != "embeddings"})
    interval = "bootstrap over images"
    sizes = [{name: len(outputs) for name, outputs in side.items()} for side in (faces, others)]
    section = Evaluation(
        title="Faces against non-faces",
        images=sum(map(sum, (side.values() for side in sizes))),
        interval=interval,
        text=f"Faces: {counts(sizes[0])}. Non-faces: {counts(sizes[1])}. TNR at TPR 95%: the share of the non-faces "
        f"below the threshold that keeps 95% of the faces. In brackets: 95% intervals, {interval}.",
        findings=[ood_finding(measures[2], scores[0], sizes[0], sizes[1])],
        measures=measures,
        folded=[BY_SOURCE],
        plots=[_plot(score, list(faces), list(others)) for score in scores],
    )
    return section, arrays


def _plot(score: str, faces: Sequence[str], others: Sequence[str]) -> Plot:
    """The densities of a score (the RTS paper's Fig. 5)."""
    non_faces = Series(label=", ".join(others), x=[f"{name}/{score}" for name in others], reference=True)
    return Plot(
        name=score,
        caption=f"Distribution of {score}: faces as lines, non-faces filled. The less they overlap, the better.",
        x=score,
        y="density",
        panels={"": [non_faces, *(Series(label=name, x=[f"{name}/{score}"]) for name in faces)]},
        together=False,
    )


def ood_finding(tnr: Measure, score: str, faces: Mapping[str, int], others: Mapping[str, int]) -> str:
    images = f"{sum(others.values()):,} non-faces"
    # Without an error there is nothing to resample: the interval would claim more than so many images show.
    rejected = f"all {images}" if tnr.value == 1 else f"{measured(tnr.value, tnr.ci95)} of {images}"
    return (
        f"By {score_in_words(score)} it rejects {rejected} ({', '.join(others)}) while it keeps 95% of the faces "
        f"({', '.join(faces)}){against(tnr.ci95 or (0.0, 0.0), 0.05)}."
    )


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
        name: measured_outputs(embedder, source, options, flip=False, sha256=hashes[name], reference=reference)
        for name, source in sources.items()
    }
    names = {name: [source.key(i) for i in range(len(source))] for name, source in sources.items()}
    section, arrays = ood_of({name: outputs[name] for name in inside}, {name: outputs[name] for name in outside}, names)
    # Embeddings that were computed elsewhere may be of other images.
    looked_at = {} if isinstance(embedder, EmbeddingTable) else inside
    section.notes = [f"{name}: {note}" for name, source in looked_at.items() for note in alignment_notes(source)]
    patterns = {"faces": exclude_faces, "non-faces": exclude_others}
    section.excluded = {what: pattern for what, pattern in patterns.items() if pattern is not None}
    section.data_sha256 = hashes
    for name, source in sources.items():
        arrays.update({f"{name}/{key}": value for key, value in percentiles(embedder, outputs[name]).items()})
        if options.keep_crops:
            rows = np.concatenate([end for s in image_scores(outputs[name]).values() for end in extremes(s)])
            shown = shown_images(source, rows)
            arrays.update({f"{name}/{key}": value for key, value in shown.items()})
    folder.add("ood", NAME, section, arrays)
    folder.write()
    return folder.content


def separation_measures(inside: NDArray[np.float32], outside: NDArray[np.float32]) -> list[Measure]:
    """All measures of separation of faces' scores ``(N,)`` from non-faces' ``(M,)``, with their intervals."""
    found = separation(inside, outside)
    flags = np.repeat([True, False], [len(inside), len(outside)])
    area = verification_intervals(np.concatenate([inside, outside]), flags, []).auroc
    measures = [
        Measure(name="AUROC", value=found.auroc, ci95=area, test=PairedTest(statistic="auroc")),
        *(
            Measure(
                name=f"TNR at TPR {tpr:.0%}",
                value=found.tnr_at_tpr[tpr],
                ci95=tnr_interval(inside, outside, tpr),
                test=PairedTest(statistic="tnr_at_tpr", at=tpr),
            )
            for tpr in (0.9, 0.95)
        ),
        Measure(name="AUPR", value=found.aupr),
    ]
    for measure in measures:
        measure.better, measure.n = "higher", len(flags)
    return measures
