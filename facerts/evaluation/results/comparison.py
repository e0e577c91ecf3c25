"""A comparison of results, as ``comparison.json`` has it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from facerts.evaluation.results.base import Count, Interval, Numbers, ResultPart
from facerts.metrics.reject import Combine

SCHEMA: Literal["facerts.comparison/1"] = "facerts.comparison/1"

Topic = Literal["verification", "ood", "reject", "embedding"]


class ComparedModel(ResultPart):
    """A result that is compared."""

    label: str = Field(
        description="How tables call it; of several runs of a method, `LABEL, run 1` and so on."
    )
    folder: str = Field(description="The result folder; outside the working folder, its name alone.")
    name: str = Field(description="How the model calls itself.")
    sha256: str = Field(description="SHA-256 of the model's file.")


class ComparedMethod(ResultPart):
    """A method with one training run or several."""

    label: str = Field(description="How tables and figures call it.")
    runs: list[ComparedModel] = Field(description="Its results.")


class PairedDifference(ResultPart):
    """A model minus the reference, on the same pairs or images."""

    value: float = Field(description="The difference.")
    ci95: Interval = Field(description="95 % interval of `value`.")
    p_value: float = Field(
        description="Two-sided, of no difference; not corrected for the number of comparisons."
    )
    unit: str = Field(description="What is resampled: `subjects`, `pairs` or `images`.")


class VerificationDifference(ResultPart):
    """Differences from the reference on one benchmark."""

    model: ComparedModel = Field(description="Whose.")
    far: float = Field(description="The lowest FAR that both could show, at which TAR is compared.")
    accuracy: PairedDifference = Field(description="Of the accuracy by folds.")
    auroc: PairedDifference = Field(description="Of the area under the ROC curve.")
    tar_at_far: PairedDifference = Field(description="Of the true accept rate at `far`.")


class SeparationDifference(ResultPart):
    """Differences of one score from the reference's."""

    auroc: PairedDifference = Field(description="Of the area under the ROC curve.")
    tnr_at_tpr: PairedDifference = Field(
        description="Of the true negative rate at a true positive rate of 95 %."
    )


class OodDifference(ResultPart):
    """Differences from the reference in separating faces from non-faces."""

    model: ComparedModel = Field(description="Whose.")
    by: dict[str, SeparationDifference] = Field(description="Differences by score.")


class TableCell(ResultPart):
    """A number of a table, as a share."""

    value: float = Field(description="Mean of `values`.")
    ci95: Interval | None = Field(description="95 % interval of a single run; null for several.")
    range: Interval | None = Field(description="Lowest and highest of several runs; null for one.")
    values: Numbers = Field(description="One for each run.")
    best: bool = Field(description="Whether it is above the second of its column by more than chance.")


class TableRow(ResultPart):
    """A row of a table."""

    method: str = Field(description="Label of the method.")
    score: str | None = Field(
        description="Score of an image that the numbers are of; null where they are of none."
    )
    runs: Count = Field(description="Number of training runs.")
    cells: dict[str, TableCell | None] = Field(description="By column; null where a run lacks the number.")


class ComparisonTable(ResultPart):
    """A table with a row for each method and score."""

    topic: Topic = Field(description="What it is about.")
    title: str = Field(description="Title of the table.")
    columns: list[str] = Field(description="Names of the numbers.")
    rows: list[TableRow] = Field(description="In the order of the methods.")
    note: str = Field(description="In words, what the numbers are.")


class QualityCurve(ResultPart):
    """Error versus reject of one method's score."""

    method: str = Field(description="Label of the method.")
    score: str = Field(description="Which of its scores.")
    fnmr: list[Numbers] = Field(description="False non-match rate for each of `rejected`, for each run.")


class QualityCurves(ResultPart):
    """Error versus reject of all methods' scores on one embedding."""

    fmr: float = Field(description="False match rate at which the threshold is chosen.")
    combine: Combine = Field(description="How the qualities of two images become that of their pair.")
    embedding: str = Field(description="Whose similarities and threshold these are.")
    rejected: Numbers = Field(description="Shares of the genuine pairs that are rejected.")
    oracle_fnmr: Numbers = Field(description="The lowest that FNMR could be.")
    by: list[QualityCurve] = Field(description="One for each method and score.")


class Comparison(ResultPart):
    """Several methods on the same data."""

    schema_: Annotated[
        Literal["facerts.comparison/1"], Field(alias="schema", description="Name and version of this format.")
    ]
    methods: list[ComparedMethod] = Field(description="In the order that they were given in.")
    reference: ComparedModel = Field(description="The first result, which all others are tested against.")
    models: list[ComparedModel] = Field(description="All others.")
    verification: dict[str, list[VerificationDifference]] = Field(description="Differences by benchmark.")
    ood: list[OodDifference] = Field(description="Differences in separating faces from non-faces.")
    tables: list[ComparisonTable] = Field(description="All methods side by side.")
    embedding: str = Field(description="Label of the method on whose embedding all qualities are measured.")
    curves: dict[str, QualityCurves] = Field(description="All qualities on that embedding, by benchmark.")
    notes: list[str] = Field(description="What could not be compared, in sentences.")
