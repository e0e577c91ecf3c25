"""The complete workflow on synthetic faces: pack, train, export, evaluate, score, report.

Every step after generating the faces is a `facerts` command, which is printed before it runs. The faces are cartoons,
so the numbers say nothing about real faces, and two minutes of training are too short for the uncertainty to spread
much. docs/results/ has runs on real faces. The real images at the end are scored by the model that ships with the
package, which was trained on real faces.

    python demo/run.py --out out/demo
"""

from __future__ import annotations

import argparse
import csv
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import skimage.data

from facerts.benchmarks import pairs_from_identities
from facerts.benchmarks.bin_sets import save_bin
from facerts.datasets import open_source
from facerts.datasets.synthetic import write_non_faces, write_synthetic_faces
from facerts.hub.registry import read_manifest
from facerts.images import encode_png, fit_crop
from facerts.images.align import align
from facerts.scoring.sinks import from_cell

TRAIN_IDENTITIES, TRAIN_IMAGES = 240, 16
HELD_OUT_IDENTITIES, HELD_OUT_IMAGES = 100, 6
PAIRS = 1000
NON_FACES = 400

# Name and terms of the training images, written into the exported model.
DATA_FIELDS = (
    f"data.name=synthetic faces ({TRAIN_IDENTITIES} identities, {TRAIN_IDENTITIES * TRAIN_IMAGES:,} images)",
    "data.terms=none, the faces are synthetic",
)

# Eyes, nose and corners of the mouth of the astronaut (Eileen Collins, NASA) in scikit-image's sample image.
ASTRONAUT_POINTS = [[200.1, 101.8], [247.1, 102.6], [220.4, 124.5], [198.6, 142.8], [239.7, 143.6]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--out", type=Path, default=Path("out/demo"), help="Folder for the results; deleted first."
    )
    parser.add_argument("overrides", nargs="*", help="Recipe fields to override, e.g. optim.epochs=2")
    options = parser.parse_args()
    out: Path = options.out
    began = time.monotonic()
    shutil.rmtree(out, ignore_errors=True)

    say("Generate people to train on, other people to test on, and non-faces")
    write_synthetic_faces(out / "faces", identities=TRAIN_IDENTITIES, images=TRAIN_IMAGES)
    write_synthetic_faces(
        out / "heldout",
        identities=HELD_OUT_IDENTITIES,
        images=HELD_OUT_IMAGES,
        first_identity=TRAIN_IDENTITIES,
    )
    write_non_faces(out / "non_faces", images=NON_FACES)
    pairs = pairs_from_identities(open_source(out / "heldout"), genuine=PAIRS, impostors=PAIRS, seed=0)
    save_bin(pairs, out / "heldout.bin")
    write_real_images(out / "real")

    say("Pack the training images into a record directory")
    facerts("data", "pack", out / "faces", "--out", out / "faces_rec")
    say("Train embeddings and a quality score")
    fields = [f"data.train={out / 'faces_rec'}", *DATA_FIELDS, f"validation.benchmarks={out / 'heldout.bin'}"]
    facerts("train", "demo", *fields, *options.overrides, "--out", out / "run")
    model = out / "demo.onnx"
    say("Export to ONNX; from here on PyTorch is not needed")
    facerts("export", out / "run", "--out", model)
    say("Evaluate on people who are not in the training data")
    facerts("evaluate", "verification", "--model", model, "--data", out / "heldout.bin", "--out", out / "run")
    facerts("evaluate", "reject", "--model", model, "--data", out / "heldout.bin", "--out", out / "run")
    ood = ("--in", out / "heldout", "--out-of", out / "non_faces")
    facerts("evaluate", "ood", "--model", model, *ood, "--out", out / "run")
    shipped = read_manifest().default
    with_what = (
        f"{shipped}, the model that ships" if shipped else "this network, which was trained on cartoons only"
    )
    say(f"Score real images, an astronaut's face and non-faces, with {with_what}")
    facerts("score", out / "real", "--model", shipped or model, "--out", out / "scores.csv")
    print_scores(out / "scores.csv")
    say("Write a report")
    facerts("report", out / "run", "--out", out / "report.html", "--title", "Synthetic faces")
    print(f"\nDone in {time.monotonic() - began:.0f} s; open {out / 'report.html'}")


def write_real_images(folder: Path) -> None:
    """Write crops of scikit-image's sample images."""
    folder.mkdir(parents=True)
    astronaut = align(np.ascontiguousarray(skimage.data.astronaut()), ASTRONAUT_POINTS)
    others = {name: center_square(getattr(skimage.data, name)()) for name in ("chelsea", "coffee", "rocket")}
    for name, image in {"astronaut_face": astronaut, **others}.items():
        (folder / f"{name}.png").write_bytes(encode_png(image))


def center_square(image: np.ndarray) -> np.ndarray:
    """The largest square in the center, as a crop."""
    height, width, _ = image.shape
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    return fit_crop(np.ascontiguousarray(image[top : top + side, left : left + side]))


def print_scores(rows: Path) -> None:
    with rows.open(encoding="utf-8", newline="") as file:
        lines = sorted(csv.DictReader(file), key=lambda line: -float(line["quality"]))
    for line in lines:
        name, quality = Path(from_cell(line["path"])).name, float(line["quality"])
        print(f"  {name:22} quality {quality:7.4f}  uncertainty {line['uncertainty']}")


def say(text: str) -> None:
    print(f"\n== {text}", flush=True)


def facerts(*arguments: str | Path) -> None:
    """Run a command of the command line, after printing it."""
    texts = [str(argument) for argument in arguments]
    print(f"$ facerts {shlex.join(texts)}", flush=True)
    subprocess.run([sys.executable, "-m", "facerts", *texts], check=True)


if __name__ == "__main__":
    main()
