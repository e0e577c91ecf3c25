"""The corruption benchmark: what becomes of scores and similarities as faces are changed with rising severity."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from facerts.datasets.fingerprint import ImageHashes, hash_images
from facerts.datasets.source import Source
from facerts.embedding.aligned import alignment_notes
from facerts.embedding.embed import AnyEmbedder, concatenate
from facerts.embedding.embedding_table import EmbeddingTable
from facerts.embedding.onnx_embedder import OnnxModel, outputs_of_crops
from facerts.embedding.outputs import Embedder, FaceOutputs
from facerts.errors import Error
from facerts.evaluation.baselines import crop_scores, image_scores, quality_description
from facerts.evaluation.evaluation_options import (
    DEFAULT_OPTIONS,
    EvaluationOptions,
    check_names,
    kept_outputs,
    people_of,
)
from facerts.evaluation.measure import Evaluation, Format, Measure, Plot, Series
from facerts.evaluation.result import Result
from facerts.evaluation.result_folder import Arrays, ResultFolder
from facerts.evaluation.wording import percent, score_in_words
from facerts.images import changes
from facerts.images.changes import CHANGES, apply_change
from facerts.images.transforms import albumentations
from facerts.io.files import sha256_file
from facerts.io.progress import track
from facerts.metrics.intervals import percentile_interval
from facerts.metrics.reliability import spearman

# Blur reaches radius 5, so that its steps are the radii 1 to 5 of a crop of 112 pixels.
SEVERITIES = (0.2, 0.4, 0.6, 0.8, 1.0)
# The lowest severity that tables show besides 1.
SHOWN_SEVERITY = 0.5
IMAGES = 500
KEEP = 0.95
REPLICATES = 200
OVERALL = "Rank correlation ρ with the cosine, and shares of the images"

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
        folder.add("corruptions", source.name, section, arrays)
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
            found = concatenate([outputs_of_crops(network, crops[i : i + size]) for i in range(0, len(crops), size)])
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


class _Score(NamedTuple):
    """A score of the faces: its threshold, and how a value of it compares with those of faces."""

    name: str
    threshold: float
    percentile: Callable[[float], float]


# What a kind's columns show, and their formats.
COLUMNS: Mapping[str, Format] = {
    "cosine": ".2f",
    "percentile": ".0f",
    "kept": "whole share",
    "not a face": "whole share",
}


def _section(measured: _Measured, kinds: Sequence[str], severities: Sequence[float]) -> tuple[Evaluation, Arrays]:
    """A result's section ``corruptions[NAME]`` and its arrays."""
    faces = measured.faces
    steps = [(kind, severity) for kind in kinds for severity in severities]
    scores = {step: image_scores(measured.outputs("", step)) for step in (CLEAN, *steps)}
    scales = [_scale(measured, name, values) for name, values in scores[CLEAN].items()]
    to = CLEAN if faces.others is None else OTHER
    shown = [severities[bisect_left(severities, SHOWN_SEVERITY)], severities[-1]]
    by_kind = {scale.name: _by_kind(measured, kinds, severities, scale, scores, to) for scale in scales}
    first = by_kind[scales[0].name]
    measures = [*_correlations(measured, steps, scores, to)]
    for scale in scales:
        found = by_kind[scale.name].values()
        means = {"kept": np.mean([kind["kept"] for kind in found], axis=0)}
        non_faces = [kind["not a face"] for kind in found if "not a face" in kind]
        if non_faces and scale is scales[0]:
            means["not a face"] = np.mean(non_faces, axis=0)
        measures += [
            Measure(
                name=f"{name} at {severity:g}",
                of={"score": scale.name},
                table=OVERALL,
                value=float(values[1 + severities.index(severity)]),
                format="whole share",
                threshold=scale.threshold,
            )
            for name, values in means.items()
            for severity in shown
        ]
    # From the least to the most that a change costs: percentiles and what is kept should fall likewise.
    table = f"Kinds of change, by {scales[0].name}"
    for kind in sorted(kinds, key=lambda name: -first[name]["cosine"][-1] if measured.recognizers else 0):
        measures += [
            Measure(
                name=f"{name} at {severity:g}",
                of={"kind": _title(kind)},
                table=table,
                value=float(values[1 + severities.index(severity)]),
                format=COLUMNS[name],
            )
            for name, values in first[kind].items()
            for severity in shown
        ]
    arrays = {
        f"{step[0]}/{step[1]:g}/{name}" if step[1] else f"{step[0]}/{name}": values
        for step, of_step in scores.items()
        for name, values in of_step.items()
    }
    if measured.recognizers:
        for kind in kinds:
            costs = _costs(measured, [CLEAN, *((kind, severity) for severity in severities)], CLEAN)
            arrays[f"{kind}/cosine to unchanged"] = costs
    plots, drawn = _plots(first, [0.0, *severities], scales[0].name)
    compared = "the unchanged image" if faces.others is None else "another image of the person"
    section = Evaluation(
        title="Corruptions: quality of changed faces",
        images=len(faces),
        interval="bootstrap over the faces",
        text=f"{len(faces):,} faces, changed with severities from 0 (unchanged) to 1. Cosine: median, to {compared}, "
        f"mean over {', '.join(measured.recognizers) or 'no recognizer'}. Percentile: of the median {scales[0].name}. "
        "Kept: at or above the threshold that keeps 95% of the model's calibration faces, or else of the unchanged "
        "images. Held out: kinds that no model that ships is trained on. In brackets: 95% intervals over the faces.",
        findings=[corruption_finding(measures, scales[0].name, len(steps), len(faces))],
        settings={
            "seed": faces.seed,
            "people": faces.others is not None,
            **{f"SHA-256 of {label}": measured.networks[at].sha256 for label, at in measured.recognizers.items()},
        },
        data_sha256={faces.source.name: faces.sha256},
        measures=measures,
        folded=[table],
        plots=plots,
    )
    return section, {**arrays, **drawn}


