"""IJB-B and IJB-C as usually distributed: loose crops, five landmarks, and templates.

Whitelam et al., "IARPA Janus Benchmark-B face dataset", CVPRW 2017; Maze et al., "IARPA Janus Benchmark - C: face
dataset and protocol", ICB 2018. ``loose_crop`` contains the images and ``meta`` the lists, whose names begin with ijbb
or ijbc:

* ``ijbc_face_tid_mid.txt``: "1.jpg 1 69544", image, template, media.
* ``ijbc_name_5pts_score.txt``: "1.jpg x0 y0 … x4 y4 score", five landmarks in the loose crop and the detector's score.
* ``ijbc_template_pair_label.txt``: "1 11065 1", two templates, and 1 for the same person.
* ``ijbc_1N_gallery_G1.csv``, ``ijbc_1N_gallery_G2.csv`` (S1 and S2 in IJB-B) and ``ijbc_1N_probe_mixed.csv``: a
  header, then TEMPLATE_ID,SUBJECT_ID,FILENAME,…, one line for each image of a template.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from facerts.datasets.folder import LandmarkedFiles
from facerts.datasets.listed_pairs import check_present, count_notes
from facerts.datasets.pair_rows import numbered_lines
from facerts.datasets.template_benchmark import Roster, TemplateBenchmark
from facerts.errors import DataError

META, IMAGES = "meta", "loose_crop"
# Published numbers of images, templates and pairs.
PUBLISHED = {"ijbb": (227_630, 12_115, 8_010_270), "ijbc": (469_375, 23_124, 15_658_489)}

# Pairs that are looked up at a time, to keep intermediate arrays small.
_BLOCK = 1 << 20


def is_ijb(folder: Path) -> bool:
    """Whether ``meta`` contains lists of IJB-B or IJB-C."""
    return any((folder / META).glob("ijb[bc]_*"))


def load_ijb(folder: str | Path) -> TemplateBenchmark:
    """Load IJB-B or IJB-C.

    Missing pairs, galleries and probes only give a note; templates and landmarks are required.
    """
    folder = Path(folder)
    prefix = _prefix(folder)
    meta = folder / META
    listing = meta / f"{prefix}_face_tid_mid.txt"
    names, numbers = _read_named(listing, np.int64, 2, "IMAGE TEMPLATE MEDIA")
    points = _points(meta / f"{prefix}_name_5pts_score.txt", names, listing)
    _check_images(folder / IMAGES, names, listing)
    template_ids, template = np.unique(numbers[:, 0], return_inverse=True)
    image_count, template_count, pair_count = PUBLISHED[prefix]
    notes = [
        *count_notes(len(names), image_count, "images"),
        *count_notes(len(template_ids), template_count, "templates"),
    ]
    pairs, same = np.empty((0, 2), dtype=np.int32), np.empty(0, dtype=bool)
    pair_list = meta / f"{prefix}_template_pair_label.txt"
    if pair_list.is_file():
        pairs, same = _pairs(pair_list, template_ids)
        notes += count_notes(len(same), pair_count, "pairs")
    else:
        notes.append(f"{pair_list.name} is missing, so there are no pairs to verify.")
    gallery_lists = sorted(meta.glob(f"{prefix}_1N_gallery_*.csv"))
    if len(gallery_lists) < 2:
        notes.append(f"Only {len(gallery_lists)} of 2 galleries ({prefix}_1N_gallery_….csv) were found.")
    probe_list = meta / f"{prefix}_1N_probe_mixed.csv"
    if not probe_list.is_file():
        notes.append(f"{probe_list.name} is missing, so there are no probes to search for in the galleries.")
    return TemplateBenchmark(
        prefix,
        LandmarkedFiles(prefix, folder / IMAGES, names, points),
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
    prefixes = sorted({path.name[:4] for path in (folder / META).glob("ijb[bc]_*")})
    if len(prefixes) != 1:
        problem = "contains lists of both IJB-B and IJB-C" if prefixes else "contains no list of IJB-B or IJB-C"
        raise DataError(f"{folder / META}: {problem}; give a folder with {META} and {IMAGES} of one of them")
    return prefixes[0]


def _read_named(path: Path, kind: type[np.generic], columns: int, form: str) -> tuple[list[str], NDArray[Any]]:
    """Read lines of an image's unique name and ``columns`` numbers."""
    fields = [line.split(maxsplit=1) for _, line in numbered_lines(path)]
    names = [field[0] for field in fields]
    values = _table(path, [field[-1] for field in fields], kind, columns, form, skipped=1)
    if len(set(names)) != len(names):
        seen: set[str] = set()
        for row, name in enumerate(names):
            if name in seen:
                raise DataError(f"{path}, line {_line(path, row)}: {name} is listed twice")
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
    """Read columns of numbers with NumPy; if that fails, search for the broken line to name it in the error."""
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
    """The line number of a row of a table."""
    return next(number for place, (number, _) in enumerate(numbered_lines(path)) if place == row)


