"""``facerts evaluate fiqa``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from facerts.cli.evaluate_options import (
    Out,
    evaluation_options,
    is_table,
    locked_results,
    open_baseline,
    open_model,
)
from facerts.cli.output import warn
from facerts.cli.results import show
from facerts.cli.settings import CommandSettings
from facerts.cli.shared_options import GroupOptions, Json
from facerts.errors import Error, MissingExtraError

if TYPE_CHECKING:
    from facerts.evaluation.evaluation_options import EvaluationOptions
    from facerts.evaluation.lineup import Lineup


@dataclass(frozen=True)
class LineupOptions:
    """The recognizers, and the qualities that are to predict their errors.

    Attributes:
        model: Recognizer whose errors the qualities are to predict: name of a model, .onnx file, insightface model
            pack, training run, or its embeddings (.npz or .parquet), whose further columns are qualities. Repeatable.
        quality: Quality to compare: name of a model, .onnx file with a quality or an embedding, whose norm is one, or a
            column of a table with a row for each image (FILE.csv:COLUMN). Repeatable.
        describe: Description of a --quality that has none in its file or beside it. Repeatable.
        recognizer_score: Training-free quality of the recognizers, by further forward passes: mirror, pruning, dropout,
            froq, or all of these. Repeatable.
        calibrate_scores: Faces other than --data by which froq chooses layers; without them, all leaves out froq.
    """

    model: Annotated[list[str] | None, typer.Option(metavar="[LABEL=]MODEL")] = None
    quality: Annotated[list[str] | None, typer.Option(metavar="[LABEL=]FILE")] = None
    describe: Annotated[list[str] | None, typer.Option(metavar="LABEL=FILE.json")] = None
    recognizer_score: list[str] | None = None
    calibrate_scores: Annotated[str | None, typer.Option(metavar="FACES")] = None

    def open(self, settings: CommandSettings, options: EvaluationOptions) -> Lineup:
        """Load the models and tables; the options say how faces are read."""
        from facerts.embedding import load_table
        from facerts.evaluation.evaluation_options import faces_of
        from facerts.evaluation.lineup import Lineup, open_qualities, open_recognizers

        faces = None if self.calibrate_scores is None else options.crops_of(faces_of(self.calibrate_scores))
        recognizers = open_recognizers(
            self.model or (),
            lambda path: load_table(path) if is_table(path) else open_model(path, settings),
            self.recognizer_score or (),
            faces,
        )
        qualities = open_qualities(
            self.quality or (),
            descriptions=self.describe or (),
            detector=open_baseline(settings),
            **settings.runtime(),
        )
        return Lineup.of(recognizers, qualities)


def fiqa(
    *,
    out: Out,
    data: list[str],
    lineup: LineupOptions,
    against: Annotated[str | None, typer.Option(metavar="LABEL")] = None,
    fmr: float | None = None,
    degraded: Annotated[bool, typer.Option("--degraded")] = False,
    out_of: list[str] | None = None,
    exclude_out_of: str | None = None,
    groups: GroupOptions,
    keep_on: str | None = None,
    settings: CommandSettings,
    json: Json = False,
) -> None:
    """Compare face image qualities by how well they predict the errors of several recognizers.

    Writes result.json, tables.md, figures and report.html into --out.

    Example: facerts evaluate fiqa --model arcface.onnx --model edgeface.onnx --quality facerts-small --quality
    magface.onnx --data lfw/ --out-of pets/ --out qualities

    Args:
        data: Faces: a verification benchmark, or images with identities, of which all pairs are compared; images
            without identities are only separated from non-faces. Repeatable.
        against: Quality that the others are compared with; by default the first.
        fmr: False match rate of the thresholds; by default 0.001, or 0.01 if there are too few pairs.
        degraded: Also measure each set with half of its images degraded at random.
        out_of: Images of non-faces. Repeatable.
        exclude_out_of: Pattern of files to leave out of --out-of, such as *_0.jpg.
        keep_on: Faces on which the setting keep chooses thresholds; by default those of each set.
    """
    from facerts.evaluation.evaluation_options import faces_of, open_without
    from facerts.evaluation.face_sets import open_face_sets
    from facerts.evaluation.league import FiqaOptions, run_fiqa
    from facerts.report.page import write_folder_report

    # Many models are open at the same time.
    settings = replace(settings, batch_size=settings.batch_size or 16)
    options = evaluation_options(out, settings, keep_crops=False, flip=settings.flip or False)
    face_sets = open_face_sets(data, options)
    others = [options.crops_of(open_without(path, exclude_out_of)) for path in out_of or ()]
    if len({source.name for source in others}) != len(others):
        raise Error("two sources of non-faces have the same name; results are stored by name")
    fiqa_options = FiqaOptions(
        fmr=fmr,
        against=against,
        degraded=degraded,
        replicates=settings.evaluate.replicates,
        seed=settings.evaluate.seed,
        groups=groups.read(),
        keep=settings.keep if isinstance(settings.keep, float) else 0.95,
        keep_on=None if keep_on is None else options.crops_of(faces_of(keep_on)),
        cost=settings.evaluate.cost,
    )
    opened = lineup.open(settings, options)
    with locked_results(out):
        result = run_fiqa(
            opened,
            face_sets,
            out,
            fiqa_options,
            options,
            others={source.name: source for source in others},
            excluded=exclude_out_of,
        )
        try:
            write_folder_report(out, title="Quality league")
        except MissingExtraError as error:
            warn(f"{error}; {out} has the result without figures and page")
        show(result, "fiqa", "groups", json=json)
