"""How often the first reason of a poor face is the right one, and how often a clean face has a reason.

python eval/reasons.py --data held-out.tar --non-faces pets --non-faces-fold '*[!01].jpg' --detector yunet.onnx \\
    --clean lfw --clean aaf --photos photos/lfw

Faces of held-out people are degraded by the kinds of eval/degraded_faces.py, at severities drawn uniformly from 0.5 to
1. Only those count that became poor: the model's quality falls below its threshold that keeps 95% of the faces, or the
similarity to the same crop before below the match threshold at FMR 0.001. Limits were chosen on the first half of the
people; the others confirm them, also with kinds that nothing was chosen on.

Beside it stands the lowest component of the quality formula of insightface's server (server/backend/
insightface_server/inference/quality.py: detector, sharpness, brightness, size, pose). It needs a photo, so crops lie on
a larger canvas, continued at the border. A low component of the detector counts as right for non-faces.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from time import process_time

import cv2
import numpy as np
from common import open_people, parser_of, percent, run, share
from degraded_faces import CHOSEN_ON, CONFIRMED_ON, Degradation
from numpy.typing import NDArray

import facerts
from facerts.datasets import Source, open_images
from facerts.detection import Detection, OpenDetector, open_detector
from facerts.embedding import FaceOutputs
from facerts.galleries import Enrollments
from facerts.images import CROP_SIZE, decode
from facerts.images.align import align
from facerts.metrics.intervals import percentile_interval, subject_counts
from facerts.metrics.verification import auroc
from facerts.report.table import markdown_table
from facerts.scoring import Scorer, reasons

Image = NDArray[np.uint8]
Crops = NDArray[np.uint8]
SECTIONS = ("crops", "photos", "clean", "pose", "time")
FORMULA = "lowest component of the formula"
KEEP, FMR = 0.95, 0.001
SEVERITIES = 0.5, 1.0
# Photos are three crops wide; eyes are this many pixels apart in a crop.
MARGIN, EYE_DISTANCE = CROP_SIZE, 35.24
SMALLEST, LARGEST = 4.0, 12.0
CUTS = 0.2, 0.6
ROLLS = (-60, -30, 0, 30, 60)
TIMED, ROUNDS = 128, 9
# What each low component of the formula says, darkness and brightness by the side on which it is low.
COMPONENTS = {
    "detector": reasons.NOT_A_FACE,
    "sharpness": reasons.BLURRED,
    "dark": reasons.UNDER_EXPOSED,
    "bright": reasons.OVER_EXPOSED,
    "size": reasons.TOO_SMALL,
    "pose": reasons.TURNED,
}


rate = partial(share, form=".1f")


def main() -> None:
    options = arguments()
    scorer = facerts.load(options.model, threads=1)
    detector = open_detector(options.detector, threshold=options.det_threshold)
    crops, first_half = held_out(options.data, options.images)
    pets = non_faces(options.non_faces, options.non_faces_fold)
    confirm(scorer, detector, crops[~first_half], pets, options)


def arguments() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("--data", nargs="+", required=True, help="Held-out faces with identities.")
    parser.add_argument("--images", type=int, default=5, help="Maximum number of images per person (default: 5).")
    parser.add_argument("--non-faces", required=True, help="Crops that are not faces.")
    parser.add_argument("--non-faces-fold", default="*", help="Pattern of the non-faces' names to use.")
    parser.add_argument("--clean", action="append", default=[], help="More clean crops, for false reasons.")
    parser.add_argument("--photos", action="append", default=[], help="Photos of clean faces, likewise.")
    parser.add_argument("--cfp", help="CFP's images, for the section pose.")
    parser.add_argument("--most", type=int, default=1000, help="Maximum number of those crops of each source.")
    parser.add_argument("--model", help="Recognizer (default: the default one).")
    parser.add_argument("--detector", type=Path, required=True, help="YuNet or SCRFD.")
    parser.add_argument(
        "--only", nargs="+", choices=SECTIONS, default=SECTIONS, help="Sections to print (default: all)."
    )
    parser.add_argument("--det-threshold", type=float, default=0.6, help="Minimum detector score (default: 0.6).")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


# Faces.


def held_out(data: Sequence[str], images: int) -> tuple[Crops, NDArray[np.bool_]]:
    """Up to so many crops of each person, and whether they are of the first half of the people."""
    source, labels = open_people(data)
    chosen = np.concatenate([np.flatnonzero(labels == label)[:images] for label in np.unique(labels)])
    return read_crops(source, chosen), labels[chosen] < np.median(np.unique(labels))


def non_faces(folder: str, pattern: str) -> Crops:
    source = open_images(folder)
    return read_crops(source, [index for index in range(len(source)) if fnmatch(source.location(index), pattern)])


def read_crops(source: Source, indices: Sequence[int] | NDArray[np.integer]) -> Crops:
    return np.stack([source.crop(int(index)) for index in indices])


def degrade_all(crops: Crops, degradation: Degradation, seed: tuple[int, ...]) -> Crops:
    random = np.random.default_rng(seed)
    return np.stack([degradation(crop, random.uniform(*SEVERITIES), random) for crop in crops])


def is_poor(scorer: Scorer, outputs: FaceOutputs | Enrollments, clean: FaceOutputs | Enrollments) -> NDArray[np.bool_]:
    """Whether the quality is too low, or the similarity to the clean image."""
    assert outputs.quality is not None
    cosines = np.sum(outputs.embedding * clean.embedding, axis=1)
    return np.asarray(
        (outputs.quality < scorer.threshold(KEEP)) | (cosines < scorer.recognizer.match_threshold(FMR).similarity)
    )


# Confirming.


def confirm(scorer: Scorer, detector: OpenDetector, crops: Crops, pets: Crops, options: argparse.Namespace) -> None:
    """Print the tables of docs/results/reasons.md."""
    header = ["degradation", "right reason", "poor faces", "right, %", f"{FORMULA} right, %"]
    if "crops" in options.only:
        print(f"Right reason first, on {len(crops)} crops of the people to confirm on\n")
        print(markdown_table(header, list(crop_rows(scorer, detector, crops, pets, options.seed))))
    if "photos" in options.only:
        print("\nRight reason first, in photos\n")
        print(markdown_table(header, list(photo_rows(scorer, detector, crops, options.seed))))
    if "clean" in options.only:
        print("\nFalse reasons on clean faces\n")
        rows = list(false_rows(scorer, detector, crops, options))
        print(markdown_table(["clean faces", "number", "with a reason, %", "reasons"], rows))
    if "pose" in options.only:
        print("\nPose: medians, 5 to 95%\n")
        header = ["faces", "found, %", "turned, %", "yaw", "change of the yaw", "error of the roll"]
        rows = [*pose_rows(detector, crops), *(cfp_rows(detector, options.cfp) if options.cfp else [])]
        print(markdown_table(header, rows))
    if "time" in options.only:
        print("\nProcessor time per crop, medians of rounds that alternate\n")
        print(markdown_table(["model, ms", "reasons, ms", "more, %"], [time_row(scorer, crops[:TIMED])]))


def row(name: str, reason: str, found: list[list[str]], formula: list[str]) -> list[str]:
    """How often the first of the found reasons is the right one, and the formula's."""
    right = np.array([names[:1] == [reason] for names in found])
    return [
        name,
        reason,
        str(len(found)),
        rate(right),
        rate(np.array([name == reason for name in formula], dtype=bool)),
    ]