def _title(kind: str) -> str:
    return kind.replace("_", " ") + " (held out)" * CHANGES[kind].held_out


def _scale(measured: _Measured, name: str, unchanged: Values) -> _Score:
    """The model's own threshold and percentiles of its quality; of others, those of the unchanged images."""

    def among_unchanged(value: float) -> float:
        return float(np.mean(unchanged < value) * 100)

    description = quality_description(measured.networks[""])
    kept = {} if description is None or name != "quality" else description.thresholds
    own = next((one.quality for share, one in kept.items() if math.isclose(float(share), KEEP)), None)
    if own is None:
        return _Score(name, float(np.percentile(unchanged, 100 * (1 - KEEP))), among_unchanged)
    calibration = description.calibration if description else None

    def percentile(value: float) -> float:
        found = None if calibration is None else calibration.percentile(value)
        return among_unchanged(value) if found is None else found

    return _Score(name, own, percentile)


def _by_kind(
    measured: _Measured,
    kinds: Sequence[str],
    severities: Sequence[float],
    scale: _Score,
    scores: Mapping[Step, Mapping[str, Values]],
    to: Step,
) -> dict[str, dict[str, Values]]:
    """What becomes of the faces at each severity of a kind of change, from none, by the names of ``COLUMNS``."""
    found = {}
    for kind in kinds:
        steps = [CLEAN, *((kind, severity) for severity in severities)]
        values = [scores[step][scale.name] for step in steps]
        non_faces = [flags for step in steps if (flags := measured.outputs("", step).not_a_face) is not None]
        found[kind] = {"cosine": _costs(measured, steps, to)} if measured.recognizers else {}
        found[kind]["percentile"] = np.array([scale.percentile(float(np.percentile(each, 50))) for each in values])
        found[kind]["kept"] = np.array([np.mean(each >= scale.threshold) for each in values])
        if non_faces:
            found[kind]["not a face"] = np.array([np.mean(flags) for flags in non_faces])
    return found


def _costs(measured: _Measured, steps: Sequence[Step], to: Step) -> Values:
    """Median cosine after each step, the mean over the recognizers."""
    return np.array([np.median(measured.cosines(step, to), axis=-1).mean() for step in steps])


