"""Scored crops with their quality and decision, for the documentation: a gallery in HTML, or an image file.

python tools/docs_gallery.py --out docs/figures/scores.jpg
python tools/docs_gallery.py --changes --out docs/figures/changes.jpg

draw the figure at the top of the README, and one of twenty changes of a face, from scikit-image's sample images, with
the model that ships.
"""

from __future__ import annotations

import argparse
import base64
import csv
from html import escape
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import facerts
from facerts.images import changes, encode_png, fit_crop
from facerts.images.align import align
from facerts.images.changes import apply_change
from facerts.scoring import Row
from facerts.scoring.reasons import in_words
from facerts.scoring.sinks import from_cell

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


def gallery(rows: Path, folder: Path = Path()) -> str:
    """The crops listed in a .csv of rows, best first; the rows' paths are relative to ``folder``."""
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


def crops() -> dict[str, NDArray[np.uint8]]:
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


def changed() -> dict[str, NDArray[np.uint8]]:
    """A face with each of ``CHANGES``."""
    face = portrait()
    return {
        f"{kind.replace('_', ' ')}{' *' if changes.CHANGES[kind].held_out else ''}": apply_change(
            face, kind, severity, 3
        )
        for kind, severity in CHANGES
    }


def portrait() -> NDArray[np.uint8]:
    """The face that the figures show."""
    import skimage.data

    return align(skimage.data.astronaut(), POINTS)


def scored(named: dict[str, NDArray[np.uint8]]) -> list[tuple[str, NDArray[np.uint8], Row]]:
    """The name, crop and row of each image in the figure."""
    rows = facerts.load().score([encode_png(crop) for crop in named.values()], keep=KEEP)
    return list(zip(named, named.values(), rows, strict=True))


def main() -> None:
    import matplotlib.pyplot as plt

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="the .jpg file")
    parser.add_argument("--changes", action="store_true", help="twenty changes of a face")
    options = parser.parse_args()
    images = scored(changed() if options.changes else crops())
    rows, size = (4, (9.5, 10.4)) if options.changes else (2, (7.6, 5.2))
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
    figure.savefig(options.out, dpi=120, pil_kwargs={"quality": 90})
    print(options.out)


if __name__ == "__main__":
    main()
