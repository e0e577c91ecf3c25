"""What a page is made of: sections, tables, figures and images; templates lay it out, and ``markdown`` writes Markdown.

Templates escape text wherever it comes from.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from facerts.evaluation.baselines import OWN_SCORES
from facerts.evaluation.saved_result import SavedResult
from facerts.io.console import printable
from facerts.report.table import Table

if TYPE_CHECKING:
    from jinja2 import Template

PAIRS, IMAGES = 12, 12


class Figure(NamedTuple):
    """An SVG element with its caption; a figure with a name is also written as a file of this name."""

    svg: str
    caption: str
    name: str = ""


@dataclass(frozen=True)
class Wall:
    """Images under headings, opened by a click on its title."""

    title: str
    images: Mapping[str, Sequence[Shown]]
    open: bool = False

    @property
    def count(self) -> int:
        """Number of images."""
        return sum(len(entry.images) for shown in self.images.values() for entry in shown)


@dataclass(frozen=True)
class PagePart:
    """Tables, figures, text, warnings, further figures under a title, images, facts and commands, in this order."""

    title: str = ""
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    text: str = ""
    notes: Sequence[str] = ()
    more: tuple[str, Sequence[Figure]] = ("", ())
    walls: Sequence[Wall] = ()
    facts: Sequence[tuple[str, str]] = ()
    commands: Sequence[str] = ()


@dataclass(frozen=True)
class PageSection:
    """A section: the target of the menu's entry, the entry, and the heading; nothing without parts."""

    id: str
    entry: str
    title: str
    parts: list[PagePart]


class Crop(NamedTuple):
    """The data URI of an image, and its name."""

    source: str
    name: str


class Shown(NamedTuple):
    """An image or a pair, and the lines under it."""

    images: list[Crop]
    lines: list[str]


def walls_of(run: SavedResult, prefix: str) -> list[Wall]:
    """The hardest pairs, and the best and worst images of each source, of an evaluation that kept crops."""
    walls = []
    if wrong := worst_pairs(run, prefix):
        walls.append(Wall(f"{run.label}: the hardest pairs", wrong, open=True))
    sources = [key.removesuffix("shown_rows") for key in run.arrays if key.endswith("/shown_rows")]
    for source in (one for one in sources if one.startswith(prefix)):
        for score in OWN_SCORES:
            if images := best_and_worst(run, source, score):
                named = source.removeprefix(prefix).rstrip("/")
                what = ", ".join(filter(None, [run.label, named]))
                walls.append(Wall(f"{what}: {' and '.join(images)}", images))
    return walls


def worst_pairs(run: SavedResult, prefix: str) -> dict[str, list[Shown]]:
    """The genuine pairs least alike and the impostor pairs most alike, the worst first; nothing without images."""
    crops = _crops(run, prefix)
    if not crops or prefix + "scores" not in run.arrays:
        return {}
    scores, same, pairs = (run.arrays[prefix + key] for key in ("scores", "same", "pairs"))
    # Those of a calibrated model are on a scale that is known.
    scale = "percentile" if prefix + "percentile" in run.arrays else "quality"
    quality = run.arrays.get(prefix + scale)
    walls = {}
    for heading, rows in (
        ("Genuine pairs least alike", np.flatnonzero(same)[np.argsort(scores[same], kind="stable")]),
        ("Impostor pairs most alike", np.flatnonzero(~same)[np.argsort(-scores[~same], kind="stable")]),
    ):
        shown = []
        for row in rows[:PAIRS]:
            images = [int(image) for image in pairs[row]]
            if all(image in crops for image in images):
                lines = [f"similarity {scores[row]:.3f}"]
                if quality is not None:
                    lines.append(f"{scale} {', '.join(f'{quality[image]:.3g}' for image in images)}")
                shown.append(Shown([crops[image] for image in images], lines))
        walls[heading] = shown
    return walls


def best_and_worst(run: SavedResult, prefix: str, score: str) -> dict[str, list[Shown]]:
    """The images of lowest and of highest score that were kept; nothing where there are none."""
    crops = _crops(run, prefix)
    values = run.arrays.get(prefix + score)
    quality = run.arrays.get(prefix + "quality")
    repeated = score != "quality" and values is not None and quality is not None and np.array_equal(values, quality)
    if not crops or values is None or repeated:
        return {}
    order = np.argsort(values, kind="stable")
    percentile = run.arrays.get(prefix + "percentile") if score == "quality" else None
    lines = [f"{value:.3g}" for value in values] if percentile is None else [f"percentile {p:.3g}" for p in percentile]
    return {
        heading: [Shown([crops[row]], [lines[row]]) for row in rows.tolist() if row in crops]
        for heading, rows in (
            (f"lowest {score}", order[:IMAGES]),
            (f"highest {score}", order[::-1][:IMAGES]),
        )
    }


def _crops(run: SavedResult, prefix: str) -> dict[int, Crop]:
    if prefix + "shown_rows" not in run.arrays:
        return {}
    rows, ends, names = (run.arrays[prefix + key] for key in ("shown_rows", "shown_ends", "names"))
    data: NDArray[np.uint8] = run.arrays[prefix + "shown_jpeg"]
    begins = np.concatenate([[0], ends[:-1]])
    return {
        int(row): Crop(
            "data:image/jpeg;base64," + base64.b64encode(data[begin:end].tobytes()).decode(), str(names[row])
        )
        for row, begin, end in zip(rows, begins, ends, strict=True)
    }


def open_template(name: str) -> Template:
    """A template of this package."""
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(resource),
        autoescape=True,
        # Controls of direction would reorder the page's own words.
        finalize=lambda value: value if isinstance(value, Markup) else printable(value, keep="\n"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name)


def resource(name: str) -> str:
    """The text of a file of this package."""
    return resources.files("facerts.report").joinpath(name).read_text(encoding="utf-8")
