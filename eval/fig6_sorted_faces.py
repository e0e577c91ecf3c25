"""The images that a result contains, sorted by uncertainty, on one self-contained page: Fig. 6 of the RTS paper.

python eval/fig6_sorted_faces.py results/rts --of ood/lfw --out fig6.html

Unless disabled, a result contains the best and worst images by each score, and those of the most wrong pairs. They are
images of the data set, whose terms decide who may see them.
"""

from __future__ import annotations

from base64 import b64encode
from html import escape
from pathlib import Path

import numpy as np
from common import parser_of, run

from facerts.cli.output import warn
from facerts.errors import DataError
from facerts.evaluation.labeled import SavedResult, load_labeled
from facerts.io.files import atomic_write

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>{title}</title>
<style>
body {{ font: 13px sans-serif; color: #24292f; background: white; margin: 1em; }}
main {{ display: flex; flex-wrap: wrap; gap: 6px; }}
figure {{ margin: 0; text-align: center; }}
img {{ display: block; width: 84px; height: 84px; }}
</style>
<p>{title}</p>
<main>
{figures}
</main>
</html>
"""
FIGURE = """<figure><img alt="{name}" title="{name}" src="data:image/jpeg;base64,{data}">
<figcaption>{value:#.3g}</figcaption></figure>"""


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("result", metavar="[LABEL=]FOLDER", help="Result folder.")
    parser.add_argument(
        "--of",
        metavar="KIND/NAME",
        help="Images to show: ood/SOURCE or verification/SET; by default the only ones.",
    )
    parser.add_argument(
        "--by",
        default="uncertainty",
        help="Score to sort by: uncertainty (the default), quality, norm, sharpness …",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="PATH", help="HTML file.")
    options = parser.parse_args()
    saved = load_labeled([options.result])[0]
    with atomic_write(options.out, "w") as file:
        file.write(page(saved, options.of or only(saved), options.by))
    warn(f"{options.out} shows images of the data set, whose terms may not allow publishing them")


def only(saved: SavedResult) -> str:
    """The only group of images in the result.

    Raises:
        DataError: there is none, or there are several.
    """
    groups = [key.rpartition("/")[0] for key in saved.arrays if key.endswith("/shown_rows")]
    if len(groups) != 1:
        remedy = (
            f"choose one of {', '.join(sorted(groups))} with --of"
            if groups
            else "run the evaluation again, with images"
        )
        raise DataError(f"{saved.folder}: contains images of {len(groups)} sources; {remedy}")
    return groups[0]


def page(saved: SavedResult, group: str, by: str) -> str:
    """The HTML page, in ascending order of the score.

    Raises:
        DataError: the result has no images of the group, or no such score.
    """
    rows, data, ends = (saved.array(f"{group}/shown_{part}") for part in ("rows", "jpeg", "ends"))
    values, names = saved.array(f"{group}/{by}")[rows], saved.array(f"{group}/names")[rows]
    images = np.split(data, ends[:-1])
    figures = [
        FIGURE.format(
            name=escape(str(names[i])), data=b64encode(images[i].tobytes()).decode(), value=float(values[i])
        )
        for i in np.argsort(values, kind="stable")
    ]
    title = f"{saved.label}: {len(rows)} images of {group}, by {by} in ascending order"
    return PAGE.format(title=escape(title), figures="\n".join(figures))


if __name__ == "__main__":
    run(main)
