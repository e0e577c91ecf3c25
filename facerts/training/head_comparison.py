"""Is a new head better than the quality that ships? Error versus reject on people that no training step has seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from facerts.datasets import Source, Subset
from facerts.datasets.changed import degraded_at_random
from facerts.datasets.fingerprint import hash_images
from facerts.embedding import OnnxEmbedder
from facerts.embedding.embed import embed_source, score_source
from facerts.embedding.onnx_embedder import OnnxQuality
from facerts.embedding.output_cache import Arrays, OutputCache
from facerts.metrics.all_pairs import compare_all
from facerts.metrics.error_versus_reject import error_versus_reject
from facerts.metrics.intervals import Interval
from facerts.training.posthoc_features import Features, Floats, features_of
from facerts.training.validation import FMRS, lowest_fmr

HEAD, NORM = "head", "norm"
END = 0.3
# With fewer, a single pair would decide about the threshold, or about the areas.
MIN_ACCEPTED = MIN_ERRORS = 10
REPLICATES = 300


@dataclass(frozen=True)
class MeasuredArea:
    """A normalized partial area or a difference of two; see ``error_versus_reject.pauc``.

    Attributes:
        value: the area up to 30% rejected: 1 for a random order, lower is better.
        ci95: 95% interval of a bootstrap over people; None if it is undefined.
    """

    value: float
    ci95: Interval | None

    def shown(self, form: str = ".2f") -> str:
        """The value with its interval, each in this format."""
        interval = "" if self.ci95 is None else f" [{self.ci95[0]:{form}}, {self.ci95[1]:{form}}]"
        return f"{self.value:{form}}{interval}"


@dataclass(frozen=True)
class HeadComparison:
    """A head beside the reference's quality, on the same pairs of the same recognizer.

    Attributes:
        people: number of people, who were used neither to train the head nor to stop its training.
        fmr: false match rate of the threshold, which is chosen on the clean crops.
        fnmr: false non-match rate without rejection.
        errors: number of genuine pairs below the threshold.
        reference: name of the model whose quality is the reference.
        areas: by quality: "head", the reference and, if the recognizer gives it, "norm"; empty with too few errors.
        difference: area of the head minus that of the reference, paired; negative if the head is better.
    """

    crops: Literal["clean", "degraded"]
    people: int
    images: int
    fmr: float
    fnmr: float
    errors: int
    reference: str
    areas: dict[str, MeasuredArea]
    difference: MeasuredArea | None

    @property
    def better(self) -> Literal["yes", "no", "unclear", "not measured"]:
        """Whether the head is better than the reference; unclear if the interval of the difference contains 0."""
        if self.difference is None or self.difference.ci95 is None:
            return "not measured"
        low, high = self.difference.ci95
        return "yes" if high < 0 else "no" if low > 0 else "unclear"

    @property
    def verdict(self) -> str:
        """The answer with its numbers."""
        if self.difference is None:
            return f"{self.better}: only {self.errors} genuine pairs are below the threshold"
        others = ", ".join(f"{name} {area.shown()}" for name, area in self.areas.items() if name != HEAD)
        return (
            f"{self.better} (area {self.areas[HEAD].shown()}, {others}; difference {self.difference.shown('+.2f')}; "
            f"at FMR {self.fmr:g})"
        )


def measure_head(
    quality_of: Callable[[Features], Floats],
    features: Features,
    source: Source,
    measured: NDArray[np.bool_],
    embedder: OnnxEmbedder,
    reference: OnnxQuality,
    cache: OutputCache,
    *,
    has_norm: bool,
    seed: int,
) -> list[HeadComparison]:
    """Compare a head with a reference's quality, on clean and on degraded crops.

    Args:
        quality_of: ``(M,)`` quality of the head for the features of M images.
        features: features of all images, first views first, from the embedder.
        source: the N images, with identities.
        measured: ``(N,)`` the images to measure on, which the head has never seen; at least two people.
        has_norm: whether the embedder gives the norm of its embedding, another quality to compare with.
    """
    assert source.labels is not None
    rows = np.flatnonzero(measured)
    labels, clean = source.labels[rows], Subset(source, rows)
    degraded = degraded_at_random(clean, seed)

    def compute() -> Arrays:
        scores = [score_source(each, {"quality": reference})["quality"] for each in (clean, degraded)]
        outputs = features_of(embed_source(embedder, degraded, flip=False))
        return {**outputs._asdict(), "clean_quality": scores[0], "degraded_quality": scores[1]}

    key = {
        "model": embedder.identity,
        "reference": reference.identity,
        "images": hash_images(clean).sha256,
        "degraded": seed,
    }
    stored = dict(cache.arrays(key, compute))
    theirs = {"clean": stored.pop("clean_quality"), "degraded": stored.pop("degraded_quality")}
    parts = {"clean": Features(*(values[rows] for values in features)), "degraded": Features(**stored)}
    pairs = {name: compare_all(part.unit, labels) for name, part in parts.items()}
    fmr = lowest_fmr(pairs["clean"], MIN_ACCEPTED) or max(FMRS)
    comparisons = []
    for name in ("clean", "degraded"):
        qualities = {HEAD: quality_of(parts[name]), reference.name: theirs[name]}
        if has_norm:
            qualities[NORM] = parts[name].norm
        thresholds_on = None if name == "clean" else pairs["clean"]
        result = error_versus_reject(
            pairs[name], qualities, [fmr], replicates=REPLICATES, seed=seed, thresholds_on=thresholds_on
        )[fmr]
        errors, fnmr = round(result.fnmr.value * result.genuine), result.fnmr.value
        areas, difference = {}, None
        if errors >= MIN_ERRORS:
            found = {label: result.by[label].area[END] for label in qualities}
            areas = {label: MeasuredArea(each.value, each.interval()) for label, each in found.items()}
            paired = found[HEAD].minus(found[reference.name])
            difference = MeasuredArea(paired.value, paired.interval())
        people = len(np.unique(labels))
        comparisons.append(
            HeadComparison(name, people, len(rows), fmr, fnmr, errors, reference.name, areas, difference)
        )
    return comparisons
