"""``facerts evaluate fiqa``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from facerts.cli.evaluate_options import (
    DetectorBaseline,
    InputOptions,
    Out,
    locked_results,
    open_baseline,
    open_model,
    warn_of_notes,
)
from facerts.cli.output import print_json, warn
from facerts.cli.results import show_fiqa
from facerts.cli.shared_options import BatchOptions, GroupOptions, Json
from facerts.errors import Error, MissingExtraError

if TYPE_CHECKING:
    from facerts.evaluation.evaluation_options import EvaluationOptions
    from facerts.evaluation.fiqa.lineup import Lineup


@dataclass(frozen=True)
class FiqaBatchOptions(BatchOptions):
    """How the forward passes of recognizers and qualities run.

    Attributes:
        batch_size: Number of crops per batch.
    """

    batch_size: Annotated[int, typer.Option(min=1)] = 16


@dataclass(frozen=True)
class LineupOptions:
    """The recognizers, and the qualities that are to predict their errors.

    Attributes:
        model: Recognizer whose errors the qualities are to predict: name of a shipped model, path of an .onnx embedder,
            an insightface model pack, or a training run; may be repeated.
        embeddings: Embeddings of a recognizer computed elsewhere (.npz or .parquet); its further columns are qualities.
            May be repeated.
        quality: Quality to compare: name of a shipped model, path of an .onnx model with a quality or with an embedding
            whose norm is one, or a .csv file with a row for each image (FILE.csv:COLUMN for one of its columns). May be
            repeated.
        describe: Description of a --quality that has none in its file or beside it; may be repeated.
        recognizer_score: Training-free quality of the recognizers themselves, which takes further forward passes:
            mirror, pruning, dropout, froq, or all that every recognizer allows; may be repeated.
        calibrate_scores: Faces by which the score froq chooses layers of each recognizer, apart from those of --data;
            at most 500 of them, evenly spaced, are used. Without them, all leaves out froq.
    """

    model: Annotated[list[str] | None, typer.Option(metavar="[LABEL=]MODEL")] = None
    embeddings: Annotated[list[str] | None, typer.Option(metavar="[LABEL=]FILE")] = None
    quality: Annotated[list[str] | None, typer.Option(metavar="[LABEL=]FILE")] = None
    describe: Annotated[list[str] | None, typer.Option(metavar="LABEL=FILE.json")] = None
    recognizer_score: list[str] | None = None
    calibrate_scores: Annotated[str | None, typer.Option(metavar="FACES")] = None
    detector_baseline: DetectorBaseline = None

    def open(self, batches: BatchOptions, options: EvaluationOptions) -> Lineup:
        """Load the models and tables; the options say how faces are read."""
        from facerts.embedding import load_table
        from facerts.evaluation.evaluation_options import faces_of
        from facerts.evaluation.fiqa.lineup import Lineup, columns_of, open_qualities, open_recognizers

        faces = None if self.calibrate_scores is None else options.crops_of(faces_of(self.calibrate_scores))
        recognizers = open_recognizers(
            self.model or (), partial(open_model, batches=batches), self.recognizer_score or (), faces
        )
        tables = open_recognizers(self.embeddings or (), load_table)
        qualities = open_qualities(
            self.quality or (),
            descriptions=self.describe or (),
            detector=open_baseline(self.detector_baseline),
            **batches.keywords(),
        )
        return Lineup.of(recognizers, tables, qualities, columns_of(tables))


def fiqa(
    *,
    out: Out,
    data: list[str],
    lineup: LineupOptions,
    against: Annotated[str | None, typer.Option(metavar="LABEL")] = None,
    fmr: list[float] | None = None,
    listed_pairs: Annotated[bool, typer.Option("--listed-pairs")] = False,
    degraded: Annotated[bool, typer.Option("--degraded")] = False,
    out_of: list[str] | None = None,
    exclude_out_of: str | None = None,
    groups: GroupOptions,
    keep: Annotated[float, typer.Option(min=0.0, max=1.0)] = 0.95,
    keep_on: str | None = None,
    replicates: Annotated[int, typer.Option(min=0)] = 300,
    seed: int = 0,
    flip: bool = False,
    cost: bool = True,
    inputs: InputOptions,
    batches: FiqaBatchOptions,
    json: Json = False,
) -> None:
    """Compare face image qualities by how well they predict the errors of several recognizers.

    Writes result.json, tables.md, figures and report.html into --out.

    Example: facerts evaluate fiqa --model arcface.onnx --model edgeface.onnx --quality facerts-small --quality
    magface.onnx --data lfw/ --out-of pets/ --out league

    Args:
        data: Faces: a verification benchmark, or images with identities, of which all pairs are compared; images
            without identities are only separated from non-faces. May be repeated.
        against: Quality that the others are compared with; by default the first.
        fmr: False match rate of a threshold; may be repeated. By default 0.01, 0.001 and 0.0001, if there are enough
            pairs.
        listed_pairs: Compare only the pairs that benchmarks list, not all pairs.
        degraded: Also measure each set with half of its images degraded at random, at the thresholds of the original
            images.
        out_of: Images of non-faces to separate the faces from; may be repeated.
        exclude_out_of: Pattern of file names to leave out of --out-of, such as *_0.jpg.
        keep: Share of the images that each quality accepts, for --groups.
        keep_on: Faces that determine the thresholds of --keep, e.g. those that a model was calibrated on; by default
            the images of each set.
        replicates: Bootstrap resamples of the people.
        seed: Seed of the bootstrap and of --degraded.
        flip: Add the embedding of the mirror image of each crop; takes twice the time.
        cost: Measure the time per image of each quality.
    """
    from facerts.evaluation.evaluation_options import faces_of, open_without
    from facerts.evaluation.fiqa.face_sets import open_face_sets
    from facerts.evaluation.fiqa.league import FiqaOptions, run_fiqa

    options = inputs.evaluation(out, batches, keep_crops=False, flip=flip)
    face_sets = open_face_sets(data, options, listed_pairs=listed_pairs)
    others = [options.crops_of(open_without(path, exclude_out_of)) for path in out_of or ()]
    if len({source.name for source in others}) != len(others):
        raise Error("two sources of non-faces have the same name; results are stored by name")
    fiqa_options = FiqaOptions(
        fmrs=tuple(fmr) if fmr else None,
        against=against,
        degraded=degraded,
        replicates=replicates,
        seed=seed,
        groups=groups.read(),
        keep=keep,
        keep_on=None if keep_on is None else options.crops_of(faces_of(keep_on)),
        cost=cost,
    )
    opened = lineup.open(batches, options)
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
    warn_of_notes(result.fiqa)
    try:
        from facerts.report.league_report import write_league_report

        write_league_report(out)
    except MissingExtraError as error:
        warn(f"{error}; {out} has the result without figures and page")
    print_json(result.to_json()["fiqa"]) if json else show_fiqa(result.fiqa)
