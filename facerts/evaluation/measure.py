"""What every evaluation gives: numbers, how they are read, and figures of its arrays.

An evaluation of one set of data is an ``Evaluation``. Tables, pages, summaries and comparisons know no more of it than
stands here, so that a new evaluation is one file. The models define the formats of ``result.json`` and
``comparison.json``; ``docs/results-schema.md`` and the JSON schemas beside it are generated from them
(``tools/docs_tables.py``).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

# What a file holds must not decide how long a page takes.
MAX_MEASURES, MAX_PLOTS, MAX_PANELS, MAX_SERIES, MAX_ROWS = 50_000, 100, 64, 200, 100

Count = Annotated[int, Field(ge=0)]
# The first and the last of a 95% interval. JSON has arrays where Python has tuples, hence not strict.
Interval = Annotated[tuple[float, float], Field(strict=False)]
# Shares are shown in percent, differences of shares in percentage points.
Format = Literal["share", "small share", "whole share", "points", "count", ".0f", ".2f", ".3f", ".4f", "+.3f", ".2g"]
Statistic = Literal["accuracy", "auroc", "tar_at_far", "tnr_at_tpr"]

# Rows of one method that are compared within a table; other rows have tables of their own.
SCORE_KEYS = ("score", "quality", "recognizer")


class ResultPart(BaseModel):
    """Part of a result or of a comparison."""

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False, populate_by_name=True)

    def to_json(self) -> dict[str, JsonValue]:
        """As the file has it: the keys that were set, whether by whoever measured or by the file that was read."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)


class PairedTest(ResultPart):
    """How the arrays tell whether two models differ in a measure; people are resampled where they are known."""

    statistic: Statistic = Field(description="What is compared.")
    at: float | None = Field(default=None, description="FAR or TPR of the statistic.")
    faces: list[str] = Field(
        default=[],
        description="Arrays with scores of faces; empty for the pairs of `scores`, `same` and `folds`.",
    )
    others: list[str] = Field(default=[], description="Arrays with scores of non-faces.")


class Measure(ResultPart):
    """A number: a cell of a table."""

    name: str = Field(description="What it is, such as `AUROC`: the column of tables.")
    of: dict[str, str] = Field(
        default={}, description="What it is measured of, such as `{score: quality}`: the row of tables."
    )
    table: str = Field(default="", description="Title of the table that it belongs to.")
    value: float | None = Field(description="The number; null where it is undefined or one of several in `range`.")
    ci95: Interval | None = Field(default=None, description="95% interval of `value`.")
    range: Interval | None = Field(default=None, description="Lowest and highest of several numbers.")
    n: Count | None = Field(default=None, description="Number of pairs, searches or images that it is measured on.")
    better: Literal["higher", "lower", ""] = Field(default="", description="Which is better, if any.")
    format: Format = Field(default="share", description="How it is shown.")
    mark: Literal["best", "clear", "worst", ""] = Field(
        default="",
        description="`best`: better than the second by more than chance; `clear`: a difference whose interval leaves "
        "out 0; `worst`: of the groups.",
    )
    threshold: float | None = Field(default=None, description="Minimum similarity or quality, if there is one.")
    passing: Count | None = Field(default=None, description="Impostor pairs or non-mated searches at or above it.")
    p_value: float | None = Field(
        default=None, description="Two-sided, of a difference; not corrected for the number of comparisons."
    )
    headline: bool = Field(default=False, description="Whether summaries show it.")
    test: PairedTest | None = Field(default=None, description="How two models are compared by it.")


