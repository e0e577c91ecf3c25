"""The figures of the page of people in the documentation, with drawn people, so that nobody is shown.

python tools/docs_people.py --out docs/figures

draws photos, calibrates the model that ships for drawn faces, finds the people, corrects the groups as a user would,
names three people, and takes the page as ``people.jpg``, 1,200 pixels wide, and ``people_narrow.jpg``, 420 pixels wide
and dark. It needs Chromium.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

import cv2

import facerts
from facerts.calibration.quality_thresholds import calibrate
from facerts.datasets.synthetic import write_non_faces, write_synthetic_faces
from facerts.people import (
    People,
    find_people,
    merge_people,
    move_faces,
    name_person,
    read_people,
)
from facerts.report.people_page import write_people_page

NAMES = ("Anna", "Ben", "Chloé")
# Width and height in pixels, and whether the figure is dark.
FIGURES = {"people.jpg": (1200, 1180, False), "people_narrow.jpg": (420, 1180, True)}


def make_people(folder: Path) -> People:
    """The people of drawn photos, in a subfolder of a folder."""
    known, photos, out, model = (folder / name for name in ("known", "photos", "people", "drawn.onnx"))
    write_synthetic_faces(known, identities=60, images=6)
    calibrate(facerts.load().recognizer.opened.path, known, out=model, keep=[0.95])
    write_synthetic_faces(photos, identities=12, images=9, seed=11, degraded=0.12)
    write_non_faces(photos, images=4)
    find_people(facerts.load(model, detector="none"), photos, out)
    correct(out)
    numbers = [person.number for person in read_people(out).persons]
    for number, name in zip(numbers, NAMES, strict=False):
        name_person(out, number, name)
    people = name_person(out, numbers[-1], ".stranger").people
    write_people_page(people)
    return people


def correct(folder: Path) -> None:
    """Correct the groups as somebody would who knows the people, whom the names of the photos' folders tell."""
    people = read_people(folder)
    for person in people.persons:
        of = {row: owner(people, row) for row in person.rows.tolist()}
        for other, _ in Counter(of.values()).most_common()[1:]:
            faces = [people.face_id(row) for row, each in of.items() if each == other]
            move_faces(folder, faces, "new")
    people = read_people(folder)
    groups: dict[str, list[int]] = {}
    for person in people.persons:
        groups.setdefault(owner(people, int(person.rows[0])), []).append(person.number)
    for numbers in groups.values():
        if len(numbers) > 1:
            merge_people(folder, numbers)


def owner(people: People, row: int) -> str:
    """The drawn person of a face."""
    return Path(str(people.found.path[people.found.photos_of(row)[0]])).parent.name


def take(page: Path, out: Path, width: int, height: int, dark: bool) -> None:
    """Take the top of a page as a JPEG."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        raise SystemExit("the figures need Chromium: apt-get install chromium")
    with tempfile.TemporaryDirectory() as folder:
        shot = Path(folder) / "page.png"
        scheme = ["--blink-settings=preferredColorScheme=0"] * dark
        subprocess.run(
            [
                *(chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", *scheme),
                *(f"--screenshot={shot}", f"--window-size={width},{height}", page.resolve().as_uri()),
            ],
            check=True,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": folder},
        )
        image = cv2.imread(str(shot))
        assert image is not None
        cv2.imwrite(str(out), image, [cv2.IMWRITE_JPEG_QUALITY, 88])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="for the .jpg files")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        page = make_people(Path(folder)).folder / "index.html"
        for name, (width, height, dark) in FIGURES.items():
            take(page, options.out / name, width, height, dark)
            print(options.out / name)


if __name__ == "__main__":
    main()
