"""Benchmarks of pairs in the layouts of their authors: variants of Labeled Faces in the Wild, CFP and AgeDB; .bin.

Knoche et al., "Cross-Quality LFW", FG 2021, degrade some of the images and pair good images with poor ones;
xqlfw_pairs.txt is written as LFW's pairs.txt.

Zheng et al., "Cross-Age LFW", arXiv 1708.08197, 2017; Zheng and Deng, "Cross-Pose LFW", 2018, pair LFW's people across
ages or poses. Their lists have two lines for each pair, "NAME_0001.jpg FOLD"; the fold is 0 for an impostor pair. Some
copies have no folds and say 1 for every genuine pair.

Sengupta et al., "Frontal to profile face verification in the wild" (CFP), WACV 2016: ``Protocol/Pair_list_F.txt`` and
``Pair_list_P.txt`` number the frontal and the profile images; ``Protocol/Split/FF/01/same.txt`` lists pairs of these
numbers, fold by fold. Each person has a folder in ``Data/Images``.

Moschoglou et al., "AgeDB: the first manually collected, in-the-wild age database", CVPRW 2017: an image is named
``16_JohnDoe_45_m.jpg``: number, person, age, sex. The list of pairs, of images that are thirty years apart, comes from
the authors' protocol.
"""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path

import numpy as np

from facerts.benchmarks.list_rows import numbered_lines
from facerts.benchmarks.listed import (
    FOLDS,
    LIST_SUFFIXES,
    build_benchmark,
    count_notes,
    equal_folds,
    load_pair_list,
)
from facerts.benchmarks.pair_benchmark import PairBenchmark
from facerts.datasets.bin_set import BinSet, write_bin
from facerts.datasets.folder import is_image_name
from facerts.errors import DataError

XQLFW_PAIRS = "xqlfw_pairs.txt"
# Aligned crops are preferred to photos.
XQLFW_IMAGES = ("xqlfw_aligned_112", "lfw_original_imgs_min_qual0.85variant11")
CALFW_PAIRS, CPLFW_PAIRS = "pairs_CALFW.txt", "pairs_CPLFW.txt"
LFW_IMAGES = "aligned images"
LFW_PUBLISHED = 6000
_LFW_LINE = re.compile(r"(?P<image>(?P<subject>.+)_\d+\.\w+)\s+(?P<fold>\d+)")

FRONTAL, PROFILE = "Protocol/Pair_list_F.txt", "Protocol/Pair_list_P.txt"
CFP_PUBLISHED = 7000

AGEDB = "agedb_30"
_AGEDB_STEM = re.compile(r"\d+_(?P<person>.+)_\d{1,3}_[mf]", re.IGNORECASE)


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
        where, match = f"{folder / listing}, line {row}", _LFW_LINE.fullmatch(line)
        if match is None or int(match["fold"]) > FOLDS:
            raise DataError(f"{where}: {line!r} is not NAME_0001.jpg and a fold from 0 to {FOLDS}")
        key, label = f"{LFW_IMAGES}/{match['image']}", int(match["fold"])
        if len(keys) % 2 and label != labels[-1]:
            raise DataError(f"{where}: fold {label}, but the pair's first line has {labels[-1]}")
        subjects[key] = match["subject"]
        keys.append(key)
        labels.append(label)
    if len(keys) % 2:
        raise DataError(f"{folder / listing}: {len(keys)} lines, but a pair has two; the list is truncated")
    fold_labels = np.array(labels[::2], dtype=np.int64)
    genuine = fold_labels > 0
    notes = list(count_notes(len(fold_labels), LFW_PUBLISHED, "pairs"))
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


def load_cfp(folder: str | Path) -> list[PairBenchmark]:
    """CFP as its authors distribute it: ``cfp_ff`` and ``cfp_fp``."""
    folder = Path(folder)
    frontal, profile = _numbered_images(folder, FRONTAL), _numbered_images(folder, PROFILE)
    return [
        _load_cfp_part(folder, "cfp_ff", "FF", (frontal, frontal), (FRONTAL, FRONTAL)),
        _load_cfp_part(folder, "cfp_fp", "FP", (frontal, profile), (FRONTAL, PROFILE)),
    ]


