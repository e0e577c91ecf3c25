"""The corruption benchmark: what becomes of scores and similarities as faces are changed with rising severity."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from facerts.datasets.fingerprint import ImageHashes, hash_images
from facerts.datasets.source import Source
from facerts.embedding.aligned import alignment_notes
from facerts.embedding.combined import CombinedEmbedder
from facerts.embedding.embed import AnyEmbedder, concatenate
from facerts.embedding.embedding_table import EmbeddingTable
from facerts.embedding.onnx_embedder import OnnxModel, outputs_of_crops
from facerts.embedding.outputs import Embedder, FaceOutputs
from facerts.errors import Error
from facerts.evaluation.baselines import crop_scores, image_scores
from facerts.evaluation.evaluation_options import (
    DEFAULT_OPTIONS,
    EvaluationOptions,
    check_names,
    kept_outputs,
    people_of,
)
from facerts.evaluation.result_folder import Arrays, ResultFolder
from facerts.evaluation.results import Result, Sections
from facerts.evaluation.results.corruptions_result import (
    CorruptedScore,
    CorruptionKind,
    CorruptionResult,
    KeptThreshold,
    Percentiles,
    RankCorrelation,
    RankCorrelations,
)
from facerts.images import changes
from facerts.images.changes import CHANGES, apply_change
from facerts.images.transforms import albumentations
from facerts.io.files import sha256_file
from facerts.io.progress import track
from facerts.metrics.intervals import percentile_interval
from facerts.metrics.reliability import spearman
from facerts.metrics.verification import auroc
from facerts.onnx.contract import Description

# Blur reaches radius 5, so that its steps are the radii 1 to 5 of a crop of 112 pixels.
SEVERITIES = (0.2, 0.4, 0.6, 0.8, 1.0)
PERCENTILES = (5, 50, 95)
IMAGES = 500
KEEP = 0.95
REPLICATES = 200

Crops: TypeAlias = NDArray[np.uint8]
Values: TypeAlias = NDArray[np.floating]
Network: TypeAlias = Embedder | OnnxModel
# Outputs that were kept are those of the changes as they are now.
_CHANGES_SHA256 = sha256_file(Path(changes.__file__))
# A kind and a severity.
Step = tuple[str, float]
CLEAN: Step = ("clean", 0.0)
OTHER: Step = ("other", 0.0)
# Extras of a changed crop: its cosine to the crops of these steps.
TO = {CLEAN: "to_unchanged", OTHER: "to_other"}


def run_corruptions(
    model: AnyEmbedder | OnnxModel,
    data: Sequence[str],
    out: str | Path,
    options: EvaluationOptions = DEFAULT_OPTIONS,
    *,
    recognizers: Mapping[str, AnyEmbedder] | None = None,
    images: int = IMAGES,
    kinds: Sequence[str] = tuple(CHANGES),
    severities: Sequence[float] = SEVERITIES,
) -> Result:
    """Change faces with rising severity, see what becomes of their scores, and return the folder's result.

    Args:
        model: its scores are measured; a quality alone needs no embedding.
        recognizers: their cosines say what a change costs; by default those of the model, if it has an embedding.
        images: number of faces, evenly spaced; if people are known, one of each.
    """
    networks: dict[str, Network] = {}
    for label, network in {"": model, **(recognizers or {})}.items():
        if isinstance(network, EmbeddingTable):
            raise Error(
                "the corruption benchmark creates new images, so it needs a model, not embeddings computed elsewhere"
            )
        networks[label] = network
    albumentations()
    sources = [options.crops_of(people_of(path)) for path in data]
    check_names([source.name for source in sources])
    folder = ResultFolder(out, model)
    for source in sources:
        faces = _Faces(source, hash_images(source), images)
        measured = _Measured(networks, faces, options)
        steps = [CLEAN, *((kind, severity) for kind in kinds for severity in severities)]
        for step in track(steps, f"changing {source.name}", unit="steps"):
            for label in networks:
                measured.outputs(label, step)
        section, arrays = _section(measured, kinds, severities)
        section.notes = alignment_notes(source)
        folder.add(Sections(corruptions={source.name: section}), arrays)
        folder.write()
    return folder.content


class _Faces:
    """The faces to change, decoded once: evenly spaced, and of different people if those with two images are known.

    Attributes:
        rows: ``(N,)`` indices of the images in the source.
        others: ``(N,)`` indices of another image of the same people; None if people are unknown.
    """

    seed = 0

    def __init__(self, source: Source, hashes: ImageHashes, images: int) -> None:
        self.source, self.sha256 = source, hashes.sha256
        self.rows = np.flatnonzero(hashes.first == np.arange(len(source)))
        self.others: NDArray[np.int64] | None = None
        if source.labels is not None:
            order = self.rows[np.argsort(source.labels[self.rows], kind="stable")]
            _, first, count = np.unique(source.labels[order], return_index=True, return_counts=True)
            if (count > 1).sum() > 1:
                self.rows, self.others = (order[first[count > 1] + place] for place in (0, 1))
        chosen = np.unique(np.linspace(0, len(self.rows) - 1, min(images, len(self.rows))).astype(int))
        self.rows, self.others = self.rows[chosen], None if self.others is None else self.others[chosen]
        self.crops = lru_cache(maxsize=2)(self._crops)

    def __len__(self) -> int:
        return len(self.rows)

    def rows_of(self, step: Step) -> NDArray[np.int64]:
        return self.others if step == OTHER and self.others is not None else self.rows

    def _crops(self, step: Step) -> Crops:
        """``(N, 112, 112, 3)`` the crops after a step."""
        if step[1]:
            changed = (
                apply_change(crop, *step, (self.seed, int(row)))
                for row, crop in zip(self.rows, self._unchanged, strict=True)
            )
            return np.stack(list(changed))
        return self._unchanged if step == CLEAN else self._read(self.rows_of(step))

    @cached_property
    def _unchanged(self) -> Crops:
        return self._read(self.rows)

    def _read(self, rows: NDArray[np.int64]) -> Crops:
        return np.stack([self.source.crop(int(row)) for row in rows])


class _Measured:
    """What the model, whose label is "", and the recognizers give for the faces after each step."""

    def __init__(self, networks: Mapping[str, Network], faces: _Faces, options: EvaluationOptions) -> None:
        self.networks, self.faces, self.options = networks, faces, options
        self.outputs = cache(self._outputs)
        own = {networks[""].name: ""} if self.outputs("", CLEAN).embedding.shape[1] else {}
        # Of each recognizer, the label of the network that gives its embeddings.
        self.recognizers = {label: label for label in networks if label} or own

    def cosines(self, step: Step, to: Step) -> NDArray[np.float64]:
        """``(R, N)`` cosines of the changed crops to those of another step, by recognizer."""
        embedded = [self.outputs(network, step) for network in self.recognizers.values()]
        return np.array([outputs.extras[TO[to]] for outputs in embedded], dtype=np.float64)

    def _outputs(self, label: str, step: Step) -> FaceOutputs:
        """Outputs of a network; in place of the embeddings of changed crops, their cosines to the unchanged ones."""
        network, faces = self.networks[label], self.faces
        # Recognizers do not depend on the detector that scores crops.
        options = replace(self.options, detector_baseline=None) if label else self.options

        def compute() -> FaceOutputs:
            crops, size = faces.crops(step), options.batch_size
            found = concatenate(
                [outputs_of_crops(network, crops[i : i + size]) for i in range(0, len(crops), size)]
            )
            scores = {} if label else crop_scores(options.detector_baseline)
            extras = {**found.extras, **{name: score(crops) for name, score in scores.items()}}
            embedding = found.embedding
            if step == OTHER or not embedding.shape[1]:
                return replace(found, extras=extras)
            for to, name in TO.items():
                if to == CLEAN or faces.others is not None:
                    anchor = embedding if step == to else self.outputs(label, to).embedding
                    extras[name] = np.einsum("nd,nd->n", embedding, anchor)
            return replace(found, embedding=embedding if step == CLEAN else embedding[:, :0], extras=extras)

        return kept_outputs(
            options,
            network,
            faces.source,
            compute,
            faces.rows_of(step),
            sha256=faces.sha256,
            what="corruption",
            changes=_CHANGES_SHA256,
            step=[*step, faces.seed],
            baselines=not label,
            others=None if faces.others is None else faces.others.tolist(),
        )


def _section(
    measured: _Measured, kinds: Sequence[str], severities: Sequence[float]
) -> tuple[CorruptionResult, Arrays]:
    """A result's section ``corruptions[NAME]`` and its arrays."""
    faces, model = measured.faces, measured.networks[""]
    steps = [(kind, severity) for kind in kinds for severity in severities]
    scores = {step: image_scores(measured.outputs("", step)) for step in (CLEAN, *steps)}
    description = _description(model)
    thresholds = {name: _threshold(description, name, values) for name, values in scores[CLEAN].items()}
    to_last = CLEAN if faces.others is None else OTHER
    by_kind = {}
    for kind in kinds:
        of_kind = [CLEAN, *((kind, severity) for severity in severities)]
        cosines = {
            to: np.array([measured.cosines(step, to) for step in of_kind]).swapaxes(0, 1)
            for to in dict.fromkeys((CLEAN, to_last))
        }
        non_faces = [measured.outputs("", step).not_a_face for step in of_kind]
        by_kind[kind] = CorruptionKind(
            family=CHANGES[kind].family,
            held_out=CHANGES[kind].held_out,
            cosine=np.median(cosines[to_last], axis=-1).mean(axis=0).tolist()
            if measured.recognizers
            else None,
            to_unchanged=_by_recognizer(measured, cosines[CLEAN]),
            to_other=_by_recognizer(measured, cosines[OTHER]) if OTHER in cosines else {},
            not_a_face=None
            if non_faces[0] is None
            else [float(np.mean(taken)) for taken in non_faces if taken is not None],
            by={
                name: _score([scores[step][name] for step in of_kind], threshold, description)
                for name, threshold in thresholds.items()
            },
        )
    correlations, agreement = _rank_correlations(measured, steps, scores, to_last)
    section = CorruptionResult(
        images=len(faces),
        people=faces.others is not None,
        severity=[0.0, *severities],
        seed=faces.seed,
        recognizers={label: measured.networks[at].sha256 for label, at in measured.recognizers.items()},
        thresholds=thresholds,
        kinds=by_kind,
        rank_correlation=correlations,
        agreement=agreement,
        data_sha256=faces.sha256,
    )
    arrays = {
        f"{step[0]}/{step[1]:g}/{name}" if step[1] else f"{step[0]}/{name}": values
        for step, of_step in scores.items()
        for name, values in of_step.items()
    }
    return section, arrays


