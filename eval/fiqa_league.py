"""The quality league: which quality predicts whose errors, on real faces.

python eval/fiqa_league.py --data $FACERTS_DATA --models $FACERTS_MODELS --out league

Judges facerts-small, facerts-quality, LightQNet, the recognizers' norms, sharpness and YuNet's score on four
recognizers: on all pairs of LFW and of the held-out people, and on the pairs of a frontal and a profile image of CFP,
as they are and with half of the images degraded. Separates their faces, those of All-Age-Faces and those of RAF-DB (as
they come, and aligned again by YuNet) from cats and dogs. Further qualities, such as models of other methods or the
scores of a table, are added with --quality. LFW, CFP, RAF-DB and these cats and dogs were not used to choose anything
in the models that ship.

With --training-free, the recognizers' own training-free scores take part, too (froq chooses layers by 200 faces of the
training set), and with --sets only some of the sets are measured. A second run with the same --out needs only the
forward passes of what is new.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from align_crops import found_faces
from common import parser_of, run
from image_sets import open_image_set

from facerts.datasets import PairBenchmark, Source, Subset, open_benchmarks, open_source
from facerts.detection import open_detector
from facerts.embedding import load_embedder
from facerts.embedding.output_cache import OutputCache
from facerts.evaluation.evaluation_options import EvaluationOptions, open_without
from facerts.evaluation.face_sets import FaceSet, open_face_sets
from facerts.evaluation.image_groups import Groups, read_groups
from facerts.evaluation.league import FiqaOptions, run_fiqa
from facerts.evaluation.lineup import EVERY_SCORE, Lineup, open_qualities, open_recognizers
from facerts.hub.find import find_model
from facerts.report.page import write_folder_report

RECOGNIZERS = {
    "mobilefacenet": "mobilefacenet.onnx",
    "GNAP": "mobilefacenet_gnap.onnx",
    "EdgeFace-XS": "edgeface_xs_q.onnx",
}
OWN, ALONE = "facerts-small", "facerts-quality"
DETECTOR = "face_detection_yunet_2023mar.onnx"
DETECTOR_THRESHOLD = 0.02
SEED = 0
AGE, AGES = re.compile(r"a(\d+)\."), "age=13,20,40,60"
FOR_DEVELOPMENT = "*[01].jpg"
SETS = ("heldout", "lfw", "cfp", "aaf", "rafdb")
# Pairs of a frontal and a profile image of two people, drawn from all of them.
IMPOSTORS = 300_000
# Of the training set, for the score froq; each takes 75 forward passes of each recognizer.
CALIBRATION_FACES = 200
# Of every held-out image, for decisions; see image_sets.py.
CHANGED_SETS = ("degraded", "misaligned")


def main() -> None:
    options = arguments()
    models = options.models
    detector = open_detector(models / DETECTOR, threshold=DETECTOR_THRESHOLD, rotate=False)
    cache = OutputCache(options.cache or options.out / "cache")
    evaluation = EvaluationOptions(flip=False, batch_size=16, detector_baseline=detector, cache=cache)
    recognizers = open_recognizers(
        [f"{label}={models / RECOGNIZERS[label]}" if label in RECOGNIZERS else label for label in options.recognizers],
        lambda path: load_embedder(find_model(path), threads=1, batch_size=16),
        options.training_free,
        calibration_faces(options.data) if {"froq", EVERY_SCORE} & set(options.training_free) else None,
    )
    qualities = open_qualities(
        [OWN, ALONE, f"LightQNet={models / 'lightqnet.onnx'}", *options.quality],
        descriptions=[f"LightQNet={Path(__file__).with_name('lightqnet.json')}", *options.describe],
        detector=detector,
        threads=1,
        batch_size=16,
    )
    lineup = Lineup.of(recognizers, qualities)
    pets = open_without(str(options.data / "pets"), FOR_DEVELOPMENT)
    sets = list(face_sets(options, evaluation))
    for ages in (False, True):
        chosen = [faces for faces, has_ages in sets if has_ages == ages]
        if chosen:
            run_fiqa(
                lineup,
                chosen,
                options.out,
                FiqaOptions(
                    against=options.against,
                    degraded=any(faces.has_pairs for faces in chosen),
                    replicates=options.replicates,
                    groups=by_age(chosen[0].images, options.out) if ages else None,
                ),
                evaluation,
                others={pets.name: pets},
                excluded=FOR_DEVELOPMENT,
            )
    write_folder_report(options.out, title="Quality league")
    print((options.out / "tables.md").read_text(encoding="utf-8"))


def arguments() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="Folder of the data sets.")
    parser.add_argument("--models", type=Path, required=True, help="Folder of the recognizers and rivals.")
    parser.add_argument("--out", type=Path, required=True, help="Result folder.")
    parser.add_argument("--cache", type=Path, help="Folder of the cached outputs; default: cache in --out.")
    parser.add_argument(
        "--recognizers",
        nargs="+",
        choices=(*RECOGNIZERS, OWN),
        default=[*RECOGNIZERS, OWN],
        help="Recognizers; all by default.",
    )
    parser.add_argument("--quality", nargs="+", default=[], metavar="[LABEL=]MODEL", help="Further qualities to judge.")
    parser.add_argument(
        "--describe",
        nargs="+",
        default=[],
        metavar="LABEL=FILE.json",
        help="Descriptions of these qualities.",
    )
    parser.add_argument("--against", default=OWN, help=f"Quality to compare the others with (default: {OWN}).")
    parser.add_argument(
        "--training-free",
        nargs="+",
        default=[],
        metavar="SCORE",
        help="Training-free scores of the recognizers: mirror, pruning, dropout, froq, all.",
    )
    parser.add_argument(
        "--sets",
        nargs="+",
        choices=(*SETS, *CHANGED_SETS),
        default=list(SETS),
        help=f"Sets; by default {', '.join(SETS)}. degraded and misaligned are the held-out images, all changed.",
    )
    parser.add_argument("--replicates", type=int, default=300, help="Bootstrap resamples of the people (default: 300).")
    return parser.parse_args()


def calibration_faces(data: Path) -> Source:
    """Evenly spaced faces that the recognizers' score froq chooses layers by."""
    source = open_source(data / "faces/train-000000.tar")
    rows = np.linspace(0, len(source) - 1, min(CALIBRATION_FACES, len(source))).astype(int)
    return Subset(source, rows)


