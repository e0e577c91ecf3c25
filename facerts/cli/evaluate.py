"""``facerts evaluate``: benchmarks of models and of their image scores."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from facerts.cli.evaluate_fiqa import fiqa
from facerts.cli.evaluate_options import (
    BaselineOptions,
    Out,
    PairOptions,
    RecognizerOptions,
    ScoreOptions,
    evaluation_options,
    locked_results,
    open_baseline,
    open_model,
    open_scored,
)
from facerts.cli.option_groups import Commands
from facerts.cli.results import show
from facerts.cli.settings import CommandSettings
from facerts.cli.shared_options import Json

if TYPE_CHECKING:
    from facerts.embedding.embed import AnyEmbedder

AllPairs = Annotated[
    bool, typer.Option("--all-pairs", help="Also measure all pairs of the benchmark's images (millions).")
]
SimilarityOption = Annotated[
    Literal["cosine", "mls"],
    typer.Option(help="How pairs are compared; mls: mutual likelihood score, for models with a variance (PFE)."),
]
evaluate = Commands(no_args_is_help=True, help="Evaluate a model on benchmarks, with confidence intervals.")


@evaluate.command()
def verification(
    *,
    data: PairOptions,
    out: Out,
    recognizer: RecognizerOptions,
    scores: ScoreOptions,
    fmr: list[float] | None = None,
    similarity: SimilarityOption = "cosine",
    all_pairs: AllPairs = False,
    baselines: BaselineOptions,
    settings: CommandSettings,
    json: Json = False,
) -> None:
    """Verification (same person or not): 10-fold accuracy, AUROC, EER and FNMR at low FMR.

    Example: facerts evaluate verification --model m.onnx --data lfw/ --all-pairs --out results

    Args:
        fmr: False match rate to measure FNMR at; may be repeated. By default all that the number of pairs allows.
    """
    chosen = {**baselines.open(settings), "keep_crops": settings.evaluate.crops, "fmrs": tuple(fmr) if fmr else None}
    embedder = recognizer.open(settings, scores)
    _compare_pairs("verification", embedder, data, out, settings, similarity, json, every_pair=all_pairs, **chosen)


@evaluate.command()
def reject(
    *,
    data: PairOptions,
    out: Out,
    recognizer: RecognizerOptions,
    scores: ScoreOptions,
    fmr: Annotated[float, typer.Option(min=0.0, max=1.0)] = 0.001,
    similarity: SimilarityOption = "cosine",
    all_pairs: AllPairs = False,
    baselines: BaselineOptions,
    settings: CommandSettings,
    json: Json = False,
) -> None:
    """Error versus reject: FNMR at FMR 0.001 as the pairs of lowest quality are rejected.

    Example: facerts evaluate reject --model m.onnx --data lfw/ --out results

    Args:
        fmr: False match rate of the threshold.
    """
    chosen = {**baselines.open(settings), "keep_crops": False, "fmr": fmr}
    embedder = recognizer.open(settings, scores)
    _compare_pairs("reject", embedder, data, out, settings, similarity, json, every_pair=all_pairs, **chosen)


def _compare_pairs(
    kind: Literal["verification", "reject"],
    embedder: AnyEmbedder,
    data: PairOptions,
    out: Path,
    settings: CommandSettings,
    similarity: str,
    json: bool,
    **chosen: object,
) -> None:
    """Run an evaluation of pairs, and show it; the rest are fields of ``EvaluationOptions``."""
    from facerts.evaluation.benchmark_runs import run_pairs
    from facerts.evaluation.similarity import SIMILARITIES

    options = evaluation_options(out, settings, flip=settings.flip is not False, **chosen)
    with locked_results(out):
        result = run_pairs(embedder, [kind], data.open(), out, options, similarity=SIMILARITIES[similarity])
        show(result, kind, json=json)


@evaluate.command()
def identification(
    *,
    data: list[str],
    out: Out,
    recognizer: RecognizerOptions,
    enrolled: Annotated[int, typer.Option(min=1)] = 1,
    unknown: Annotated[float, typer.Option(min=0.0, max=1.0)] = 0.5,
    settings: CommandSettings,
    json: Json = False,
) -> None:
    """Identification in a gallery: rank 1, 5 and 10, and FNIR at FPIR for people who may not be enrolled.

    Example: facerts evaluate identification --model m.onnx --data faces/ --out results

    Args:
        data: A folder of IJB, TinyFace or SCface, or images with identities; may be repeated.
        enrolled: Images enrolled per person, in a gallery drawn from images with identities.
        unknown: Share of the people who are not enrolled, in a gallery drawn from images with identities.
    """
    from facerts.evaluation.benchmark_runs import run_identification

    embedder = recognizer.open(settings)
    options = evaluation_options(out, settings, keep_crops=False, flip=settings.flip is not False)
    with locked_results(out):
        result = run_identification(
            embedder, data, out, options, enrolled=enrolled, unknown=unknown, seed=settings.evaluate.seed
        )
        show(result, "identification", json=json)


@evaluate.command()
def ood(
    *,
    faces: Annotated[list[str], typer.Option("--in")],
    others: Annotated[list[str], typer.Option("--out-of")],
    out: Out,
    recognizer: RecognizerOptions,
    scores: ScoreOptions,
    exclude_in: str | None = None,
    exclude_out_of: str | None = None,
    baselines: BaselineOptions,
    settings: CommandSettings,
    json: Json = False,
) -> None:
    """Faces against non-faces: how well the quality, the embedding norm and baselines separate them.

    Example: facerts evaluate ood --model m.onnx --in lfw/ --in aaf/ --out-of pets/ --out results

    Args:
        faces: Images of faces; may be repeated.
        others: Images of non-faces; may be repeated.
        exclude_in: Pattern of file names to leave out of --in, such as *_0.jpg.
        exclude_out_of: Pattern of file names to leave out of --out-of, such as *_0.jpg.
    """
    from facerts.evaluation.ood import run_ood

    embedder = recognizer.open(settings, scores)
    options = evaluation_options(out, settings, keep_crops=settings.evaluate.crops, **baselines.open(settings))
    with locked_results(out):
        result = run_ood(embedder, faces, others, out, options, exclude_faces=exclude_in, exclude_others=exclude_out_of)
        show(result, "ood", json=json)


@evaluate.command()
def corruptions(
    *,
    model: Path,
    recognizer: Annotated[list[str] | None, typer.Option(metavar="[LABEL=]MODEL")] = None,
    data: list[str],
    out: Out,
    scores: ScoreOptions,
    images: Annotated[int, typer.Option(min=2)] = 500,
    settings: CommandSettings,
    json: Json = False,
) -> None:
    """Corruption benchmark: whether quality falls as much as a change of the image costs recognizers.

    Example: facerts evaluate corruptions --model facerts-quality --recognizer m.onnx --data faces/ --out results

    Args:
        model: Name of a model, path of an .onnx quality or recognizer, an insightface model pack, or a training run.
        recognizer: Recognizer whose cosines say what each change costs, as for --model; may be repeated. By default the
            model itself, if it has an embedding.
        data: Aligned faces; may be repeated. If people are known, one image of each is changed and compared with
            another.
        images: Number of faces, evenly spaced.
    """
    from facerts.evaluation.corruption_benchmark import run_corruptions
    from facerts.evaluation.lineup import open_recognizers

    scored = open_scored(model, settings, scores)
    recognizers = open_recognizers(recognizer or (), partial(open_model, settings=settings))
    baseline = open_baseline(settings)
    options = evaluation_options(out, settings, keep_crops=False, detector_baseline=baseline)
    with locked_results(out):
        result = run_corruptions(
            scored,
            data,
            out,
            options,
            recognizers={label: one.embedder for label, one in recognizers.items()},
            images=images,
        )
        show(result, "corruptions", json=json)


evaluate.command()(fiqa)