def crop_rows(scorer: Scorer, detector: OpenDetector, crops: Crops, pets: Crops, seed: int) -> Iterator[list[str]]:
    def crop_row(name: str, reason: str, crops: Crops, outputs: FaceOutputs) -> list[str]:
        formula = [lowest_component(photo_of(crop), detector) for crop in crops]
        return row(name, reason, crop_names(scorer, crops, outputs), formula)

    clean = scorer.embed(crops)
    for number, (name, (reason, degradation)) in enumerate(CONFIRMED_ON.items()):
        changed = degrade_all(crops, degradation, (seed, number, 2))
        outputs = scorer.embed(changed)
        poor = np.flatnonzero(is_poor(scorer, outputs, clean))
        label = f"{name} (chosen on)" if name in CHOSEN_ON else name
        if reason in reasons.REASONS:
            yield crop_row(label, reason, changed[poor], outputs.take(poor))
    yield crop_row("pets", reasons.NOT_A_FACE, pets, scorer.embed(pets))


def photo_rows(scorer: Scorer, detector: OpenDetector, crops: Crops, seed: int) -> Iterator[list[str]]:
    clean = scorer.embed(crops)
    for name, reason, change in (
        ("small in the photo", reasons.TOO_SMALL, small_photo),
        ("cut by the photo's border", reasons.CUT_OFF, cut_photo),
    ):
        random = np.random.default_rng((seed, 3))
        photos = [change(photo_of(crop), random) for crop in crops]
        faces = [detector(photo)[:1] for photo in photos]
        found = np.flatnonzero([bool(face) for face in faces])
        aligned = np.stack([align(photos[index], faces[index][0].points) for index in found])
        outputs = scorer.embed(aligned)
        names = crop_names(scorer, aligned, outputs)
        # Few found faces are poor, so those that were poor before would count.
        poor = is_poor(scorer, outputs, clean.take(found)) & ~is_poor(scorer, clean, clean)[found]
        places = [(place, found[place]) for place in np.flatnonzero(poor)]
        yield row(
            name,
            reason,
            [in_photo(names[place], faces[index][0], photos[index]) for place, index in places],
            [lowest_component(photos[index], detector) for _, index in places],
        )


