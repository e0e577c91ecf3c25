"""Figures of the documentation, from drawn people and scikit-image's sample images, by the model that ships.

python tools/docs_figures.py

draws all of them in docs/figures, and with names only these:

- scores: scored crops, at the top of the README;
- changes: twenty changes of a face;
- video: a frame of a video with its tracks, as ``facerts video --annotate`` draws it, at two widths;
- people: the page of people, 1,200 pixels wide, and 420 pixels wide and dark; it needs Chromium.
"""

from __future__ import annotations

import argparse
import base64
import csv
import os
import shutil
import subprocess
import tempfile
from collections import Counter
from html import escape
from pathlib import Path

import cv2
import numpy as np

import facerts
from facerts.calibration.quality_thresholds import calibrate
from facerts.datasets.synthetic import draw_face, write_non_faces, write_synthetic_faces
from facerts.detection import Detection
from facerts.images import changes, encode_jpeg, encode_png, fit_crop
from facerts.images.align import TEMPLATE, align
from facerts.images.changes import apply_change
from facerts.people import find_people, merge_people, move_faces, name_person, read_people
from facerts.report.people_page import write_people_page
from facerts.scoring.annotated_video import DrawnTrack, draw_tracks
from facerts.scoring.reasons import in_words
from facerts.scoring.sinks import from_cell
from facerts.scoring.video_tracks import TrackOptions
from facerts.video import open_frames

FIGURES = Path(__file__).parents[1] / "docs" / "figures"


# Scored crops.

# Eyes, nose and corners of the mouth of the astronaut (Eileen Collins, NASA) in scikit-image's sample image.
POINTS = [[200.1, 101.8], [247.1, 102.6], [220.4, 124.5], [198.6, 142.8], [239.7, 143.6]]
KEEP = 0.95
# Kinds and severities of facerts.images.changes; those with a star in the figure are held out of training.
CHANGES = (
    ("gray", 1.0), ("infrared", 1.0), ("tint", 1.0), ("swapped_channels", 1.0), ("dark", 0.6),
    ("low_contrast", 0.6), ("side_light", 0.8), ("halftone", 0.8), ("jpeg", 0.8), ("sepia", 1.0),
    ("equalized", 1.0), ("iso_noise", 0.3), ("blur", 0.6), ("defocus", 0.6), ("rotation", 0.5),
    ("zoom_in", 0.6), ("mask", 1.0), ("sunglasses", 1.0), ("hand", 0.8), ("white_margins", 0.7),
)  # fmt: skip


def gallery(rows, folder=Path()):
    """HTML of the crops listed in a .csv of rows, best first; the rows' paths are relative to ``folder``."""
    with rows.open(encoding="utf-8", newline="") as file:
        lines = sorted(csv.DictReader(file), key=lambda line: -float(line["quality"]))
    figures = []
    for line in lines:
        path = Path(from_cell(line["path"]))
        data = base64.b64encode((folder / path).read_bytes()).decode()
        decision = {"true": " accepted", "false": " rejected"}.get(line["accepted"], "")
        figures.append(
            f'<figure class="face{decision}"><img alt="" src="data:image/png;base64,{data}">'
            f"<figcaption>{escape(path.stem)}<br>{int(float(line['percentile']))}{decision}</figcaption></figure>"
        )
    return f'<div class="faces">{"".join(figures)}</div>'


def portrait():
    """The face that the figures show."""
    import skimage.data

    return align(skimage.data.astronaut(), POINTS)


def crops():
    """A face, degraded versions of it, and non-faces."""
    import skimage.data

    face = portrait()
    return {
        "original": face,
        "JPEG": apply_change(face, "jpeg", 0.75),
        "noise": apply_change(face, "noise", 0.5),
        "blur": apply_change(face, "blur", 0.75),
        "overexposed": apply_change(face, "bright", 0.75),
        "covered": apply_change(face, "occlusion", 0.75),
        "cat": fit_crop(np.ascontiguousarray(skimage.data.chelsea()[:300, 75:375])),
        "cup": fit_crop(np.ascontiguousarray(skimage.data.coffee()[:400, 100:500])),
    }


def changed():
    """A face with each of ``CHANGES``."""
    face = portrait()
    return {
        f"{kind.replace('_', ' ')}{' *' if changes.CHANGES[kind].held_out else ''}": apply_change(
            face, kind, severity, 3
        )
        for kind, severity in CHANGES
    }


def scored(named):
    """The name, crop and row of each image in the figure."""
    rows = facerts.load().score([encode_png(crop) for crop in named.values()], keep=KEEP)
    return list(zip(named, named.values(), rows, strict=True))


