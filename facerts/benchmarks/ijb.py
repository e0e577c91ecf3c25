"""IJB-B and IJB-C as the field hands them out: loose crops, five points, and templates.

Whitelam et al., "IARPA Janus Benchmark-B face dataset", CVPRW 2017; Maze et al., "IARPA Janus Benchmark - C: face
dataset and protocol", ICB 2018. ``loose_crop`` holds the pictures and ``meta`` the lists, whose names begin with
ijbb or ijbc:

* ``ijbc_face_tid_mid.txt``: "1.jpg 1 69544", picture, template, media.
* ``ijbc_name_5pts_score.txt``: "1.jpg x0 y0 … x4 y4 score", five points in the loose crop and a detector's score.
* ``ijbc_template_pair_label.txt``: "1 11065 1", two templates, and 1 for the same person.
* ``ijbc_1N_gallery_G1.csv``, ``ijbc_1N_gallery_G2.csv`` (S1 and S2 in IJB-B) and ``ijbc_1N_probe_mixed.csv``: a
  header, then TEMPLATE_ID,SUBJECT_ID,FILENAME,…, as many lines for a template as it has pictures.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from facerts.benchmarks.listed import count_notes, numbered_lines
from facerts.benchmarks.templates import Roster, TemplateBenchmark
from facerts.datasets.landmarks import LandmarkedFiles
from facerts.errors import DataError

META, PICTURES = "meta", "loose_crop"
# Pictures, templates and pairs.
PUBLISHED = {"ijbb": (227_630, 12_115, 8_010_270), "ijbc": (469_375, 23_124, 15_658_489)}

# Pairs that are looked up at once: millions of them would make large intermediate arrays.
_BLOCK = 1 << 20


def is_ijb(folder: Path) -> bool:
    """Whether ``meta`` holds lists of IJB-B or IJB-C."""
    return any((folder / META).glob("ijb[bc]_*"))


def load_ijb(folder: str | Path) -> TemplateBenchmark:
    """IJB-B or IJB-C.

    Pairs, galleries and probes that are not there give a note; templates and points must be there.

    Raises:
        DataError: a list is missing, broken or at odds with another (the line is named), or pictures are missing.
    """
    folder = Path(folder)
    prefix = _prefix(folder)
    meta = folder / META
    listing = meta / f"{prefix}_face_tid_mid.txt"
    names, numbers = _read_named(listing, np.int64, 2, "PICTURE TEMPLATE MEDIA")
    points = _points(meta / f"{prefix}_name_5pts_score.txt", names, listing)
    _check_pictures(folder / PICTURES, names, listing)
    template_ids, template = np.unique(numbers[:, 0], return_inverse=True)
    pictures, templates, pair_count = PUBLISHED[prefix]
    notes = [
        *count_notes(len(names), pictures, "pictures"),
        *count_notes(len(template_ids), templates, "templates"),
    ]
    pairs, same = np.empty((0, 2), dtype=np.int32), np.empty(0, dtype=bool)
    pair_list = meta / f"{prefix}_template_pair_label.txt"
    if pair_list.is_file():
        pairs, same = _pairs(pair_list, template_ids)
        notes += count_notes(len(same), pair_count, "pairs")
    else:
        notes.append(f"{pair_list.name} is not there, so there are no pairs to verify.")
    gallery_lists = sorted(meta.glob(f"{prefix}_1N_gallery_*.csv"))
    if len(gallery_lists) < 2:
        notes.append(f"{len(gallery_lists)} of 2 galleries ({prefix}_1N_gallery_….csv) are there.")
    probe_list = meta / f"{prefix}_1N_probe_mixed.csv"
    if not probe_list.is_file():
        notes.append(f"{probe_list.name} is not there, so there is nothing to search for in galleries.")
    return TemplateBenchmark(
        prefix,
        LandmarkedFiles(prefix, folder / PICTURES, names, points),
        template.astype(np.int64),
        numbers[:, 1].copy(),
        template_ids,
        pairs,
        same,
        tuple(_roster(path, template_ids) for path in gallery_lists),
        _roster(probe_list, template_ids) if probe_list.is_file() else None,
        tuple(notes),
    )


def _prefix(folder: Path) -> str:
    found = sorted({path.name[:4] for path in (folder / META).glob("ijb[bc]_*")})
    if len(found) != 1:
        what = "the lists of both IJB-B and IJB-C are" if found else "no list of IJB-B or IJB-C is"
        raise DataError(
            f"{folder / META}: {what} here; give a folder with {META} and {PICTURES} of one of them"
        )
    return found[0]


def _read_named(
    path: Path, kind: type[np.generic], columns: int, form: str
) -> tuple[list[str], NDArray[Any]]:
    """Lines of a picture's name and numbers.

    Returns:
        The names, each once, and ``(N, columns)`` of the kind asked for.
    """
    fields = [line.split(maxsplit=1) for _, line in numbered_lines(path)]
    names = [field[0] for field in fields]
    values = _table(path, [field[-1] for field in fields], kind, columns, form, skipped=1)
    if len(set(names)) != len(names):
        seen: set[str] = set()
        for row, name in enumerate(names):
            if name in seen:
                raise DataError(f"{path}, line {_line(path, row)}: {name} stands there twice")
            seen.add(name)
    return names, values


def _table(
    path: Path,
    lines: Path | list[str],
    kind: type[np.generic],
    columns: int,
    form: str,
    skipped: int = 0,
) -> NDArray[Any]:
    """Numbers in columns; where NumPy finds them broken, each line is looked at for the one to name.

    Args:
        path: for errors.
        lines: the file, or what is left of its lines.
        kind: of the numbers.
        columns: how many of them a line has.
        form: what a line should look like.
        skipped: fields of the file's lines before those in ``lines``.
    """
    if next(numbered_lines(path), None) is None:
        raise DataError(f"{path}: the list is empty")
    try:
        values = np.loadtxt(lines, dtype=kind, comments=None, ndmin=2)
        if values.shape[1] == columns:
            return values
        reason = f"{values.shape[1]} columns of numbers instead of {columns}"
    except (ValueError, OverflowError) as error:
        reason = str(error)
    for number, line in numbered_lines(path):
        fields = line.split()[skipped:]
        try:
            broken = len([kind(field) for field in fields]) != columns
        except (ValueError, OverflowError):
            broken = True
        if broken:
            raise DataError(f"{path}, line {number}: {line!r} is not {form}")
    raise DataError(f"{path}: lines are not {form} ({reason})")


def _line(path: Path, row: int) -> int:
    """The number of the line that a row of a table comes from."""
    return next(number for found, (number, _) in enumerate(numbered_lines(path)) if found == row)


def _points(path: Path, names: list[str], listing: Path) -> NDArray[np.float32]:
    """``(N, 5, 2)`` in the order of the names."""
    listed, values = _read_named(path, np.float32, 11, "PICTURE, five x and y, SCORE")
    infinite = np.flatnonzero(~np.isfinite(values[:, :10]).all(axis=1))
    if len(infinite):
        raise DataError(f"{path}, line {_line(path, int(infinite[0]))}: a point is not a finite number")
    if listed != names:
        row_of = {name: row for row, name in enumerate(listed)}
        lacking = [name for name in names if name not in row_of]
        if lacking:
            raise DataError(
                f"{path}: {len(lacking)} of {len(names)} pictures of {listing.name} have no points here, "
                f"the first is {lacking[0]}"
            )
        if len(listed) != len(names):
            known = set(names)
            extra = next(row for row, name in enumerate(listed) if name not in known)
            raise DataError(f"{path}, line {_line(path, extra)}: {listed[extra]} is not in {listing.name}")
        values = values[[row_of[name] for name in names]]
    points: NDArray[np.float32] = values[:, :10].reshape(-1, 5, 2).copy()
    return points


def _check_pictures(folder: Path, names: list[str], listing: Path) -> None:
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; the pictures of {listing.name} belong there")
    # One listing of the folder: asking for each of half a million files takes minutes on network disks.
    with os.scandir(folder) as entries:
        there = {entry.name for entry in entries}
    missing = [name for name in names if name not in there]
    if missing:
        raise DataError(
            f"{folder}: {len(missing)} of {len(names)} pictures that {listing.name} names "
            f"are missing, the first is {missing[0]}"
        )


def _rows(
    template_ids: NDArray[np.int64], wanted: NDArray[np.integer]
) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Where templates are in the sorted ids, and which of them are not there."""
    rows = np.searchsorted(template_ids, wanted).clip(max=len(template_ids) - 1)
    return rows, template_ids[rows] != wanted