def false_rows(
    scorer: Scorer, detector: OpenDetector, crops: Crops, options: argparse.Namespace
) -> Iterator[list[str]]:
    def false_row(name: str, found: list[list[str]]) -> list[str]:
        counts = {reason: sum(reason in names for names in found) for reason in reasons.REASONS}
        listed = ", ".join(f"{reason} {count}" for reason, count in counts.items() if count)
        return [name, str(len(found)), rate(np.array([bool(names) for names in found])), listed or "–"]

    yield false_row("held-out people", crop_names(scorer, crops))
    folders = [(folder, False) for folder in options.clean] + [(folder, True) for folder in options.photos]
    for folder, of_photos in folders:
        source = open_images(folder)
        chosen = np.sort(np.random.default_rng(options.seed).permutation(len(source))[: options.most])
        if not of_photos:
            yield false_row(source.name, crop_names(scorer, read_crops(source, chosen)))
        else:
            images = (decode(source.read(int(index)), where=source.location(int(index))) for index in chosen)
            yield false_row(f"photos {source.name}", photo_names(scorer, detector, images))


def crop_names(scorer: Scorer, crops: Crops, outputs: FaceOutputs | None = None) -> list[list[str]]:
    """The reasons of each crop."""
    outputs = scorer.embed(crops) if outputs is None else outputs
    return [[*reasons.model_reasons(outputs, at), *reasons.crop_reasons(crop)] for at, crop in enumerate(crops)]


def photo_names(scorer: Scorer, detector: OpenDetector, photos: Iterator[Image]) -> list[list[str]]:
    """The reasons of the largest face of each photo."""
    names = []
    for photo in photos:
        for face in detector(photo)[:1]:
            (by_crop,) = crop_names(scorer, align(photo, face.points)[None])
            names.append(in_photo(by_crop, face, photo))
    return names


def in_photo(by_crop: list[str], face: Detection, photo: Image) -> list[str]:
    """The reasons of a face in a photo, in the order of rows."""
    return [*reasons.in_order([*by_crop, *reasons.detection_reasons(face, *photo.shape[:2])])]


def photo_of(crop: Image) -> Image:
    return np.asarray(cv2.copyMakeBorder(crop, *[MARGIN] * 4, cv2.BORDER_REPLICATE))


def small_photo(photo: Image, random: np.random.Generator) -> Image:
    """The photo downscaled so that the eyes are 4 to 12 pixels apart."""
    side = round(photo.shape[0] * random.uniform(SMALLEST, LARGEST) / EYE_DISTANCE)
    return np.asarray(cv2.resize(photo, (side, side), interpolation=cv2.INTER_AREA))


def cut_photo(photo: Image, random: np.random.Generator) -> Image:
    """The photo without 20 to 60% of the crop, from the left, the right, above or below."""
    lost = MARGIN + round(random.uniform(*CUTS) * CROP_SIZE)
    turns = int(random.integers(4))
    return np.ascontiguousarray(np.rot90(np.rot90(photo, turns)[lost:], -turns))


