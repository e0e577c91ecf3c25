"""Makes non-face crops from the sample images of scikit-image and scikit-learn, for out-of-distribution evaluation.

python eval/sample_images.py --out things
facerts evaluate ood --model m.onnx --in lfw/ --out-of things --out results

Squares of random size and position, resized to 112 x 112, of bricks, cells, a cup of coffee, galaxies, a motorcycle,
printed pages, a retina, a rocket, a temple, a flower … Images of people, of a cat and of portraits on coins are left
out.
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
MIN_SIDE = 32


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument(
        "--out", type=Path, required=True, metavar="PATH", help="Folder for the crops; created if missing."
    )
    parser.add_argument("--crops", type=int, default=40, help="Number of crops of each image (default: 40).")
    parser.add_argument("--seed", type=int, default=0, help="Seed of sizes and positions (default: 0).")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    paths = image_files()
    for number, path in enumerate(paths):
        random = np.random.default_rng((options.seed, number))
        image = read(path)
        for crop in range(options.crops):
            with atomic_write(options.out / f"{path.stem}_{crop:03d}.png") as file:
                file.write(encode_png(square(image, random)))
    print(f"{len(paths) * options.crops} crops of {len(paths)} images in {options.out}")


def image_files() -> list[Path]:
    """The image files of both packages."""
    image, learn = Path(skimage.data.__file__).parent, Path(sklearn.datasets.__file__).parent / "images"
    return [*(image / name for name in SCIKIT_IMAGE), *(learn / name for name in SCIKIT_LEARN)]


def square(image: NDArray[np.uint8], random: np.random.Generator) -> NDArray[np.uint8]:
    """A random square of an image ``(H, W, 3)`` as a crop ``(112, 112, 3)``; its side is log-uniform."""
    height, width, _ = image.shape
    max_side = min(height, width)
    side = round(np.exp(random.uniform(np.log(min(MIN_SIDE, max_side)), np.log(max_side))))
    top, left = random.integers(0, height - side + 1), random.integers(0, width - side + 1)
    return fit_crop(np.ascontiguousarray(image[top : top + side, left : left + side]))


if __name__ == "__main__":
    run(main)