class Series(ResultPart):
    """Something drawn in a panel; arrays are given by their names within the section."""

    label: str = Field(description="Its name.")
    x: list[str] = Field(min_length=1, description="Arrays, one after the other; of values, their density is drawn.")
    y: str | None = Field(default=None, description="Array; null for the density of the values in `x`.")
    low: str | None = Field(default=None, description="Array: lower ends of a band or of bars.")
    high: str | None = Field(default=None, description="Array: upper ends.")
    x_low: str | None = Field(default=None, description="Array: left ends of bars.")
    x_high: str | None = Field(default=None, description="Array: right ends of bars.")
    where: str | None = Field(default=None, description="Array of flags: only these values; with `~`, the others.")
    mark: Literal["line", "steps", "points", "hollow points", "counts", "name"] = Field(
        default="line",
        description="How it is drawn; `counts` are between the edges in `x`, `name` is a point with its name.",
    )
    reference: bool = Field(default=False, description="Whether it is gray, as what others are held against.")
    dashed: bool = Field(default=False, description="Whether lines are dashed.")
    alone: bool = Field(default=False, description="Whether it is left out where several models are shown.")


class Plot(ResultPart):
    """A figure of arrays."""

    name: str = Field(description="Name of the figure.")
    caption: str = Field(description="What it shows.")
    x: str = Field(description="Label of the horizontal axis.")
    y: str = Field(description="Label of the vertical axis.")
    panels: dict[str, Annotated[list[Series], Field(max_length=MAX_SERIES)]] = Field(
        min_length=1, max_length=MAX_PANELS, description="What is drawn, by title of the panel."
    )
    percent: Literal["", "x", "y", "xy"] = Field(default="", description="Axes of shares.")
    log: bool = Field(default=False, description="Whether both axes are logarithmic.")
    together: bool = Field(default=True, description="Whether several models share panels.")
    folded: bool = Field(default=False, description="Whether a page shows it only after a click.")
    x_limits: Interval | None = Field(default=None, description="Ends of the horizontal axis.")
    y_limits: Interval | None = Field(default=None, description="Ends of the vertical axis.")
    rows: list[str] = Field(
        default=[],
        max_length=MAX_ROWS,
        description="Names of rows at heights 0, 1, …; the vertical axis lists them from the top.",
    )


class Evaluation(ResultPart):
    """An evaluation on one set of data."""

    title: str = Field(description="Heading of evaluations of this kind.")
    images: Count = Field(default=0, description="Number of images.")
    interval: str | None = Field(default=None, description="Unit that the intervals resample, as text.")
    text: str = Field(default="", description="How the numbers are read.")
    findings: list[str] = Field(default=[], description="What the numbers say, in sentences.")
    notes: list[str] = Field(default=[], description="Notes on problems with the data.")
    excluded: dict[str, str] = Field(default={}, description="Patterns of file names that were left out.")
    settings: dict[str, str | int | float | bool | None] = Field(default={}, description="How it was measured.")
    data_sha256: dict[str, str] = Field(
        default={},
        description="SHA-256 of the names and bytes of all images, in order, by source; empty if unknown.",
    )
    measures: list[Measure] = Field(max_length=MAX_MEASURES, description="The numbers.")
    folded: list[str] = Field(default=[], description="Tables that a page shows only after a click.")
    plots: list[Plot] = Field(default=[], max_length=MAX_PLOTS, description="Figures.")

    @property
    def explained(self) -> str:
        """How the numbers are read, and what was left out."""
        left_out = [f" {what.capitalize()} are without {pattern}." for what, pattern in self.excluded.items()]
        return self.text + "".join(left_out)

    def find(self, name: str, **of: str) -> Measure | None:
        """The first measure of this name, measured of these; None if there is none."""
        return next((one for one in self.measures if one.name == name and of.items() <= one.of.items()), None)

    def measure(self, name: str, **of: str) -> Measure:
        """As ``find``.

        Raises:
            KeyError: there is no such measure.
        """
        found = self.find(name, **of)
        if found is None:
            raise KeyError(f"{name} of {of}")
        return found


def scores_of_rows(measure: Measure) -> str | None:
    """The score, quality or recognizer that a measure is of, if any."""
    return next((measure.of[key] for key in SCORE_KEYS if key in measure.of), None)