def _points(path: Path, names: list[str], listing: Path) -> NDArray[np.float32]:
    """Landmarks ``(N, 5, 2)`` in the order of the names."""
    listed, values = _read_named(path, np.float32, 11, "IMAGE, five x and y, SCORE")
    infinite = np.flatnonzero(~np.isfinite(values[:, :10]).all(axis=1))
    if len(infinite):
        raise DataError(f"{path}, line {_line(path, int(infinite[0]))}: a point is not a finite number")
    if listed != names:
        row_of = {name: row for row, name in enumerate(listed)}
        missing = [name for name in names if name not in row_of]
        if missing:
            raise DataError(
                f"{path}: {len(missing)} of {len(names)} images of {listing.name} have no landmarks in this file, "
                f"the first is {missing[0]}"
            )
        if len(listed) != len(names):
            known = set(names)
            extra = next(row for row, name in enumerate(listed) if name not in known)
            raise DataError(f"{path}, line {_line(path, extra)}: {listed[extra]} is not in {listing.name}")
        values = values[[row_of[name] for name in names]]
    points: NDArray[np.float32] = values[:, :10].reshape(-1, 5, 2).copy()
    return points


def _check_images(folder: Path, names: list[str], listing: Path) -> None:
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; it must contain the images of {listing.name}")
    # List the folder once: checking half a million files one by one takes minutes on network disks.
    with os.scandir(folder) as entries:
        present = {entry.name for entry in entries}
    check_present(names, [name for name in names if name not in present], folder, listing)


def _rows(template_ids: NDArray[np.int64], ids: NDArray[np.integer]) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """The rows of templates given by their ids in the sorted ``template_ids``, and which ids are unknown."""
    rows = np.searchsorted(template_ids, ids).clip(max=len(template_ids) - 1)
    return rows, template_ids[rows] != ids


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
                raise DataError(f"{where}: template {block[bad[0], :2][culprit][0]} has no images")
            raise DataError(f"{where}: {block[bad[0], 2]} is neither 1 for the same person nor 0")
        pairs[start : start + _BLOCK] = rows
    return pairs, listed[:, 2] == 1


def _roster(path: Path, template_ids: NDArray[np.int64]) -> Roster:
    """The templates of a 1:N list, each once, in order; the roster's name is the file's name after ``1N_``."""
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
                f"{path}, line {number}: template {template} belongs to person {subject} here, but to {known} above"
            )
    if not subject_of:
        raise DataError(f"{path}: it lists no templates")
    templates = np.array(list(subject_of), dtype=np.int64)
    rows, unknown = _rows(template_ids, templates)
    if unknown.any():
        first = int(unknown.argmax())
        raise DataError(f"{path}, line {line_of[first]}: template {templates[first]} has no images")
    name = path.stem.partition("_1N_")[2]
    return Roster(name, rows.astype(np.int64), np.array(list(subject_of.values()), dtype=np.int64))