def _description(model: Network) -> Description | None:
    """The description of the model that gives the quality, if it has one."""
    source = model.quality if isinstance(model, CombinedEmbedder) else model
    return getattr(source, "description", None)


def _threshold(description: Description | None, score: str, unchanged: Values) -> KeptThreshold:
    """The model's own threshold of its quality; of others, that which keeps as many of the unchanged images."""
    if score == "quality" and description is not None:
        for share, threshold in description.thresholds.items():
            if math.isclose(float(share), KEEP):
                return KeptThreshold(value=threshold.quality, calibrated=True)
    return KeptThreshold(value=float(np.percentile(unchanged, 100 * (1 - KEEP))), calibrated=False)


def _score(
    steps: Sequence[Values], threshold: KeptThreshold, description: Description | None
) -> CorruptedScore:
    unchanged, *changed = steps
    flags = np.repeat([True, False], len(unchanged))
    percentiles = _percentiles(steps)
    calibration = description.calibration if description and threshold.calibrated else None

    def percentile(value: float) -> float:
        found = None if calibration is None else calibration.percentile(value)
        return float(np.mean(unchanged < value) * 100) if found is None else found

    return CorruptedScore(
        **dict(percentiles),
        auroc=[auroc(np.concatenate([unchanged, values]), flags) for values in changed],
        kept=[float(np.mean(values >= threshold.value)) for values in steps],
        percentile=[percentile(median) for median in percentiles.p50],
    )


