"""Train a quality that works in two minutes, on drawn faces; then score real images with the model that ships.

The first part is the whole way of a model: draw, pack, train, export, evaluate, report. The method is RTS; the training
images are degraded at random, and a few of them show no face, filed under somebody's name as in collections from the
web. All that is measured is measured on drawn people, and on kinds of non-faces, that the network never saw. Cartoons
say nothing about real faces; docs/results/ has runs on those. The second part shows what the model that ships, which
was trained on real faces, decides about real images, and why.

Every step after drawing is a `facerts` command, which is printed before it runs.

    python demo/run.py --out out/demo
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import skimage.data

from facerts.datasets import open_source, pairs_from_identities
from facerts.datasets.pair_layouts import save_bin
from facerts.datasets.synthetic import write_non_faces, write_synthetic_faces
from facerts.images import encode_png, fit_crop
from facerts.images.align import align
from facerts.images.changes import apply_change
from facerts.io.progress import track

TRAIN_IDENTITIES, TRAIN_IMAGES = 400, 10
TRAIN_NON_FACES = 240
HELD_OUT_IDENTITIES, HELD_OUT_IMAGES = 150, 6
HELD_OUT_NON_FACES = 400
PAIRS = 2000
DEGRADED = 0.5
# False match rate at which rejection is measured; of so few pairs, a smaller one would be two or three.
FMR = "0.01"

# Name and terms of the training images, written into the exported model.
DATA_FIELDS = (
    f"data.name=drawn faces ({TRAIN_IDENTITIES} identities, {TRAIN_IDENTITIES * TRAIN_IMAGES:,} pictures) and "
    f"{TRAIN_NON_FACES} drawings of anything else under their names",
    "data.terms=none, the faces are drawn",
)

# Eyes, nose and corners of the mouth of the astronaut (Eileen Collins, NASA) in scikit-image's sample image.
ASTRONAUT_POINTS = [[200.1, 101.8], [247.1, 102.6], [220.4, 124.5], [198.6, 142.8], [239.7, 143.6]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/demo"), help="Folder for the results; deleted first.")
    parser.add_argument("overrides", nargs="*", help="Recipe fields to override, e.g. optim.epochs=2")
    options = parser.parse_args()
    out: Path = options.out
    began = time.monotonic()
    shutil.rmtree(out, ignore_errors=True)

    say("Draw people to train on, other people to test on, and images of anything else")
    draw_people(out / "faces", 0, TRAIN_IDENTITIES, TRAIN_IMAGES)
    misfile_non_faces(out / "faces")
    held_out = TRAIN_IDENTITIES, HELD_OUT_IDENTITIES, HELD_OUT_IMAGES
    draw_people(out / "heldout", *held_out)
    draw_people(out / "degraded", *held_out, degraded=DEGRADED)
    write_non_faces(out / "non_faces", images=HELD_OUT_NON_FACES, kinds=("shapes", "stripes"))
    pairs = out / "degraded.bin"
    people = open_source(out / "degraded")
    save_bin(pairs_from_identities(people, genuine=PAIRS, impostors=PAIRS, seed=0), pairs)

    say("Train embeddings and a quality (RTS), and export them; from then on PyTorch is not needed")
    facerts("data", "pack", out / "faces", "--out", out / "faces_rec")
    fields = [f"data.train={out / 'faces_rec'}", *DATA_FIELDS]
    facerts("train", "demo", *fields, *options.overrides, "--out", out / "run")
    model = out / "demo.onnx"
    facerts("export", out / "run", "--out", model)

    say("Evaluate on people that it never saw; half of the pictures of the pairs are degraded")
    to_run = ("--out", out / "run")
    facerts("evaluate", "verification", "--model", model, "--data", pairs, *to_run)
    facerts("evaluate", "reject", "--model", model, "--data", pairs, "--fmr", FMR, *to_run)
    ood = ("--in", out / "heldout", "--out-of", out / "non_faces")
    facerts("evaluate", "ood", "--model", model, *ood, *to_run)
    print_findings(json.loads((out / "run" / "result.json").read_text(encoding="utf-8")))
    facerts("report", out / "run", "--out", out / "report.html")

    say("Decide about real images with the model that ships: accept the quality that 95% of faces have")
    write_real_images(out / "real")
    facerts("score", out / "real", "--keep", "0.95", shown=True)
    print(f"\nDone in {time.monotonic() - began:.0f} s; open {out / 'report.html'}")


def draw_people(folder: Path, first: int, people: int, images: int, *, degraded: float = 0.0) -> None:
    def draw(identity: int) -> None:
        write_synthetic_faces(folder, identities=1, images=images, first_identity=identity, degraded=degraded)

    with ThreadPoolExecutor() as threads:
        drawn = threads.map(draw, range(first, first + people))
        list(track(drawn, f"drawing {folder.name}", people, unit="people"))


def misfile_non_faces(faces: Path) -> None:
    """Put images of checks and clouds, which no test has, into the folders of random people."""
    people = sorted(faces.iterdir())
    unnamed = faces.with_name("misfiled")
    write_non_faces(unnamed, images=TRAIN_NON_FACES, seed=1, kinds=("checks", "clouds"))
    wrong = np.random.default_rng(0).integers(len(people), size=TRAIN_NON_FACES)
    for path, person in zip(sorted(unnamed.iterdir()), wrong, strict=True):
        path.rename(people[person] / path.name)
    unnamed.rmdir()


def print_findings(result: dict[str, Any]) -> None:
    """Say in a sentence each what the evaluations found."""
    verification, reject, ood = (
        {(*one["of"].values(), one["name"]): one for one in section["measures"]}
        for kind in ("verification", "reject", "ood")
        for section in result["sections"][kind].values()
    )
    accuracy = verification["listed pairs", "accuracy"]
    print(f"\nVerification: {percent(accuracy['value'])} of {accuracy['n']:,} pairs are decided right.")
    before, after, by_norm = (
        reject[score, "listed pairs", f"{share}% left out"]["value"]
        for score, share in (("quality", 0), ("quality", 10), ("norm", 10))
    )
    print(
        f"Rejection: without the 10% of pairs of the poorest quality, the share of pairs of one person that are "
        f"missed falls from {percent(before)} to {percent(after)} (FNMR at FMR {FMR}; by the embedding's norm, to "
        f"{percent(by_norm)})."
    )
    quality, norm = (
        next(one["value"] for key, one in ood.items() if (key[0], key[-1]) == (score, "AUROC"))
        for score in ("quality", "norm")
    )
    print(
        "Non-faces: quality tells faces from kinds of non-faces that were not in the training, with an AUROC of "
        f"{quality:.3f} (1 is perfect, 0.5 is chance; the embedding's norm: {norm:.3f}).\n"
    )


def percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def write_real_images(folder: Path) -> None:
    """Write crops of scikit-image's sample images."""
    folder.mkdir(parents=True)
    face = align(np.ascontiguousarray(skimage.data.astronaut()), ASTRONAUT_POINTS)
    images = {
        "astronaut": face,
        "astronaut_blurred": apply_change(face, "blur", 0.6),
        "astronaut_covered": apply_change(face, "occlusion", 0.8),
        "astronaut_dark": (0.03 * face).astype(np.uint8),
        "astronaut_noisy": apply_change(face, "noise", 0.8),
        "astronaut_soft": apply_change(face, "blur", 0.3),
        "astronaut_tiny": apply_change(face, "low_resolution", 1.0),
        "cat": center_square(skimage.data.chelsea()),
        "cup": center_square(skimage.data.coffee()),
        "rocket": center_square(skimage.data.rocket()),
    }
    for name, image in images.items():
        (folder / f"{name}.png").write_bytes(encode_png(image))


def center_square(image: np.ndarray) -> np.ndarray:
    """The largest square in the center, as a crop."""
    height, width, _ = image.shape
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    return fit_crop(np.ascontiguousarray(image[top : top + side, left : left + side]))


def say(text: str) -> None:
    print(f"\n== {text}", flush=True)


def facerts(*arguments: str | Path, shown: bool = False) -> None:
    """Run a command of the command line, after printing it; its progress is shown, its tables only on demand."""
    texts = [str(argument) for argument in arguments]
    print(f"$ facerts {shlex.join(texts)}", flush=True)
    stdout = None if shown else subprocess.DEVNULL
    done = subprocess.run([sys.executable, "-m", "facerts", *texts], stdout=stdout, check=False)
    if done.returncode:
        sys.exit(done.returncode)


if __name__ == "__main__":
    main()