def lowest_component(photo: Image, detector: OpenDetector) -> str:
    """The reason that the lowest component of the formula names; the detector's if there is no face."""
    faces = detector(photo)[:1]
    if not faces:
        return COMPONENTS["detector"]
    (face,) = faces
    left, top = np.maximum(0, np.floor(face.box[:2])).astype(int)
    right, bottom = np.ceil(face.box[2:]).astype(int)
    gray = cv2.cvtColor(photo[top:bottom, left:right], cv2.COLOR_RGB2GRAY)
    eyes, mouth = face.points[:2].mean(axis=0), face.points[3:].mean(axis=0)
    across = face.points[1] - face.points[0]
    yaw = (face.points[2, 0] - eyes[0]) / max(float(np.linalg.norm(across)), 1e-6) * 90
    pitch = ((face.points[2, 1] - eyes[1]) / max(mouth[1] - eyes[1], 1e-6) - 0.45) * 90
    roll = np.degrees(np.arctan2(across[1], across[0]))
    brightness = float(gray.mean()) / 255
    components = {
        "detector": face.score,
        "sharpness": 1 - float(np.exp(-cv2.Laplacian(gray, cv2.CV_64F).var() / 100)),
        "dark" if brightness < 0.5 else "bright": 1 - abs(brightness - 0.5) / 0.5,
        "size": min(1.0, float(np.min(face.box[2:] - face.box[:2])) / 80),
        "pose": max(0.0, 1 - max(abs(yaw), abs(pitch), abs(roll)) / 90),
    }
    return COMPONENTS[min(components, key=components.__getitem__)]


def pose_rows(detector: OpenDetector, crops: Crops) -> Iterator[list[str]]:
    """Held-out faces, rotated in the plane by known angles."""
    photos = [photo_of(crop) for crop in crops]
    upright = poses(detector, photos)
    for angle in ROLLS:
        matrix = cv2.getRotationMatrix2D([(3 * CROP_SIZE - 1) / 2] * 2, -angle, 1)
        found = poses(detector, [np.asarray(cv2.warpAffine(photo, matrix, photo.shape[:2])) for photo in photos])
        yaw, _, roll = (found - upright - [0, 0, angle]).T
        yield [f"held-out people, rotated by {angle}°", *pose_cells(found), spread(yaw), spread(roll)]


def cfp_rows(detector: OpenDetector, folder: str) -> Iterator[list[str]]:
    """CFP's two views, and how well the yaw separates them where a face is found, with people resampled."""
    source = open_images(folder)
    names, views = np.array([Path(source.location(at)).parts[-3:-1] for at in range(len(source))]).T
    found = poses(detector, (photo_of(source.crop(at)) for at in range(len(source))))
    for view in ("frontal", "profile"):
        yield [f"CFP, {view}", *pose_cells(found[views == view]), "–", "–"]
    seen = np.flatnonzero(~np.isnan(found[:, 0]))
    people = np.unique(names[seen], return_inverse=True)[1]
    counts = [np.ones(people.max() + 1), *subject_counts(people.max() + 1, 1000, seed=0)]
    drawn = [np.repeat(seen, times[people].astype(int)) for times in counts]
    area, *resampled = (auroc(np.abs(found[rows, 0]), views[rows] == "profile") for rows in drawn)
    yield ["CFP, AUROC in %", percent(area, percentile_interval(np.array(resampled))), *"––––"]


def poses(detector: OpenDetector, photos: Iterable[Image]) -> NDArray[np.float64]:
    """Yaw, pitch and roll of the largest face of each photo, ``(N, 3)``; NaN without one."""
    found = (detector(photo) for photo in photos)
    return np.array([faces[0].pose if faces else [np.nan] * 3 for faces in found])


def pose_cells(found: NDArray[np.float64]) -> list[str]:
    """The share with a face, the share of these that are turned, and their yaw to either side."""
    seen = ~np.isnan(found[:, 0])
    yaw = np.abs(found[seen, 0])
    return [rate(seen), rate(yaw > reasons.MAX_YAW), spread(yaw)]


def spread(degrees: NDArray[np.float64]) -> str:
    low, middle, high = np.nanquantile(degrees, [0.05, 0.5, 0.95])
    return f"{middle:.1f}°, {low:.1f}° to {high:.1f}°"


def time_row(scorer: Scorer, crops: Crops) -> list[str]:
    """Processor time, which other load on the machine changes less than the clock."""
    times = []
    for _ in range(ROUNDS):
        start = process_time()
        outputs = scorer.embed(crops)
        middle = process_time()
        crop_names(scorer, crops, outputs)
        times.append((middle - start, process_time() - middle))
    model, found = np.median(times, axis=0) / len(crops) * 1000
    return [f"{model:.2f}", f"{found:.3f}", f"{100 * found / model:.1f}"]


if __name__ == "__main__":
    run(main)
