"""Cross-age and cross-pose LFW: LFW's people, paired across ages or poses.

Zheng et al., "Cross-Age LFW", arXiv 1708.08197, 2017; Zheng and Deng, "Cross-Pose LFW", 2018. The list has two lines
for each pair, "NAME_0001.jpg FOLD"; the fold is 0 for an impostor pair. Some copies of the list have no folds and say 1
for every genuine pair.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from facerts.benchmarks.listed import FOLDS, build_benchmark, count_notes, equal_folds, numbered_lines
from facerts.benchmarks.pair_benchmark import PairBenchmark
from facerts.errors import DataError

CALFW_PAIRS, CPLFW_PAIRS = "pairs_CALFW.txt", "pairs_CPLFW.txt"
IMAGES = "aligned images"
PUBLISHED_PAIRS = 6000

_LINE = re.compile(r"(?P<image>(?P<subject>.+)_\d+\.\w+)\s+(?P<fold>\d+)")


def load_calfw(folder: str | Path) -> PairBenchmark:
    """Cross-age LFW."""
    return _load(Path(folder), "calfw", CALFW_PAIRS)


def load_cplfw(folder: str | Path) -> PairBenchmark:
    """Cross-pose LFW."""
    return _load(Path(folder), "cplfw", CPLFW_PAIRS)


def _load(folder: Path, name: str, listing: str) -> PairBenchmark:
    subjects: dict[str, str] = {}
    keys: list[str] = []
    labels: list[int] = []
    for row, line in numbered_lines(folder / listing):
        where, match = f"{folder / listing}, line {row}", _LINE.fullmatch(line)
        if match is None or int(match["fold"]) > FOLDS:
            raise DataError(f"{where}: {line!r} is not NAME_0001.jpg and a fold from 0 to {FOLDS}")
        key, label = f"{IMAGES}/{match['image']}", int(match["fold"])
        if len(keys) % 2 and label != labels[-1]:
            raise DataError(f"{where}: fold {label}, but the pair's first line has {labels[-1]}")
        subjects[key] = match["subject"]
        keys.append(key)
        labels.append(label)
    if len(keys) % 2:
        raise DataError(f"{folder / listing}: {len(keys)} lines, but a pair has two; the list is truncated")
    fold_labels = np.array(labels[::2], dtype=np.int64)
    genuine = fold_labels > 0
    notes = list(count_notes(len(fold_labels), PUBLISHED_PAIRS, "pairs"))
    folds = fold_labels - 1
    folds[~genuine] = equal_folds(int((~genuine).sum()), f"{folder / listing}, impostors")
    if (fold_labels[genuine] == 1).all():
        folds[genuine] = equal_folds(int(genuine.sum()), f"{folder / listing}, genuine")
        notes.append(
            f"{listing} has no folds, so they are ten equal runs of genuine and of impostor pairs in order."
        )
    return build_benchmark(
        name,
        folder,
        list(zip(keys[::2], keys[1::2], strict=True)),
        genuine.tolist(),
        folds,
        listing=listing,
        subjects=subjects,
        notes=notes,
    )
