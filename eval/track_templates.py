"""What a track's template should be: frames weighted by quality, all alike, or one of them.

python eval/track_templates.py --model facerts-small --data $FACERTS_DATA/faces/val-000000.tar
python eval/track_templates.py --model facerts-small --clips $FACERTS_DATA/videos/people.csv --detector yunet.onnx

A track of held-out faces is one image as several frames, each of which is degraded at random with the probability
--share, or shifted by inaccurate landmarks. Tracks of different images of all people are compared: FNMR at FMR 0.001,
with 95% intervals from resamples of the people, its difference from the mean of all frames, resample by resample, and
the FMR at the model's own threshold for 0.001, which was chosen on single images.

The clips are those of a table with the columns clip and person; tracks are the largest face of every --every-th frame,
as it is and with --share of the frames degraded. There are too few pairs for a threshold of their own, so FNMR and FMR
are at the model's threshold for FMR 0.001; d' is the distance of the mean cosines in standard deviations.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from common import number, open_people, parser_of, percent, run
from image_sets import jittered
from numpy.typing import NDArray

from facerts.datasets import Source
from facerts.datasets.changed import degradation
from facerts.errors import DataError
from facerts.evaluation.similarity import compare_images
from facerts.images.corruptions import degrade
from facerts.images.measures import measure_crop
from facerts.metrics.intervals import percentile_interval
from facerts.metrics.pooling import face_weights, pool, ranked_weights
from facerts.report.table import markdown_table
from facerts.scoring import Scorer, load

FMR = 1e-3
REPLICATES = 300
MEAN = "mean of all frames"
Image = NDArray[np.uint8]


@dataclass(frozen=True)
class Frames:
    """Faces in frames, ``(N,)`` each, in the order of their tracks and times.

    Attributes:
        track: number of each frame's track, from 0.
        uncertainty: RTS's v; NaN where the model has another one.
        det_score: the detector's; NaN for crops.
    """

    track: NDArray[np.int64]
    embedding: NDArray[np.float32]
    quality: NDArray[np.float64]
    percentile: NDArray[np.float64]
    uncertainty: NDArray[np.float64]
    sharpness: NDArray[np.float64]
    det_score: NDArray[np.float64]


def main() -> None:
    options = arguments()
    scorer = load(options.model, detector=options.detector, threads=options.threads)
    if options.data:
        print(held_out_table(scorer, options))
    if options.clips:
        print(clips_table(scorer, options))


def arguments() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("--model", default="facerts-small", help="Model (default: facerts-small).")
    parser.add_argument("--data", help="Held-out faces with identities, as crops.")
    parser.add_argument("--clips", type=Path, help="Table of clips and people (CSV), beside the clips.")
    parser.add_argument("--detector", default="none", help="Detector, for clips.")
    parser.add_argument("--frames", type=int, default=6, help="Frames of each track of crops (default: 6).")
    parser.add_argument("--every", type=int, default=3, help="Use every N-th frame of clips (default: 3).")
    parser.add_argument("--share", type=float, default=0.75, help="Share of degraded frames (default: 0.75).")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of the model (default: 1).")
    return parser.parse_args()


# The templates.

Weights = Callable[[Frames], NDArray[np.float64]]


def best_by(values: Callable[[Frames], NDArray[np.float64]]) -> Weights:
    """All weight on the frame of each track with the highest value, the first of equal ones."""

    def weights(frames: Frames) -> NDArray[np.float64]:
        order = np.lexsort((-values(frames), frames.track))
        first = np.r_[True, np.diff(frames.track[order]) > 0]
        chosen = np.zeros(len(order))
        chosen[order[first]] = 1.0
        return chosen

    return weights


TEMPLATES: dict[str, Weights] = {
    MEAN: lambda frames: np.ones(len(frames.track)),
    "weighted by 1 / v": lambda frames: 1 / frames.uncertainty,
    "weighted by 1 / v⁴": lambda frames: frames.uncertainty**-4,
    "weighted by percentile, as in tracks and galleries": lambda frames: face_weights(frames.percentile),
    "best shot by quality": best_by(lambda frames: frames.quality),
    "weighted by rank of sharpness": lambda frames: ranked_weights(frames.sharpness),
    "sharpest frame": best_by(lambda frames: frames.sharpness),
    "weighted by detector score": lambda frames: frames.det_score,
    "frame with the best detector score": best_by(lambda frames: frames.det_score),
    "first frame": best_by(lambda frames: -np.arange(len(frames.track), dtype=np.float64)),
    "random frame": best_by(lambda frames: np.random.default_rng(0).random(len(frames.track))),
}


def templates(frames: Frames) -> dict[str, NDArray[np.float32]]:
    """``(T, d)`` templates of all tracks, in each way that the frames' values allow."""
    made = {}
    for name, weigh in TEMPLATES.items():
        weights = weigh(frames)
        if np.isfinite(weights).all() and (weights >= 0).all() and not np.isnan(_needed(name, frames)).any():
            used = weights > 0
            made[name] = pool(frames.embedding[used], frames.track[used], weights=weights[used])
    return made


def _needed(name: str, frames: Frames) -> NDArray[np.float64]:
    return frames.det_score if "detector" in name else frames.quality


# Held-out people.


