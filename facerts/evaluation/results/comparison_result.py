"""A comparison of results, as ``comparison.json`` has it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from facerts.evaluation.results.result_part import Count, Interval, Numbers, ResultPart

SCHEMA: Literal["facerts.comparison/1"] = "facerts.comparison/1"

Topic = Literal["verification", "ood", "reject", "embedding", "fiqa"]


class ComparedModel(ResultPart):
    """A result that is compared."""

    label: str = Field(description="Name in tables; for several runs of a method `LABEL, run 1` and so on.")
    folder: str = Field(
        description="The result folder; only its name if it is outside the working directory."
    )
    name: str = Field(description="Name of the model.")
    sha256: str = Field(description="SHA-256 of the model's file.")


class ComparedMethod(ResultPart):
    """A method with one training run or several."""

    label: str = Field(description="Name in tables and figures.")
    runs: list[ComparedModel] = Field(description="Its results.")


class PairedDifference(ResultPart):
    """A model minus the reference, on the same pairs or images."""

    value: float = Field(description="The difference.")
    ci95: Interval = Field(description="95% interval of `value`.")
    p_value: float = Field(description="Two-sided p-value; not corrected for the number of comparisons.")
    unit: str = Field(description="What is resampled: `subjects`, `pairs` or `images`.")


class VerificationDifference(ResultPart):
    """Differences from the reference on one benchmark."""

    model: ComparedModel = Field(description="The compared model.")
    far: float = Field(
        description="The lowest FAR that both models can be measured at; TAR is compared there."
    )
    accuracy: PairedDifference = Field(description="Difference in accuracy by folds.")
    auroc: PairedDifference = Field(description="Difference in the area under the ROC curve.")
    tar_at_far: PairedDifference = Field(description="Difference in the true accept rate at `far`.")


class SeparationDifference(ResultPart):
    """Differences of one score from the reference's."""

    auroc: PairedDifference = Field(description="Difference in the area under the ROC curve.")
    tnr_at_tpr: PairedDifference = Field(
        description="Difference in the true negative rate at a true positive rate of 95%."
    )


class OodDifference(ResultPart):
    """Differences from the reference in separating faces from non-faces."""

    model: ComparedModel = Field(description="The compared model.")
    by: dict[str, SeparationDifference] = Field(description="Differences by score.")


class TableCell(ResultPart):
    """A number of a table, as a share."""

    value: float = Field(description="Mean of `values`.")
    ci95: Interval | None = Field(description="95% interval of a single run; null for several.")
    range: Interval | None = Field(description="Minimum and maximum of several runs; null for one.")
    values: Numbers = Field(description="One value per run.")
    best: bool = Field(description="Whether it is significantly better than the second best of its column.")


class TableRow(ResultPart):
    """A row of a table."""

    method: str = Field(description="Label of the method.")
    score: str | None = Field(
        description="Image score that the numbers are about; null if they do not depend on one."
    )
    runs: Count = Field(description="Number of training runs.")
    cells: dict[str, TableCell | None] = Field(description="Cells by column; null if a run lacks the number.")


class ComparisonTable(ResultPart):
    """A table with a row for each method and score."""

    topic: Topic = Field(description="Topic of the table.")
    title: str = Field(description="Title of the table.")
    columns: list[str] = Field(description="Names of the columns.")
    rows: list[TableRow] = Field(description="Rows, in the order of the methods.")
    note: str = Field(description="Explanation of the numbers.")


class QualityCurve(ResultPart):
    """Error versus reject of one method's score."""

    method: str = Field(description="Label of the method.")
    score: str = Field(description="Name of the score.")
    fnmr: list[Numbers] = Field(description="False non-match rate for each of `rejected`, for each run.")


class QualityCurves(ResultPart):
    """Error versus reject of all methods' scores on one embedding."""

    fmr: float = Field(description="False match rate at which the threshold is chosen.")
    embedding: str = Field(description="Label of the method that the similarities and threshold come from.")
    rejected: Numbers = Field(description="Shares of the genuine pairs that are rejected.")
    oracle_fnmr: Numbers = Field(description="The lowest possible FNMR.")
    by: list[QualityCurve] = Field(description="One curve per method and score.")


class Comparison(ResultPart):
    """Several methods on the same data."""

    schema_: Annotated[
        Literal["facerts.comparison/1"], Field(alias="schema", description="Name and version of this format.")
    ]
    methods: list[ComparedMethod] = Field(description="Methods, in the given order.")
    reference: ComparedModel = Field(description="The first result; the others are tested against it.")
    models: list[ComparedModel] = Field(description="All other models.")
    verification: dict[str, list[VerificationDifference]] = Field(description="Differences by benchmark.")
    ood: list[OodDifference] = Field(description="Differences in separating faces from non-faces.")
    tables: list[ComparisonTable] = Field(description="Tables of all methods.")
    embedding: str = Field(description="Label of the method on whose embedding all qualities are measured.")
    curves: dict[str, QualityCurves] = Field(description="All qualities on that embedding, by benchmark.")
    notes: list[str] = Field(description="Notes on what could not be compared.")
