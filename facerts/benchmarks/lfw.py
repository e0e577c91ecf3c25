"""The cross-quality, cross-age and cross-pose variants of Labeled Faces in the Wild.

Knoche et al., "Cross-Quality LFW", FG 2021, degrade some of the images and pair good images with poor ones;
xqlfw_pairs.txt is written as LFW's pairs.txt.

Zheng et al., "Cross-Age LFW", arXiv 1708.08197, 2017; Zheng and Deng, "Cross-Pose LFW", 2018, pair LFW's people across
ages or poses. Their lists have two lines for each pair, "NAME_0001.jpg FOLD"; the fold is 0 for an impostor pair. Some
copies have no folds and say 1 for every genuine pair.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from facerts.benchmarks.list_rows import numbered_lines
from facerts.benchmarks.listed import FOLDS, build_benchmark, count_notes, equal_folds, load_pair_list
from facerts.benchmarks.pair_benchmark import PairBenchmark
from facerts.errors import DataError

XQLFW_PAIRS = "xqlfw_pairs.txt"
# Aligned crops are preferred to photos.
XQLFW_IMAGES = ("xqlfw_aligned_112", "lfw_original_imgs_min_qual0.85variant11")
CALFW_PAIRS, CPLFW_PAIRS = "pairs_CALFW.txt", "pairs_CPLFW.txt"
IMAGES = "aligned images"
PUBLISHED_PAIRS = 6000
_LINE = re.compile(r"(?P<image>(?P<subject>.+)_\d+\.\w+)\s+(?P<fold>\d+)")


def load_xqlfw(folder: str | Path) -> PairBenchmark:
    """Load cross-quality LFW: aligned crops if there are any, or else photos."""
    folder = Path(folder)
    images = next((name for name in XQLFW_IMAGES if (folder / name).is_dir()), None)
    if images is None:
        raise DataError(
            f"{folder}: neither {XQLFW_IMAGES[0]} nor {XQLFW_IMAGES[1]}, the images of {XQLFW_PAIRS}"
        )
    return load_pair_list(folder / XQLFW_PAIRS, folder / images, name="xqlfw")


def load_calfw(folder: str | Path) -> PairBenchmark:
    """Cross-age LFW."""
    return _load_ages_or_poses(Path(folder), "calfw", CALFW_PAIRS)


def load_cplfw(folder: str | Path) -> PairBenchmark:
    """Cross-pose LFW."""
    return _load_ages_or_poses(Path(folder), "cplfw", CPLFW_PAIRS)


def _load_ages_or_poses(folder: Path, name: str, listing: str) -> PairBenchmark:
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