def by_age(faces: Source, out: Path) -> Groups:
    """The groups of All-Age-Faces, whose names contain the ages."""
    found = [(key, AGE.search(key)) for key in map(faces.key, range(len(faces)))]
    lines = [f"{key},{age[1]}" for key, age in found if age]
    out.mkdir(parents=True, exist_ok=True)
    (out / "ages.csv").write_text("\n".join(["image,age", *lines]))
    return read_groups(out / "ages.csv", [AGES])


def face_sets(options: argparse.Namespace, evaluation: EvaluationOptions) -> Iterator[tuple[FaceSet, bool]]:
    """The sets, and whether their images have ages."""
    paths = {"lfw": "lfw", "aaf": "aaf", "rafdb": "rafdb"}
    for name in options.sets:
        if name == "cfp":
            yield frontal_to_profile(options.data / "cfp"), False
            continue
        path = options.data / paths.get(name, "faces/val-000000.tar")
        (faces,) = open_face_sets([str(path)], evaluation)
        if name in CHANGED_SETS:
            images = open_image_set(name, faces.images, SEED)
            yield FaceSet(f"{faces.name}, {name}", images, original=faces), False
            continue
        yield faces, name == "aaf"
        if name == "rafdb":
            images = found_faces(faces.images, options.models / DETECTOR)
            yield FaceSet(f"{faces.name}, aligned again", images), False


def frontal_to_profile(folder: Path) -> FaceSet:
    """CFP-FP with all genuine pairs of a frontal and a profile image, of which its protocol lists a quarter."""
    (listed,) = (benchmark for benchmark in open_benchmarks(folder) if benchmark.name == "cfp_fp")
    images = listed.images
    assert images.labels is not None
    is_profile = np.array(["/profile/" in images.key(row) for row in range(len(images))])
    frontal, profile = np.flatnonzero(~is_profile), np.flatnonzero(is_profile)
    same = images.labels[frontal][:, None] == images.labels[profile]
    random = np.random.default_rng(SEED)
    impostors = random.choice(np.flatnonzero(~same), min(IMPOSTORS, int((~same).sum())), replace=False)
    chosen = np.concatenate([np.flatnonzero(same), impostors])
    first, second = np.unravel_index(chosen, same.shape)
    pairs = PairBenchmark(
        "CFP-FP",
        images,
        np.stack([frontal[first], profile[second]], axis=1),
        same.reshape(-1)[chosen],
        np.zeros(len(chosen), np.int64),
    )
    return FaceSet(pairs.name, images, pairs)


if __name__ == "__main__":
    run(main)
