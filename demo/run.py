"""The whole way on faces that the program draws: pack, train, export, evaluate, score, report.

Every step but the drawing is a `facerts` command, printed before it runs. The people are cartoons, so the numbers
say how well cartoons are told apart, and nothing about real faces; and two minutes of training are enough to tell
people apart, but hardly for the uncertainty to spread. docs/results/ has runs on real faces, and the real pictures
at the end are scored by the model that ships with the package, which was trained on such.

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
from facerts.scoring.cells import from_cell

TRAIN_IDENTITIES, TRAIN_PICTURES = 240, 16
HELD_OUT_IDENTITIES, HELD_OUT_PICTURES = 100, 6
PAIRS = 1000
NON_FACES = 400

# What the exported model says of its images, wherever they lie.
SAID = (
    f"data.name=drawn faces ({TRAIN_IDENTITIES} identities, {TRAIN_IDENTITIES * TRAIN_PICTURES:,} pictures)",
    "data.terms=none, nobody's face is in it",
)

# Eyes, nose and corners of the mouth of the astronaut (Eileen Collins, NASA) in scikit-image's picture.
ASTRONAUT_POINTS = [[200.1, 101.8], [247.1, 102.6], [220.4, 124.5], [198.6, 142.8], [239.7, 143.6]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/demo"), help="made anew")
    parser.add_argument("overrides", nargs="*", help="fields of the recipe, e.g. optim.epochs=2")
    options = parser.parse_args()
    out: Path = options.out
    began = time.monotonic()
    shutil.rmtree(out, ignore_errors=True)

    say("Draw people to train on, other people to test on, and things that are no faces")
    write_synthetic_faces(out / "faces", identities=TRAIN_IDENTITIES, images=TRAIN_PICTURES)
    write_synthetic_faces(
        out / "heldout",
        identities=HELD_OUT_IDENTITIES,
        images=HELD_OUT_PICTURES,
        first_identity=TRAIN_IDENTITIES,
    )
    write_non_faces(out / "things", images=NON_FACES)
    pairs = pairs_from_identities(open_source(out / "heldout"), genuine=PAIRS, impostors=PAIRS, seed=0)
    save_bin(pairs, out / "heldout.bin")
    write_real_pictures(out / "real")

    say("Pack the training pictures into one record file, as the field hands its data sets out")
    facerts("data", "pack", out / "faces", "--out", out / "faces_rec")
    say("Train: the network learns who is who, and how far to trust each picture")
    fields = [f"data.train={out / 'faces_rec'}", *SAID, f"validation.benchmarks={out / 'heldout.bin'}"]
    facerts("train", "demo", *fields, *options.overrides, "--out", out / "run")
    model = out / "demo.onnx"
    say("Export to ONNX; from here on PyTorch is not needed")
    facerts("export", out / "run", "--out", model)
    say("Measure on people that the network has never seen")
    facerts("evaluate", "verification", "--model", model, "--data", out / "heldout.bin", "--out", out / "run")
    facerts("evaluate", "reject", "--model", model, "--data", out / "heldout.bin", "--out", out / "run")
    ood = ("--in", out / "heldout", "--out-of", out / "things")
    facerts("evaluate", "ood", "--model", model, *ood, "--out", out / "run")
    shipped = read_manifest().default
    with_what = (
        f"{shipped}, the model that ships" if shipped else "this network, which has only ever seen cartoons"
    )
    say(f"Score real pictures, an astronaut's face and things that are none, with {with_what}")
    facerts("score", out / "real", "--model", shipped or model, "--out", out / "scores.csv")
    print_scores(out / "scores.csv")
    say("Put it all on one page")
    facerts("report", out / "run", "--out", out / "report.html", "--title", "Drawn faces")
    print(f"\nDone in {time.monotonic() - began:.0f} s; open {out / 'report.html'}")


def write_real_pictures(folder: Path) -> None:
    """Crops from pictures that scikit-image carries."""
    folder.mkdir(parents=True)
    astronaut = align(np.ascontiguousarray(skimage.data.astronaut()), ASTRONAUT_POINTS)
    things = {name: middle(getattr(skimage.data, name)()) for name in ("chelsea", "coffee", "rocket")}
    for name, picture in {"astronaut_face": astronaut, **things}.items():
        (folder / f"{name}.png").write_bytes(encode_png(picture))


def middle(picture: np.ndarray) -> np.ndarray:
    """The largest square in the middle, as a crop."""
    height, width, _ = picture.shape
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    return fit_crop(np.ascontiguousarray(picture[top : top + side, left : left + side]))


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
