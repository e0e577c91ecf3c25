"""AgeDB: faces by age, and pairs of images that are thirty years apart.

Moschoglou et al., "AgeDB: the first manually collected, in-the-wild age database", CVPRW 2017. An image is named
``16_JohnDoe_45_m.jpg``: number, person, age, sex. In the 30-year protocol the ages of a pair differ by exactly 30
years; there are ten folds of 300 genuine and 300 impostor pairs. If the folder has no list of pairs, they are sampled
by that rule.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from facerts.benchmarks.listed import FOLDS, LIST_SUFFIXES, build_benchmark, load_pair_list
from facerts.benchmarks.pair_benchmark import PairBenchmark
from facerts.datasets.folder import is_image_name
from facerts.errors import DataError

NAME = "agedb_30"
YEARS = 30
PAIRS_PER_FOLD = 300

_STEM = re.compile(r"\d+_(?P<person>.+)_(?P<age>\d{1,3})_(?P<sex>[mf])", re.IGNORECASE)


def is_agedb(folder: Path) -> bool:
    """Whether the folder contains an image named like AgeDB's."""
    with os.scandir(folder) as entries:
        return any(is_image_name(entry.name) and _STEM.fullmatch(Path(entry.name).stem) for entry in entries)


def load_agedb(folder: str | Path, *, seed: int = 0) -> PairBenchmark:
    """AgeDB's 30-year protocol.

    If the folder has exactly one list of pairs (.txt or .csv, see ``load_pair_list``), it is read; otherwise pairs are
    sampled, the same for the same seed, with nobody in two folds.
    """
    folder = Path(folder)
    names = sorted(os.listdir(folder))
    lists = [name for name in names if Path(name).suffix.lower() in LIST_SUFFIXES]
    if len(lists) == 1:
        return load_pair_list(folder / lists[0], name=NAME, subject_of=lambda key: _parts(folder, key)[0])
    reason = f"{len(lists)} lists ({', '.join(lists)})" if lists else "no list of pairs"
    note = (
        f"The pairs were sampled by the {YEARS}-year rule with seed {seed}, because the folder has {reason}: "
        "results are not comparable with published ones."
    )
    return _sample(folder, [name for name in names if is_image_name(name)], seed, note)


def _parts(folder: Path, key: str) -> tuple[str, int, str]:
    """Person, age and sex, from an image's name."""
    match = _STEM.fullmatch(Path(key).stem)
    if match is None:
        raise DataError(
            f"{folder / key}: AgeDB's images have names like 16_JohnDoe_45_m.jpg; rename or remove it"
        )
    return match["person"], int(match["age"]), match["sex"].lower()


def _sample(folder: Path, keys: list[str], seed: int, note: str) -> PairBenchmark:
    random = np.random.default_rng(seed)
    parts = [_parts(folder, key) for key in keys]
    people = {name: row for row, name in enumerate(dict.fromkeys(name for name, _, _ in parts))}
    person = np.array([people[name] for name, _, _ in parts], dtype=np.int64)
    age = np.array([years for _, years, _ in parts], dtype=np.int64)
    sex = np.array([letter == "f" for _, _, letter in parts], dtype=np.int64)
    fold_of = _assign_folds(folder, person, age, random)[person]
    pairs: list[NDArray[np.int64]] = []
    counts: list[tuple[int, int]] = []
    for fold in range(FOLDS):
        rows = np.flatnonzero(fold_of == fold)
        genuine = _sample_pairs(rows, person, person, age, random, same=True)
        impostors = _sample_pairs(rows, sex, person, age, random, same=False)
        pairs += [genuine, impostors]
        counts.append((len(genuine), len(impostors)))
    genuine_counts, impostor_counts = (list(numbers) for numbers in zip(*counts, strict=True))
    if not sum(impostor_counts):
        raise DataError(
            f"{folder}: no two people of the same sex and fold are {YEARS} years apart; add images"
        )
    notes = [note]
    if min(genuine_counts + impostor_counts) < PAIRS_PER_FOLD:
        notes.append(
            f"Some folds have fewer than {PAIRS_PER_FOLD} pairs of each kind: "
            f"genuine {genuine_counts}, impostors {impostor_counts}."
        )
    chosen = np.concatenate(pairs)
    sizes = np.array(counts).reshape(-1)
    return build_benchmark(
        NAME,
        folder,
        [(keys[first], keys[second]) for first, second in chosen.tolist()],
        np.repeat([True, False] * FOLDS, sizes).tolist(),
        np.repeat(np.repeat(np.arange(FOLDS), 2), sizes),
        listing="the rule",
        subjects={key: name for key, (name, _, _) in zip(keys, parts, strict=True)},
        notes=notes,
    )


def _assign_folds(
    folder: Path, person: NDArray[np.int64], age: NDArray[np.int64], random: np.random.Generator
) -> NDArray[np.int64]:
    """The fold of each person; people with genuine pairs are assigned first, so that every fold has some."""
    seen = set(zip(person.tolist(), age.tolist(), strict=True))
    eligible = sorted({who for who, years in seen if (who, years + YEARS) in seen})
    if len(eligible) < FOLDS:
        raise DataError(
            f"{folder}: only {len(eligible)} people have images {YEARS} years apart, too few for {FOLDS} folds"
        )
    others = np.setdiff1d(person, eligible)
    order = np.concatenate([random.permutation(eligible), random.permutation(others)])
    fold_of = np.empty(len(order), dtype=np.int64)
    fold_of[order] = np.arange(len(order)) % FOLDS
    return fold_of


def _sample_pairs(
    rows: NDArray[np.int64],
    group: NDArray[np.int64],
    person: NDArray[np.int64],
    age: NDArray[np.int64],
    random: np.random.Generator,
    *,
    same: bool,
) -> NDArray[np.int64]:
    """Sample up to ``PAIRS_PER_FOLD`` pairs ``(P, 2)`` within groups, the second image ``YEARS`` older; no duplicates.

    Pairs are counted by age and sampled by index, because there are too many to list.
    """
    stride = int(age.max()) + YEARS + 1
    cell_of = group[rows] * stride + age[rows]
    ordered = rows[np.argsort(cell_of, kind="stable")]
    cells, starts, counts = np.unique(np.sort(cell_of), return_index=True, return_counts=True)
    _, young, old = np.intersect1d(cells, cells - YEARS, assume_unique=True, return_indices=True)
    ends = np.cumsum(counts[young] * counts[old])
    total = int(ends[-1]) if len(ends) else 0
    size = 4 * PAIRS_PER_FOLD
    while True:
        numbers = (
            random.choice(total, min(size, total), replace=False) if total else np.empty(0, dtype=np.int64)
        )
        cell = np.searchsorted(ends, numbers, side="right")
        within = numbers - (ends - counts[young] * counts[old])[cell]
        first = ordered[starts[young][cell] + within // counts[old][cell]]
        second = ordered[starts[old][cell] + within % counts[old][cell]]
        kept = (person[first] == person[second]) == same
        if kept.sum() >= PAIRS_PER_FOLD or size >= total:
            return np.stack([first[kept], second[kept]], axis=1)[:PAIRS_PER_FOLD]
        size *= 4
