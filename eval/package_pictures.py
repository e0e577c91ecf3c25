"""Crops of pictures without any face that scikit-image and scikit-learn carry, to measure what a model makes of them.

python eval/package_pictures.py --out things
facerts evaluate ood --model m.onnx --in lfw/ --out-of things --out results

Squares of random size and place, resized to 112 x 112: bricks, cells, a cup of coffee, galaxies, a motorcycle, printed
pages, a retina, a rocket, a temple, a flower … Pictures with people, a cat and portraits on coins are left out.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import skimage.data
import sklearn.datasets
from common import parser_of, run
from numpy.typing import NDArray

from facerts.images import encode_png, fit_crop, read
from facerts.io.files import atomic_write

SCIKIT_IMAGE = (
    "brick.png",
    "cell.png",
    "clock_motion.png",
    "coffee.png",
    "color.png",
    "grass.png",
    "gravel.png",
    "horse.png",
    "hubble_deep_field.jpg",
    "ihc.png",
    "moon.png",
    "motorcycle_left.png",
    "page.png",
    "phantom.png",
    "retina.jpg",
    "rocket.jpg",
    "text.png",
)
SCIKIT_LEARN = ("china.jpg", "flower.jpg")
SMALLEST_SIDE = 32


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--out", type=Path, required=True, metavar="PATH", help="a folder, made if missing")
    parser.add_argument("--crops", type=int, default=40, help="of each picture (default: 40)")
    parser.add_argument("--seed", type=int, default=0, help="of their places (default: 0)")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for number, path in enumerate(pictures()):
        random = np.random.default_rng((options.seed, number))
        picture = read(path)
        for crop in range(options.crops):
            with atomic_write(options.out / f"{path.stem}_{crop:03d}.png") as file:
                file.write(encode_png(square(picture, random)))
    print(f"{(number + 1) * options.crops} crops of {number + 1} pictures in {options.out}")


def pictures() -> list[Path]:
    """The packages' files."""
    image, learn = Path(skimage.data.__file__).parent, Path(sklearn.datasets.__file__).parent / "images"
    return [*(image / name for name in SCIKIT_IMAGE), *(learn / name for name in SCIKIT_LEARN)]


def square(picture: NDArray[np.uint8], random: np.random.Generator) -> NDArray[np.uint8]:
    """A random square of a picture, its side spread evenly on a logarithmic scale, as a crop."""
    height, width, _ = picture.shape
    largest = min(height, width)
    side = round(np.exp(random.uniform(np.log(min(SMALLEST_SIDE, largest)), np.log(largest))))
    top, left = random.integers(0, height - side + 1), random.integers(0, width - side + 1)
    return fit_crop(np.ascontiguousarray(picture[top : top + side, left : left + side]))


if __name__ == "__main__":
    run(main)
