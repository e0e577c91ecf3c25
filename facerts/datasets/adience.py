"""Adience: photos of people from Flickr, with their ages and genders.

Eidinger et al., "Age and gender estimation of unfiltered faces", IEEE TIFS 2014. Five lists of tab-separated columns,
``fold_0_data.txt`` to ``fold_4_data.txt``, begin with user_id, original_image, face_id, age and gender; face_id is the
person. The image is ``aligned/USER/landmark_aligned_face.FACE.IMAGE``, or
``faces/USER/coarse_tilt_aligned_face.FACE.IMAGE``. Both are crops of 816 x 816 that have yet to be aligned.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from facerts.datasets.folder import Files
from facerts.errors import DataError
from facerts.io.csv_file import csv_rows
from facerts.io.files import atomic_write

FOLDS = tuple(f"fold_{fold}_data.txt" for fold in range(5))
COLUMNS = ("user_id", "original_image", "face_id", "age", "gender")
# The folders of images, the better aligned one first, and how file names begin.
IMAGES = {"aligned": "landmark_aligned_face", "faces": "coarse_tilt_aligned_face"}

_GENDERS = {"m": "male", "f": "female"}
_RANGE = re.compile(r"\((\d+), ?(\d+)\)")


class AdienceFace(NamedTuple):
    """A line of a list: age, a range such as "25 to 32" or a number, and gender, "female" or "male"; "" if unknown."""

    key: str
    person: str
    age: str
    gender: str


def is_adience(folder: Path) -> bool:
    """Whether a folder has Adience's lists."""
    return (folder / FOLDS[0]).is_file()


def open_adience(folder: Path) -> Files:
    """Open Adience's images, labeled by their person, in the order of the lists."""
    faces = _faces(folder)
    missing = [face.key for face in faces if not os.path.isfile(folder / face.key)]
    if missing:
        raise DataError(
            f"{folder}: {len(missing)} of {len(faces)} images that {FOLDS[0]} to {FOLDS[-1]} list are missing, "
            f"the first is {missing[0]}"
        )
    return Files("adience", folder, [face.key for face in faces], [face.person for face in faces])


def write_adience_groups(folder: str | Path, path: str | Path) -> None:
    """Write the age and gender of each image as a table ``image,age,gender``; unknown values are empty."""
    with atomic_write(path, "w") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("image", "age", "gender"))
        table.writerows((face.key, face.age, face.gender) for face in _faces(Path(folder)))


def _faces(folder: Path) -> list[AdienceFace]:
    images = next((name for name in IMAGES if (folder / name).is_dir()), None)
    if images is None:
        raise DataError(f"{folder}: neither {' nor '.join(IMAGES)}, the images of {FOLDS[0]}")
    faces = [face for name in FOLDS for face in _read(folder / name, f"{images}/{{}}/{IMAGES[images]}")]
    return list({face.key: face for face in faces}.values())


def _read(path: Path, form: str) -> Iterator[AdienceFace]:
    rows = csv_rows(path, "\t")
    _, header = next(rows)
    absent = [name for name in COLUMNS if name not in header]
    if absent:
        raise DataError(f"{path}, line 1: no column {absent[0]}")
    columns = [header.index(name) for name in COLUMNS]
    for number, row in rows:
        user, image, person, age, gender = (row[column] if column < len(row) else "" for column in columns)
        if not person.isdecimal() or not all(_is_name(part) for part in (user, image)):
            raise DataError(f"{path}, line {number}: not a user, an image and a person's number")
        bounds = _RANGE.fullmatch(age)
        known = f"{bounds[1]} to {bounds[2]}" if bounds else age if age.isdecimal() else ""
        yield AdienceFace(f"{form.format(user)}.{person}.{image}", person, known, _GENDERS.get(gender, ""))


def _is_name(part: str) -> bool:
    """Whether it names a file or folder, and no other path."""
    return bool(part) and part not in (".", "..") and not set("/\\\0") & set(part)
