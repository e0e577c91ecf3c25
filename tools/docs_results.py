"""Tables and figures of the results' pages, from the CSV files in docs/results/tables.

python tools/docs_results.py

draws each figure of docs/results/figures.yaml as docs/figures/results_NAME.svg. ``number("TABLE > ROW > COLUMN")`` is a
cell with its interval, which figures and tests/claims.yaml name.
"""

from __future__ import annotations

import csv
import re
from functools import cache
from pathlib import Path
from typing import Any

import yaml

DOCS = Path(__file__).parents[1] / "docs"
TABLES = DOCS / "results" / "tables"
FIGURES = DOCS / "figures"
NUMBER = r"[-+−]?\d+(?:,\d{3})*(?:\.\d+)?"
COLORS = ("#00796b", "#e07b39", "#3d85c6", "#8a8a8a")


@cache
def rows(table: Path) -> list[list[str]]:
    with table.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def numbers(text: str) -> list[float]:
    return [float(each.replace(",", "").replace("−", "-")) for each in re.findall(NUMBER, text)]


def number(place: str) -> list[float]:
    """The numbers of a cell, first its value and then its interval, if there is one.

    Args:
        place: ``TABLE > ROW'S FIRST CELLS > COLUMN``.
    """
    table, *first, column = place.split(" > ")
    header, *body = rows(TABLES / f"{table}.csv")
    found = [row[header.index(column)] for row in body if row[: len(first)] == first]
    if len(found) != 1:
        raise KeyError(f"{place}: {len(found)} rows")
    return numbers(found[0])


def markdown(table: Path) -> str:
    """A table for a page."""
    header, *body = rows(table)
    lines = [header, ["---"] * len(header), *body]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def named(names: list[str] | dict[str, str]) -> dict[str, str]:
    """Names in a table, and how a figure writes them."""
    return names if isinstance(names, dict) else {name: name for name in names}


def values(figure: dict[str, Any]) -> list[list[list[list[float]]]]:
    """The numbers of each panel, series and row."""
    return [
        [
            [number(panel["from"].format(row=row, of=of)) for row in figure["rows"]]
            for of in named(figure.get("of", [""]))
        ]
        for panel in figure["panels"]
    ]


def draw(name: str, figure: dict[str, Any]) -> None:
    """Draw values with their intervals, a row of dots for each label; the numbers are in the file's description."""
    import matplotlib
    from matplotlib.figure import Figure

    drawn = values(figure)
    labels, series = (list(named(figure.get(key, [""])).values()) for key in ("rows", "of"))
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name, "font.size": 10}):
        canvas = Figure(
            figsize=(1.8 + min(3.2 * len(drawn), 7), 0.9 + 0.3 * len(labels) + 0.25 * (len(series) > 1)),
            layout="constrained",
        )
        axes = canvas.subplots(1, len(drawn), sharey=True, squeeze=False)[0]
        for axis, panel, lines in zip(axes, figure["panels"], drawn, strict=True):
            for index, (of, line) in enumerate(zip(series, lines, strict=True)):
                shift = (index - (len(series) - 1) / 2) * 0.22
                for at, (value, *rest) in enumerate(line):
                    color, y = COLORS[index], len(labels) - 1 - at - shift
                    axis.plot(value, y, "o", color=color, markersize=5, label=of if at == 0 else None)
                    if len(rest) > 1:
                        axis.plot(rest[:2], [y, y], color=color, linewidth=1.6)
            axis.set_title(panel["title"], fontsize=10, loc="left")
            if panel.get("scale") == "log":
                axis.set_xscale("log")
            else:
                axis.locator_params(axis="x", nbins=5)
            axis.grid(axis="x", alpha=0.25)
            axis.spines[["top", "right", "left"]].set_visible(False)
            axis.tick_params(axis="y", length=0)
            if "line" in panel:
                axis.axvline(panel["line"], color="#555555", linewidth=0.8, linestyle="--")
        axes[0].set_yticks(range(len(labels)), list(reversed(labels)))
        axes[0].set_ylim(-0.6, len(labels) - 0.4)
        if len(series) > 1:
            canvas.legend(
                *axes[0].get_legend_handles_labels(),
                loc="outside lower right",
                ncols=len(series),
                frameon=False,
            )
        canvas.savefig(
            FIGURES / f"results_{name}.svg",
            facecolor="white",
            metadata={"Description": repr(drawn), "Date": None},
        )


def figures() -> dict[str, dict[str, Any]]:
    return yaml.safe_load((DOCS / "results" / "figures.yaml").read_text(encoding="utf-8"))


if __name__ == "__main__":
    for each, specification in figures().items():
        draw(each, specification)