def _rank_correlations(
    measured: _Measured, steps: Sequence[Step], scores: Mapping[Step, Mapping[str, Values]], to: Step
) -> tuple[dict[str, RankCorrelations], dict[str, RankCorrelations]]:
    """How each score follows what a change costs recognizers, and how these follow each other."""
    names, labels = list(scores[CLEAN]), list(measured.recognizers)
    if not labels or len(steps) < 2:
        return {}, {}
    values = np.array([[scores[step][name] for step in steps] for name in names], dtype=np.float64)
    cosines = np.array([measured.cosines(step, to) for step in steps]).swapaxes(0, 1)
    held_out = np.array([CHANGES[kind].held_out for kind, _ in steps])
    groups = {"all": np.full(len(steps), True), "trained": ~held_out, "held_out": held_out}
    groups = {group: inside for group, inside in groups.items() if inside.sum() > 1}
    random = np.random.default_rng(measured.faces.seed)
    every = np.concatenate([values, cosines])
    draws = [np.arange(len(measured.faces))]
    draws += [random.integers(0, len(measured.faces), len(measured.faces)) for _ in range(REPLICATES)]
    # (1 + replicates, scores and recognizers, steps)
    medians = np.array([np.median(every[..., drawn], axis=-1) for drawn in draws])
    of_scores, of_recognizers = medians[:, : len(names)], medians[:, len(names) :]

    def correlations(first: Values, second: Values) -> RankCorrelations:
        found = {}
        for group, inside in groups.items():
            value, *replicates = (
                spearman(*pair) for pair in zip(first[:, inside], second[:, inside], strict=True)
            )
            found[group] = RankCorrelation(value=value, ci95=percentile_interval(np.array(replicates)))
        return RankCorrelations(**found)

    mean = of_recognizers.mean(axis=1)
    agreement = {
        label: correlations(of_recognizers[:, at], np.delete(of_recognizers, at, axis=1).mean(axis=1))
        for at, label in enumerate(labels)
        if len(labels) > 1
    }
    return {name: correlations(of_scores[:, at], mean) for at, name in enumerate(names)}, agreement


def _by_recognizer(measured: _Measured, cosines: Values) -> dict[str, Percentiles]:
    """Percentiles of ``(R, S, N)`` cosines by recognizer."""
    return {label: _percentiles(steps) for label, steps in zip(measured.recognizers, cosines, strict=True)}


def _percentiles(steps: Sequence[Values] | Values) -> Percentiles:
    p5, p50, p95 = ([float(np.percentile(values, at)) for values in steps] for at in PERCENTILES)
    return Percentiles(p5=p5, p50=p50, p95=p95)