def draw_crops(named, path, rows, size):
    import matplotlib.pyplot as plt

    images = scored(named)
    figure, axes = plt.subplots(rows, len(images) // rows, figsize=size)
    for axis, (name, crop, row) in zip(axes.flat, images, strict=True):
        axis.imshow(crop)
        color = "#00796b" if row.accepted else "#c62828"
        axis.set_xticks([])
        axis.set_yticks([])
        for spine in axis.spines.values():
            spine.set(color=color, linewidth=3)
        axis.set_title(name, fontsize=12)
        # The first reason explains the others.
        decision = "accepted\n" if row.accepted else f"rejected\n{in_words(row.reasons[:1])}"
        axis.set_xlabel(f"{int(row.percentile)} of 100, {decision}", fontsize=11, color=color)
    figure.tight_layout(pad=0.4, h_pad=1.2)
    figure.savefig(path, dpi=120, pil_kwargs={"quality": 90})


# A frame of a video.

FPS, SHOWN = 5.0, 5
# Drawn faces are not such as the model knows; the better half of them is to count as good here.
MIN_QUALITY = 0.38
BACKGROUND = (186, 192, 196)
ASTRONAUT = 70, 300  # his left edge and his sides in the sample image
WIDTHS = {"video_frame.jpg": 1280, "video_frame_small.jpg": 640}


class KnownFaces:
    """A detector that knows where the faces of a scene are, as it has drawn them."""

    identity = "known faces"

    def __init__(self):
        self.faces = {}

    def __call__(self, image):
        return self.faces[hash(image.tobytes())]


def actors():
    """The people of the scene: image, points, and in parts of its width: width, left and top, and how they move."""
    import skimage.data

    left, side = ASTRONAUT
    astronaut = np.ascontiguousarray(skimage.data.astronaut()[:side, left : left + side])
    drawn = [
        (draw_face(identity, number), TEMPLATE.astype(np.float64), width, start, step)
        for identity, number, width, start, step in (
            (1, 1, 0.19, (0.44, 0.05), (0.004, 0.006)),
            (6, 0, 0.17, (0.81, 0.07), (-0.006, 0.004)),
            (3, 1, 0.18, (0.60, 0.31), (0.008, 0.0)),
        )
    ]
    return [(astronaut, np.array(POINTS) - [left, 0], 0.36, (0.02, 0.20), (0.004, 0.0)), *drawn]


def scene(width, number):
    """A frame of the scene and its faces."""
    frame = np.empty((width * 9 // 16, width, 3), np.uint8)
    frame[:] = BACKGROUND
    faces = []
    for image, points, share, start, step in actors():
        factor = share * width / image.shape[1]
        image = cv2.resize(image, None, fx=factor, fy=factor, interpolation=cv2.INTER_AREA)
        left, top = np.rint(width * (np.array(start) + number * np.array(step))).astype(int)
        height = min(image.shape[0], frame.shape[0] - top)
        frame[top : top + height, left : left + image.shape[1]] = image[:height]
        points = points * factor + [left, top]
        apart = np.linalg.norm(points[1] - points[0])
        middle = points.mean(axis=0)
        box = np.concatenate([middle - apart * np.array([1.05, 1.4]), middle + apart * np.array([1.05, 1.25])])
        faces.append(Detection(box, points, 0.9))
    return frame, sorted(faces, key=lambda face: -face.area)


def video_frame(width):
    """The frame with its tracks."""
    detector, frames = KnownFaces(), []
    for number in range(2 * SHOWN):
        pixels, faces = scene(width, number)
        detector.faces[hash(pixels.tobytes())] = faces
        frames.append(pixels)
    scorer = facerts.load(threads=1)
    scorer.detector = detector
    source = open_frames(frames)
    boxes = {}
    run = scorer.track(source, TrackOptions(fps=FPS), scorer.track_row_builder(min_quality=MIN_QUALITY))
    for number, frame in enumerate(run.frames()):
        boxes[number] = [
            (part, face.row.box, face.row.percentile) for part, face in zip(frame.parts, frame.faces, strict=True)
        ]
    tracks = {part: DrawnTrack(track.number, not track.too_poor) for track in run.finish() for part in track.parts}
    return draw_tracks(frames[SHOWN], boxes[SHOWN], tracks)


# The page of people.

NAMES = ("Anna", "Ben", "Chloé")
# Width and height in pixels, and whether the figure is dark.
PAGES = {"people.jpg": (1200, 1180, False), "people_narrow.jpg": (420, 1180, True)}


def make_people(folder):
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


def correct(folder):
    """Correct the groups as somebody would who knows the people, whom the names of the photos' folders tell."""
    people = read_people(folder)
    for person in people.persons:
        of = {row: owner(people, row) for row in person.rows.tolist()}
        for other, _ in Counter(of.values()).most_common()[1:]:
            faces = [people.face_id(row) for row, each in of.items() if each == other]
            move_faces(folder, faces, "new")
    people = read_people(folder)
    groups = {}
    for person in people.persons:
        groups.setdefault(owner(people, int(person.rows[0])), []).append(person.number)
    for numbers in groups.values():
        if len(numbers) > 1:
            merge_people(folder, numbers)


def owner(people, row):
    """The drawn person of a face."""
    return Path(str(people.found.path[people.found.photos_of(row)[0]])).parent.name


def take(page, out, width, height, dark):
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
        cv2.imwrite(str(out), image, [cv2.IMWRITE_JPEG_QUALITY, 88])


# The figures.


def scores(folder):
    draw_crops(crops(), folder / "scores.jpg", 2, (7.6, 5.2))


def twenty_changes(folder):
    draw_crops(changed(), folder / "changes.jpg", 4, (9.5, 10.4))


def video(folder):
    for name, width in WIDTHS.items():
        (folder / name).write_bytes(encode_jpeg(video_frame(width), 88))


def people(folder):
    with tempfile.TemporaryDirectory() as scratch:
        page = make_people(Path(scratch)).folder / "index.html"
        for name, (width, height, dark) in PAGES.items():
            take(page, folder / name, width, height, dark)


DRAWN = {"scores": scores, "changes": twenty_changes, "video": video, "people": people}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", help="figures to draw; all by default")
    names = parser.parse_args().names or [*DRAWN]
    if unknown := set(names) - set(DRAWN):
        parser.error(f"no figure {min(unknown)}")
    for each in names:
        DRAWN[each](FIGURES)
