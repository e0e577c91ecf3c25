"""AgeDB: faces by age, and pairs of pictures that are thirty years apart.

Moschoglou et al., "AgeDB: the first manually collected, in-the-wild age database", CVPRW 2017. A picture is
``16_JohnDoe_45_m.jpg``: number, person, age, sex. The pairs of the 30-year protocol differ in age by 30 years
exactly, ten folds of 300 genuine pairs and 300 of strangers; where no list of them is in the folder, pairs are
drawn by that rule.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from facerts.benchmarks.listed import FOLDS, LIST_SUFFIXES, build_benchmark, load_pair_list
from facerts.benchmarks.pairs import PairBenchmark
from facerts.datasets.folder import is_image_name
from facerts.errors import DataError

NAME = "agedb_30"
YEARS = 30
PAIRS_PER_FOLD = 300

_STEM = re.compile(r"\d+_(?P<person>.+)_(?P<age>\d{1,3})_(?P<sex>[mf])", re.IGNORECASE)


def is_agedb(folder: Path) -> bool:
    """Whether a picture in the folder is named as AgeDB names them."""
    with os.scandir(folder) as entries:
        return any(is_image_name(entry.name) and _STEM.fullmatch(Path(entry.name).stem) for entry in entries)


def load_agedb(folder: str | Path, *, seed: int = 0) -> PairBenchmark:
    """AgeDB's 30-year protocol.

    The one list of pairs in the folder (.txt or .csv, see ``load_pair_list``) is read; without one, pairs are
    drawn, the same for the same seed, with nobody in two folds.

    Args:
        folder: flat, with the pictures.
        seed: of the drawing.

    Raises:
        DataError: pictures have other names, the list is broken, or there are too few people for ten folds.
    """
    folder = Path(folder)
    names = sorted(os.listdir(folder))
    lists = [name for name in names if Path(name).suffix.lower() in LIST_SUFFIXES]
    if len(lists) == 1:
        return load_pair_list(folder / lists[0], name=NAME, subject_of=lambda key: _parts(folder, key)[0])
    why = f"{len(lists)} lists ({', '.join(lists)}) are" if lists else "no list is"
    note = (
        f"The pairs were drawn by the {YEARS}-year rule with seed {seed}, because {why} in the folder: "
        "numbers are not comparable with published ones."
    )
    return _draw(folder, [name for name in names if is_image_name(name)], seed, note)


def _parts(folder: Path, key: str) -> tuple[str, int, str]:
    """Person, age and sex, from a picture's name."""
    match = _STEM.fullmatch(Path(key).stem)
    if match is None:
        raise DataError(
            f"{folder / key}: AgeDB's pictures have names as 16_JohnDoe_45_m.jpg; rename or remove it"
        )
    return match["person"], int(match["age"]), match["sex"].lower()


def _draw(folder: Path, keys: list[str], seed: int, note: str) -> PairBenchmark:
    random = np.random.default_rng(seed)
    parts = [_parts(folder, key) for key in keys]
    people = {name: row for row, name in enumerate(dict.fromkeys(name for name, _, _ in parts))}
    person = np.array([people[name] for name, _, _ in parts], dtype=np.int64)
    age = np.array([years for _, years, _ in parts], dtype=np.int64)
    sex = np.array([letter == "f" for _, _, letter in parts], dtype=np.int64)
    fold_of = _deal(folder, person, age, random)[person]
    pairs: list[NDArray[np.int64]] = []
    counts: list[tuple[int, int]] = []
    for fold in range(FOLDS):
        rows = np.flatnonzero(fold_of == fold)
        genuine = _apart(rows, person, person, age, random, same=True)
        strangers = _apart(rows, sex, person, age, random, same=False)
        pairs += [genuine, strangers]
        counts.append((len(genuine), len(strangers)))
    genuine_counts, stranger_counts = (list(numbers) for numbers in zip(*counts, strict=True))
    if not sum(stranger_counts):
        raise DataError(f"{folder}: no two people of one sex and fold are {YEARS} years apart; add pictures")
    notes = [note]
    if min(genuine_counts + stranger_counts) < PAIRS_PER_FOLD:
        notes.append(
            f"Some folds have fewer than {PAIRS_PER_FOLD} pairs of each kind: "
            f"genuine {genuine_counts}, strangers {stranger_counts}."
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


def _deal(
    folder: Path, person: NDArray[np.int64], age: NDArray[np.int64], random: np.random.Generator
) -> NDArray[np.int64]:
    """The fold of each person; those who make genuine pairs are dealt first, so that every fold has some."""
    seen = set(zip(person.tolist(), age.tolist(), strict=True))
    able = sorted({one for one, years in seen if (one, years + YEARS) in seen})
    if len(able) < FOLDS:
        raise DataError(
            f"{folder}: {len(able)} people have pictures {YEARS} years apart, which is too few for {FOLDS} folds"
        )
    others = np.setdiff1d(person, able)
    dealt = np.concatenate([random.permutation(able), random.permutation(others)])
    fold_of = np.empty(len(dealt), dtype=np.int64)
    fold_of[dealt] = np.arange(len(dealt)) % FOLDS
    return fold_of


def _apart(
    rows: NDArray[np.int64],
    group: NDArray[np.int64],
    person: NDArray[np.int64],
    age: NDArray[np.int64],
    random: np.random.Generator,
    *,
    same: bool,
) -> NDArray[np.int64]:
    """Up to ``PAIRS_PER_FOLD`` pairs of rows of one group, the second picture ``YEARS`` older.

    The pairs are counted by ages and sampled by their numbers, because there are too many to list.

    Args:
        rows: pictures of the fold.
        group: what the two pictures have in common: the person, or the sex.
        person: of every picture.
        age: of every picture.
        random: draws.
        same: whether the two pictures are of one person.

    Returns:
        ``(P, 2) int64``, no pair twice.
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