def _pairs(path: Path, template_ids: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    listed = _table(path, path, np.int32, 3, "TEMPLATE TEMPLATE SAME")
    pairs = np.empty((len(listed), 2), dtype=np.int32)
    for start in range(0, len(listed), _BLOCK):
        block = listed[start : start + _BLOCK]
        rows, unknown = _rows(template_ids, block[:, :2])
        bad = np.flatnonzero(unknown.any(axis=1) | ((block[:, 2] != 0) & (block[:, 2] != 1)))
        if len(bad):
            where, culprit = f"{path}, line {_line(path, start + int(bad[0]))}", unknown[bad[0]]
            if culprit.any():
                raise DataError(f"{where}: no picture is of template {block[bad[0], :2][culprit][0]}")
            raise DataError(f"{where}: {block[bad[0], 2]} is neither 1 for the same person nor 0")
        pairs[start : start + _BLOCK] = rows
    return pairs, listed[:, 2] == 1


def _roster(path: Path, template_ids: NDArray[np.int64]) -> Roster:
    """Each template of a 1:N list once, in the order of the list; it is named by the file's name after ``1N_``."""
    subject_of: dict[int, int] = {}
    line_of: list[int] = []
    lines = numbered_lines(path)
    header = next(lines, (1, ""))[1]
    if not header.upper().startswith("TEMPLATE_ID,SUBJECT_ID"):
        raise DataError(f"{path}, line 1: {header!r} is not the header TEMPLATE_ID,SUBJECT_ID,…")
    for number, line in lines:
        try:
            template, subject = (int(field) for field in line.split(",", 2)[:2])
        except ValueError as error:
            raise DataError(f"{path}, line {number}: {line!r} is not TEMPLATE_ID,SUBJECT_ID,…") from error
        known = subject_of.get(template)
        if known is None:
            subject_of[template] = subject
            line_of.append(number)
        elif known != subject:
            raise DataError(
                f"{path}, line {number}: template {template} is of subject {subject} here and of {known} above"
            )
    if not subject_of:
        raise DataError(f"{path}: it lists no templates")
    templates = np.array(list(subject_of), dtype=np.int64)
    rows, unknown = _rows(template_ids, templates)
    if unknown.any():
        first = int(unknown.argmax())
        raise DataError(f"{path}, line {line_of[first]}: no picture is of template {templates[first]}")
    name = path.stem.partition("_1N_")[2]
    return Roster(name, rows.astype(np.int64), np.array(list(subject_of.values()), dtype=np.int64))
