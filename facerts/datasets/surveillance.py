"""Searches for small and distant faces in galleries: TinyFace and SCface. Each image is a template of its own.

TinyFace (Cheng et al., "Low-resolution face recognition", ACCV 2018): ``Gallery_Match``, ``Gallery_Distractor`` and
``Probe`` with images named PERSON_….jpg, either in ``Testing_Set`` or, as aligned copies have them, at the top. People
are read from the names, as its MATLAB lists say the same. Nobody looks for the people of the distractors, so each is
counted as one of its own.

SCface (Grgic et al., "SCface – surveillance cameras face database", 2011): mugshots ``001_frontal.jpg`` in
``mugshot_frontal_cropped_all`` or ``mugshot_frontal_original_all``, and probes ``001_cam1_1.jpg`` in
``surveillance_cameras_distance_1/cam_1``: person, camera, distance. Distance 1 is 4.20 m, 2 is 2.60 m, 3 is 1.00 m.
Cameras 1 to 5 see visible light; infrared cameras (6 and 7) are left out. The folder of a distance is a benchmark by
itself.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from facerts.datasets.folder import Files, open_tree
from facerts.datasets.listed_pairs import count_notes
from facerts.datasets.template_benchmark import Roster, TemplateBenchmark
from facerts.errors import DataError

TESTING_SET = "Testing_Set"
GALLERY, DISTRACTORS, PROBES = "Gallery_Match", "Gallery_Distractor", "Probe"
# Published numbers of images.
TINYFACE_IMAGES = {GALLERY: 4_443, DISTRACTORS: 153_428, PROBES: 3_728}

MUGSHOTS = ("mugshot_frontal_cropped_all", "mugshot_frontal_original_all")
DISTANCES = tuple(f"surveillance_cameras_distance_{distance}" for distance in (1, 2, 3))
CAMERAS = tuple(f"cam_{camera}" for camera in range(1, 6))
SCFACE_PEOPLE = 130

_TINYFACE_NAME = re.compile(r"(?P<person>\d+)_.+")
_MUGSHOT_NAME = re.compile(r"(?P<person>\d{3})_frontal\.\w+", re.IGNORECASE)
_PROBE_NAME = re.compile(r"(?P<person>\d{3})_cam[1-5]_[1-3]\.\w+", re.IGNORECASE)


def is_tinyface(folder: Path) -> bool:
    """Whether a folder has TinyFace's gallery and probes."""
    return all((_testing_set(folder) / name).is_dir() for name in (GALLERY, PROBES))


def is_scface(folder: Path) -> bool:
    """Whether a folder has SCface's surveillance images, or is one of their folders."""
    root = folder.parent if folder.name in DISTANCES else folder
    return any((root / name).is_dir() for name in DISTANCES) and any((root / name).is_dir() for name in MUGSHOTS)


def load_tinyface(folder: str | Path) -> TemplateBenchmark:
    """Load TinyFace's identification test from a folder that ``is_tinyface``.

    Without distractors the gallery is smaller, with a note.
    """
    root = _testing_set(Path(folder))
    keys = {name: _keys(root, name) for name in (GALLERY, DISTRACTORS, PROBES) if (root / name).is_dir()}
    notes = [
        note
        for name, published in TINYFACE_IMAGES.items()
        for note in count_notes(len(keys.get(name, [])), published, f"images in {name}")
    ]
    distractors = keys.get(DISTRACTORS, [])
    gallery = keys[GALLERY] + distractors
    enrolled = [_person(root, key, _TINYFACE_NAME) for key in keys[GALLERY]]
    strangers = [-1 - number for number in range(len(distractors))]
    people = [_person(root, key, _TINYFACE_NAME) for key in keys[PROBES]]
    return _search("tinyface", root, gallery, enrolled + strangers, keys[PROBES], people, notes)


def load_scface(folder: str | Path) -> TemplateBenchmark:
    """Load SCface from a folder that ``is_scface``: a gallery of mugshots, and probes.

    Probes are those from all distances or, given the folder of a distance, from that distance.
    """
    folder = Path(folder)
    is_distance = folder.name in DISTANCES
    root, distances = (folder.parent, [folder.name]) if is_distance else (folder, DISTANCES)
    mugshots = next(name for name in MUGSHOTS if (root / name).is_dir())
    cameras = [f"{distance}/{camera}" for distance in distances for camera in CAMERAS]
    probes = [key for name in cameras if (root / name).is_dir() for key in _keys(root, name)]
    if not probes:
        raise DataError(f"{folder}: no probes ({cameras[0]} to {cameras[-1]})")
    gallery = _keys(root, mugshots)
    people = [_person(root, key, _PROBE_NAME) for key in probes]
    enrolled = [_person(root, key, _MUGSHOT_NAME) for key in gallery]
    notes = [
        *count_notes(len(gallery), SCFACE_PEOPLE, "mugshots"),
        *count_notes(len(probes), SCFACE_PEOPLE * len(cameras), "probes"),
    ]
    name = f"scface_distance_{folder.name[-1]}" if is_distance else "scface"
    return _search(name, root, gallery, enrolled, probes, people, notes)


def _testing_set(folder: Path) -> Path:
    return folder / TESTING_SET if (folder / TESTING_SET).is_dir() else folder


def _keys(root: Path, name: str) -> list[str]:
    images = open_tree(root / name)
    return [f"{name}/{images.key(row)}" for row in range(len(images))]


def _person(root: Path, key: str, pattern: re.Pattern[str]) -> int:
    match = pattern.fullmatch(Path(key).name)
    if match is None:
        raise DataError(f"{root / key}: the name does not begin with the number of a person as expected")
    return int(match["person"])


def _search(
    name: str,
    root: Path,
    gallery: Sequence[str],
    enrolled: Sequence[int],
    probes: Sequence[str],
    people: Sequence[int],
    notes: Sequence[str],
) -> TemplateBenchmark:
    """Images of the gallery first, each a template of the person in ``enrolled``, then the probes of ``people``."""
    rows = np.arange(len(gallery) + len(probes), dtype=np.int64)
    subjects = np.array([*enrolled, *people], dtype=np.int64)
    return TemplateBenchmark(
        name,
        Files(name, root, [*gallery, *probes], [str(subject) for subject in subjects]),
        rows,
        rows,
        rows,
        np.empty((0, 2), dtype=np.int64),
        np.empty(0, dtype=bool),
        (Roster("gallery", rows[: len(gallery)], subjects[: len(gallery)]),),
        Roster("probes", rows[len(gallery) :], subjects[len(gallery) :]),
        tuple(notes),
    )