def _plots(by_kind: Mapping[str, Mapping[str, Values]], severity: list[float], score: str) -> tuple[list[Plot], Arrays]:
    """Every change by its cost and its score, and what becomes of faces by severity of each kind."""
    arrays: Arrays = {"severity": np.array(severity)}
    families = dict.fromkeys(CHANGES[kind].family for kind in by_kind)
    points: dict[tuple[str, bool], list[str]] = {}
    panels: dict[str, dict[str, list[Series]]] = {family: {} for family in families}
    for kind, found in by_kind.items():
        change = CHANGES[kind]
        panels[change.family][_title(kind)] = series = []
        for name, values in found.items():
            is_percentile = name == "percentile"
            label = f"percentile of {score} / 100" if is_percentile else name
            y, gray = f"{kind}/{label}", name == "cosine"
            arrays[y] = values / 100 if is_percentile else values
            series.append(Series(label=label, x=["severity"], y=y, reference=gray, alone=not is_percentile))
        if "cosine" in found:
            # Without the unchanged images, which are the same for all kinds.
            arrays |= {f"{kind}/x": found["cosine"][1:], f"{kind}/y": found["percentile"][1:]}
            points.setdefault((change.family, change.held_out), []).append(kind)
    shown = [
        Plot(
            name=family,
            caption=f"{family.capitalize()} changes by severity.",
            x="severity",
            y="",
            panels=of_family,
            folded=True,
            x_limits=(0.0, 1.0),
            y_limits=(0.0, 1.0),
        )
        for family, of_family in panels.items()
    ]
    if not points:
        return shown, arrays
    marks = []
    for (family, held_out), of_family in points.items():
        label = f"{family}, held out" if held_out else family
        key = f"points/{label}"
        for axis in "xy":
            arrays[f"{key}/{axis}"] = np.concatenate([arrays.pop(f"{kind}/{axis}") for kind in of_family])
        marks.append(Series(label=label, x=[f"{key}/x"], y=f"{key}/y", mark="hollow points" if held_out else "points"))
    changes_by_cost = Plot(
        name="changes",
        caption=f"A point for each kind and severity: median cosine against percentile of the median {score}. The "
        "closer to one rising line, the better the score says what a change costs.",
        x="median cosine",
        y="percentile",
        panels={"": marks},
        together=False,
    )
    return [changes_by_cost, *shown], arrays


def corruption_finding(measures: Sequence[Measure], score: str, changes: int, faces: int) -> str:
    own = {one.name: one for one in measures if one.table == OVERALL and one.of == {"score": score}}
    found = own.get("ρ, all")
    if found is None or found.value is None or found.ci95 is None:
        kept = next(one for name, one in reversed(own.items()) if name.startswith("kept"))
        faces_kept = percent(kept.value, 0)
        return f"At full severity, its threshold of {score_in_words(score)} keeps {faces_kept} of the faces."
    low, high = found.ci95
    held_out = own.get("ρ, held out")
    more = f", {held_out.value:.2f} over kinds held out" if held_out else ""
    return (
        f"Over {changes} changes of {faces:,} faces, its {score_in_words(score)} follows the cosine with rank "
        f"correlation {found.value:.2f} [{low:.2f}, {high:.2f}]{more}."
    )


def _correlations(
    measured: _Measured, steps: Sequence[Step], scores: Mapping[Step, Mapping[str, Values]], to: Step
) -> Iterator[Measure]:
    """How each score follows what a change costs recognizers, and how each of these follows the mean of the others."""
    names, labels = list(scores[CLEAN]), list(measured.recognizers)
    if not labels or len(steps) < 2:
        return
    values = np.array([[scores[step][name] for step in steps] for name in names], dtype=np.float64)
    cosines = np.array([measured.cosines(step, to) for step in steps]).swapaxes(0, 1)
    held_out = np.array([CHANGES[kind].held_out for kind, _ in steps])
    groups = {"all": np.full(len(steps), True), "trained": ~held_out, "held out": held_out}
    random = np.random.default_rng(measured.faces.seed)
    every = np.concatenate([values, cosines])
    draws = [np.arange(len(measured.faces))]
    draws += [random.integers(0, len(measured.faces), len(measured.faces)) for _ in range(REPLICATES)]
    # (1 + replicates, scores and recognizers, steps)
    medians = np.array([np.median(every[..., drawn], axis=-1) for drawn in draws])
    of_recognizers = medians[:, len(names) :]
    compared = {name: (medians[:, at], of_recognizers.mean(axis=1)) for at, name in enumerate(names)}
    if len(labels) > 1:
        for at, label in enumerate(labels):
            others = np.delete(of_recognizers, at, axis=1).mean(axis=1)
            compared[f"cosine of {label}"] = of_recognizers[:, at], others
    for score, (first, second) in compared.items():
        for group, inside in groups.items():
            if inside.sum() < 2:
                continue
            value, *replicates = (spearman(*pair) for pair in zip(first[:, inside], second[:, inside], strict=True))
            yield Measure(
                name=f"ρ, {group}",
                of={"score": score},
                table=OVERALL,
                value=value,
                ci95=percentile_interval(np.array(replicates)),
                n=int(inside.sum()),
                better="higher",
                format=".2f",
            )
