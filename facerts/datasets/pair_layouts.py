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
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from facerts.datasets.bin_set import BinSet, write_bin
from facerts.datasets.folder import is_image_name
from facerts.datasets.listed_pairs import (
    PAIR_LIST_SUFFIXES,
    build_benchmark,
    equal_folds,
    load_pair_list,
    read_labeled,
)
from facerts.datasets.pair_benchmark import FOLDS, PairBenchmark
from facerts.datasets.pair_rows import ListedPair, numbered_lines
from facerts.errors import DataError

XQLFW_PAIRS = "xqlfw_pairs.txt"
# Aligned crops are preferred to photos.
XQLFW_IMAGES = ("xqlfw_aligned_112", "lfw_original_imgs_min_qual0.85variant11")
CALFW_PAIRS, CPLFW_PAIRS = "pairs_CALFW.txt", "pairs_CPLFW.txt"
_CROSS_LINE = re.compile(r"(?P<image>(?P<subject>.+)_\d+\.\w+)\s+(?P<fold>\d+)")
FRONTAL, PROFILE = "Protocol/Pair_list_F.txt", "Protocol/Pair_list_P.txt"
_AGEDB_STEM = re.compile(r"\d+_(?P<person>.+)_\d{1,3}_[mf]", re.IGNORECASE)
# Published numbers of pairs.
CROSS_PAIRS, CFP_PAIRS = 6000, 7000


def load_xqlfw(folder: Path) -> PairBenchmark:
    """Load cross-quality LFW: aligned crops if there are any, or else photos."""
    images = next((name for name in XQLFW_IMAGES if (folder / name).is_dir()), None)
    if images is None:
        raise DataError(f"{folder}: neither {XQLFW_IMAGES[0]} nor {XQLFW_IMAGES[1]}, the images of {XQLFW_PAIRS}")
    return load_pair_list(folder / XQLFW_PAIRS, folder / images, name="xqlfw")


def load_cross_lfw(listing: Path) -> PairBenchmark:
    """Load cross-age or cross-pose LFW by its list."""
    lines: list[re.Match[str]] = []
    for number, line in numbered_lines(listing):
        where, match = f"{listing}, line {number}", _CROSS_LINE.fullmatch(line)
        if match is None or int(match["fold"]) > FOLDS:
            raise DataError(f"{where}: {line!r} is not NAME_0001.jpg and a fold from 0 to {FOLDS}")
        if len(lines) % 2 and match["fold"] != lines[-1]["fold"]:
            raise DataError(f"{where}: fold {match['fold']}, but the pair's first line has {lines[-1]['fold']}")
        lines.append(match)
    if len(lines) % 2:
        raise DataError(f"{listing}: {len(lines)} lines, but a pair has two; the list is truncated")
    rows = []
    for first, second in zip(lines[::2], lines[1::2], strict=True):
        one, other = (f"aligned images/{line['image']}" for line in (first, second))
        people, fold = (first["subject"], second["subject"]), int(first["fold"])
        rows.append(ListedPair(0, one, other, fold > 0, fold=fold - 1 if fold else None, people=people))
    notes = []
    if not any(row.fold for row in rows):
        rows = [replace(row, fold=None) for row in rows]
        notes = [f"{listing.name} has no folds, so they are ten equal runs of genuine and of impostor pairs in order."]
    name = listing.stem.removeprefix("pairs_").lower()
    return build_benchmark(name, listing.parent, listing, rows, notes, published=CROSS_PAIRS)


def load_cfp(folder: Path) -> list[PairBenchmark]:
    """Load CFP as its authors distribute it: ``cfp_ff`` and ``cfp_fp``."""
    images = {name: _numbered_images(folder, name) for name in (FRONTAL, PROFILE)}
    benchmarks = []
    for part, lists in (("FF", (FRONTAL, FRONTAL)), ("FP", (FRONTAL, PROFILE))):
        split = folder / "Protocol/Split" / part
        rows = list(_cfp_rows(split, lists, images))
        name = f"cfp_{part.lower()}"
        benchmarks.append(build_benchmark(name, folder, split, rows, published=CFP_PAIRS))
    return benchmarks


def _cfp_rows(split: Path, lists: tuple[str, str], images: Mapping[str, Mapping[str, str]]) -> Iterator[ListedPair]:
    """The pairs of a part; ``lists`` number the images of both sides, and ``images`` are by list and number."""
    for fold in range(FOLDS):
        for file, same in (("same.txt", True), ("diff.txt", False)):
            listing = split / f"{fold + 1:02d}" / file
            for row, line in numbered_lines(listing):
                numbers = [number.strip() for number in line.split(",")]
                if len(numbers) != 2:
                    raise DataError(f"{listing}, line {row}: {line!r} is not two numbers separated by a comma")
                keys = []
                for number, source in zip(numbers, lists, strict=True):
                    if number not in images[source]:
                        raise DataError(f"{listing}, line {row}: {source} has no image {number!r}")
                    keys.append(images[source][number])
                # A person has a folder, and in it a folder for each view.
                people = keys[0].split("/")[-3], keys[1].split("/")[-3]
                yield ListedPair(row, keys[0], keys[1], same=same, fold=fold, people=people)


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
        return any(is_image_name(entry.name) and _AGEDB_STEM.fullmatch(Path(entry.name).stem) for entry in entries)


def load_agedb(folder: Path) -> PairBenchmark:
    """Load AgeDB's pairs, from the only list in the folder (.txt, .csv or .tsv)."""
    lists = [name for name in sorted(os.listdir(folder)) if Path(name).suffix.lower() in PAIR_LIST_SUFFIXES]
    if len(lists) != 1:
        found = f"{len(lists)} lists ({', '.join(lists)})" if lists else "no list of pairs"
        raise DataError(
            f"{folder}: AgeDB's images with {found}; put the list of the 30-year protocol beside them, or use "
            "agedb_30.bin"
        )

    def person(key: str) -> str:
        match = _AGEDB_STEM.fullmatch(Path(key).stem)
        if match is None:
            raise DataError(f"{folder / key}: AgeDB's images have names like 16_JohnDoe_45_m.jpg; correct the list")
        return match["person"]

    listing = folder / lists[0]
    rows, notes = read_labeled(listing)
    named = [replace(row, people=(person(row.first), person(row.second))) for row in rows]
    return build_benchmark("agedb_30", folder, listing, named, notes)


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