def _load_cfp_part(
    folder: Path, name: str, part: str, images: tuple[dict[str, str], ...], lists: tuple[str, str]
) -> PairBenchmark:
    pairs: list[tuple[str, str]] = []
    same: list[bool] = []
    folds: list[int] = []
    split = f"Protocol/Split/{part}"
    for fold in range(FOLDS):
        for file, flag in (("same.txt", True), ("diff.txt", False)):
            listing = folder / split / f"{fold + 1:02d}" / file
            for row, line in numbered_lines(listing):
                numbers = [number.strip() for number in line.split(",")]
                if len(numbers) != 2:
                    raise DataError(
                        f"{listing}, line {row}: {line!r} is not two numbers separated by a comma"
                    )
                for number, known, source in zip(numbers, images, lists, strict=True):
                    if number not in known:
                        raise DataError(f"{listing}, line {row}: {source} has no image {number!r}")
                pairs.append((images[0][numbers[0]], images[1][numbers[1]]))
                same.append(flag)
                folds.append(fold)
    return build_benchmark(
        name,
        folder,
        pairs,
        same,
        folds,
        listing=split,
        subjects={key: key.split("/")[-3] for pair in pairs for key in pair},
        notes=count_notes(len(pairs), CFP_PUBLISHED, "pairs"),
    )


def _numbered_images(folder: Path, name: str) -> dict[str, str]:
    listing = folder / name
    images: dict[str, str] = {}
    for row, line in numbered_lines(listing):
        number, *path = line.split(maxsplit=1)
        # Paths are relative to the folder of the list.
        key = posixpath.normpath(posixpath.join(posixpath.dirname(name), *path))
        if not number.isdigit() or key.count("/") < 2 or key.startswith(("/", "..")):
            raise DataError(
                f"{listing}, line {row}: {line!r} is not a number and a path like ../Data/Images/001/frontal/01.jpg"
            )
        if number in images:
            raise DataError(f"{listing}, line {row}: the number {number} is listed twice")
        images[number] = key
    return images


def is_agedb(folder: Path) -> bool:
    """Whether the folder contains an image named like AgeDB's."""
    with os.scandir(folder) as entries:
        return any(
            is_image_name(entry.name) and _AGEDB_STEM.fullmatch(Path(entry.name).stem) for entry in entries
        )


def load_agedb(folder: Path) -> PairBenchmark:
    """AgeDB's pairs, from the only list in the folder (.txt, .csv or .tsv, see ``load_pair_list``)."""
    lists = [name for name in sorted(os.listdir(folder)) if Path(name).suffix.lower() in LIST_SUFFIXES]
    if len(lists) != 1:
        found = f"{len(lists)} lists ({', '.join(lists)})" if lists else "no list of pairs"
        raise DataError(
            f"{folder}: AgeDB's images with {found}; put the list of the 30-year protocol beside them, or use "
            f"{AGEDB}.bin"
        )

    def person(key: str) -> str:
        match = _AGEDB_STEM.fullmatch(Path(key).stem)
        if match is None:
            raise DataError(
                f"{folder / key}: AgeDB's images have names like 16_JohnDoe_45_m.jpg; correct the list"
            )
        return match["person"]

    return load_pair_list(folder / lists[0], name=AGEDB, subject_of=person)


def load_bin(path: str | Path) -> PairBenchmark:
    """Load a .bin set as a benchmark: pair i is images 2i and 2i + 1; ten equal runs of pairs are the folds."""
    images = BinSet(Path(path))
    count = len(images.same)
    pairs = np.arange(2 * count, dtype=np.int64).reshape(-1, 2)
    return PairBenchmark(images.name, images, pairs, images.same, equal_folds(count, str(path)))


def save_bin(benchmark: PairBenchmark, path: str | Path) -> None:
    """Write a pair benchmark as a .bin set: the encoded images, pair by pair, in the order of the folds."""
    order = np.argsort(benchmark.folds, kind="stable")
    runs = np.bincount(benchmark.folds)
    if len(runs) != FOLDS or runs.min() != runs.max():
        raise DataError(
            f"{benchmark.name}: a .bin set must have {FOLDS} equal folds, but this benchmark has {runs.tolist()}"
        )
    pairs = benchmark.pairs[order]
    images = (benchmark.images.read(int(index)) for index in pairs.reshape(-1))
    write_bin(Path(path), images, benchmark.same[order].tolist())