def held_out_table(scorer: Scorer, options: argparse.Namespace) -> str:
    source, person = open_people(options.data)
    crops, track = [], []
    for index in range(len(source)):
        crops += [frame_of(source, index, at, options.share) for at in range(options.frames)]
        track += [index] * options.frames
    made = templates(frames_of(scorer, crops, np.array(track)))
    measured = {name: fnmr(each, person) for name, each in made.items()}
    rows = [
        [
            name,
            percent(values[0], percentile_interval(values[1:])),
            "–" if name == MEAN else percent(*difference(values, measured[MEAN])),
            percent(fmr_at(own_threshold(scorer), made[name], person), form=".3f"),
        ]
        for name, values in measured.items()
    ]
    header = [f"template of {options.frames} frames", "FNMR at FMR 0.001, %", "minus the mean's"]
    return markdown_table([*header, "FMR at the model's threshold for 0.001, %"], rows)


def own_threshold(scorer: Scorer) -> float:
    """The model's threshold for FMR 0.001 of single images."""
    return scorer.match_rule(fmr=FMR, min_quality=float("-inf")).threshold


def fmr_at(threshold: float, template: NDArray[np.float32], person: NDArray[np.int64]) -> float:
    pairs = compare_images("tracks", template, person)
    return pairs.accepted(threshold) / pairs.impostors


def frame_of(source: Source, index: int, at: int, share: float) -> Image:
    """One of the frames of an image, degraded or only shifted."""
    crop = source.crop(index)
    kind, severity = degradation(index, at, share)
    return degrade(crop, kind, severity, (at, index, 0)) if severity else jittered(crop, index, at)


def fnmr(template: NDArray[np.float32], person: NDArray[np.int64]) -> NDArray[np.float64]:
    """The rate, and then that of each resample of the people, each at its own threshold."""
    pairs = compare_images("tracks", template, person)
    values = [float(np.mean(pairs.genuine < pairs.threshold(FMR)))]
    order = np.argsort(pairs.genuine, kind="stable")
    genuine, units = pairs.genuine[order], pairs.genuine_units[order]
    for (limit,), drawn in pairs.resampled([FMR], replicates=REPLICATES):
        counts = np.append(0.0, np.cumsum(drawn[units], dtype=np.float64))
        values.append(float(counts[np.searchsorted(genuine, limit, side="right")] / counts[-1]))
    return np.array(values)


def difference(values: NDArray[np.float64], others: NDArray[np.float64]) -> tuple[float, tuple[float, float]]:
    each = values - others
    return float(each[0]), percentile_interval(each[1:])


# Clips.


def clips_table(scorer: Scorer, options: argparse.Namespace) -> str:
    with options.clips.open(encoding="utf-8", newline="") as file:
        listed = [(row["clip"], row["person"]) for row in csv.DictReader(file)]
    person = np.unique([who for _, who in listed], return_inverse=True)[1]
    tracks = [clip_frames(scorer, options.clips.parent / clip, options.every) for clip, _ in listed]
    rows = []
    for share in (0.0, options.share):
        crops, scores, track = [], [], []
        for number_of, faces in enumerate(tracks):
            for at, (crop, score) in enumerate(faces):
                kind, severity = degradation(at, number_of, share)
                crops.append(degrade(crop, kind, severity, (number_of, at, 0)) if severity else crop)
                scores.append(score)
                track.append(number_of)
        frames = frames_of(scorer, crops, np.array(track), np.array(scores))
        threshold = own_threshold(scorer)
        for name, template in templates(frames).items():
            rows.append([f"{share:.0%} degraded", name, *errors(template, person, threshold)])
    return markdown_table(["frames", "template", "FNMR, %", "FMR, %", "lowest genuine cosine", "d'"], rows)


def clip_frames(scorer: Scorer, path: Path, every: int) -> list[tuple[Image, float]]:
    """The crop and detector score of the largest face of every N-th frame that has one."""
    video, found, at = cv2.VideoCapture(str(path)), [], 0
    while (read := video.read())[0]:
        if at % every == 0:
            for face in scorer.faces(read[1], color="BGR", largest=True):
                found.append((face.crop, float("nan") if face.det_score is None else face.det_score))
        at += 1
    if not found:
        raise DataError(f"{path}: no face in any frame")
    return found


def errors(
    template: NDArray[np.float32], person: NDArray[np.int64], threshold: float
) -> tuple[str, str, str, str]:
    first, second = np.triu_indices(len(person), 1)
    cosine = np.einsum("ij,ij->i", template[first], template[second])
    same = person[first] == person[second]
    genuine, impostor = cosine[same], cosine[~same]
    spread = np.sqrt((genuine.var() + impostor.var()) / 2)
    return (
        f"{percent(float(np.mean(genuine < threshold)))} of {len(genuine)}",
        f"{percent(float(np.mean(impostor >= threshold)))} of {len(impostor)}",
        number(float(genuine.min()), form=".3f"),
        number(float((genuine.mean() - impostor.mean()) / spread), form=".2f"),
    )


# Shared.


def frames_of(
    scorer: Scorer,
    crops: list[Image],
    track: NDArray[np.int64],
    det_score: NDArray[np.float64] | None = None,
) -> Frames:
    batch = scorer.embedder.batch_size
    parts = [scorer.embedder(np.stack(crops[at : at + batch])) for at in range(0, len(crops), batch)]
    embedding = np.concatenate([part.embedding for part in parts])
    quality = np.concatenate([part.quality for part in parts]).astype(np.float64)
    uncertainty = np.concatenate([part.uncertainty for part in parts]).astype(np.float64)
    calibration = scorer.embedder.description.calibration
    percentile = [calibration.percentile(each) for each in quality.tolist()]
    return Frames(
        track,
        embedding,
        quality,
        np.array(percentile, dtype=np.float64),
        uncertainty if (uncertainty > 0).all() else np.full(len(track), np.nan),
        np.array([measure_crop(crop).sharpness for crop in crops]),
        np.full(len(track), np.nan) if det_score is None else det_score,
    )


if __name__ == "__main__":
    run(main)
