"""``facerts evaluate``: benchmarks of models and of their image scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol, TypeVar

import typer

from facerts.cli import results
from facerts.cli.options import Batch, Detector, Json, Offline, Provider, Threads
from facerts.cli.output import print_json, warn
from facerts.errors import Error
from facerts.io.files import locked

if TYPE_CHECKING:
    from facerts.embedding.embed import AnyEmbedder
    from facerts.evaluation.options import EvaluationOptions
    from facerts.evaluation.results import Result
    from facerts.evaluation.run import Kind

Section = TypeVar("Section")


class WithNotes(Protocol):
    """A section that says what is odd about its data."""

    notes: list[str]


# Below it, a detector's scores of poor faces would be lost.
BASELINE_THRESHOLD = 0.02
# What a training run writes; its own room cannot be asked without PyTorch.
CHECKPOINT = "checkpoint.pt"


class Combining(str, Enum):
    """How the quality of a pair follows from those of its images."""

    MIN = "min"
    MEAN = "mean"
    PRODUCT = "product"


class Comparing(str, Enum):
    """How a pair is compared; ``facerts.evaluation.similarity`` has what they mean."""

    COSINE = "cosine"
    MLS = "mls"


class Searching(str, Enum):
    """Search backends; both are exact."""

    NUMPY = "numpy"
    FAISS = "faiss"


ModelOption = Annotated[
    Path | None,
    typer.Option(
        "--model",
        help="Name of a shipped model, path of an .onnx embedder, an insightface model pack (folder or .zip), or a "
        "training run.",
    ),
]
Embeddings = Annotated[
    Path | None, typer.Option(help="Embeddings computed elsewhere (.npz or .parquet), instead of a model.")
]
ScoreOption = Annotated[
    list[str] | None,
    typer.Option(
        "--score",
        metavar="NAME[:OPTION=VALUE,...]",
        help="With a training run: max_softmax, max_logit, odin, energy, mc_dropout, ser_fiq, newton_temperature or "
        "perturbed_quality of its classifier; may be repeated.",
    ),
]
EnsembleOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--ensemble",
        help="With a training run: another run on the same identities, for the score ensemble; may be repeated.",
    ),
]
Data = Annotated[
    list[str],
    typer.Option(
        help="A .bin set, a list of pairs, or a folder of LFW, CFP, AgeDB, CALFW, CPLFW, XQLFW, IJB; may be repeated."
    ),
]
Out = Annotated[Path, typer.Option(help="Result folder; several commands may share one.")]
Flip = Annotated[bool, typer.Option(help="Add the embedding of the mirror image of each crop.")]
AllPairs = Annotated[
    bool, typer.Option("--all-pairs", help="Also measure all pairs of the benchmark's images (millions).")
]
SimilarityOption = Annotated[
    Comparing,
    typer.Option(
        "--similarity",
        help="How pairs are compared; mls: mutual likelihood score, for models with a variance (PFE).",
    ),
]
Crops = Annotated[
    bool,
    typer.Option(
        "--crops/--no-crops",
        "--pictures/--no-pictures",
        help="Save the crops that a report shows: worst pairs, best and worst faces.",
    ),
]
DetectorBaseline = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|FILE",
        help="Detector whose score of each crop is measured as a baseline: yunet, or a file as for --detector.",
    ),
]
Reference = Annotated[
    str | None,
    typer.Option(help="Other faces; the mean similarity to the nearest of them is measured as a baseline."),
]
# Of the nearest-neighbor baseline.
NEIGHBORS = 10
Neighbors = Annotated[
    int, typer.Option(min=1, help="Number of nearest faces of --reference, for this baseline.")
]


Cache = Annotated[
    Path | None,
    typer.Option(
        help="Folder to cache the model's outputs in, so that further evaluations of the same model and images need no "
        "forward pass; evaluations may share it. By default cache in --out. It may be deleted at any time."
    ),
]
NoCache = Annotated[bool, typer.Option("--no-cache", help="Neither read nor write cached outputs.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    from facerts.cli.fiqa import fiqa

    group = typer.Typer(no_args_is_help=True)
    for command in (verification, reject, identification, ood, corruptions, fiqa):
        group.command()(command)
    group.command("ladder", hidden=True, deprecated=True)(corruptions)
    app.add_typer(group, name="evaluate", help="Evaluate a model on benchmarks, with confidence intervals.")


def verification(
    data: Data,
    out: Out,
    model: ModelOption = None,
    embeddings: Embeddings = None,
    score: ScoreOption = None,
    ensemble: EnsembleOption = None,
    far: Annotated[
        list[float] | None,
        typer.Option(
            help="FAR to measure TAR at; may be repeated. By default all that the number of pairs allows."
        ),
    ] = None,
    similarity: SimilarityOption = Comparing.COSINE,
    all_pairs: AllPairs = False,
    flip: Flip = True,
    crops: Crops = True,
    detector: Detector = "none",
    offline: Offline = False,
    detector_baseline: DetectorBaseline = None,
    reference: Reference = None,
    neighbors: Neighbors = NEIGHBORS,
    batch_size: Batch = 64,
    threads: Threads = None,
    provider: Provider = None,
    cache: Cache = None,
    no_cache: NoCache = False,
    json: Json = False,
) -> None:
    """Verification (same person or not): 10-fold accuracy, AUROC, EER and TAR at low FAR.

    Example: facerts evaluate verification --model m.onnx --data lfw/ --all-pairs --out results
    """
    embedder = open_embedder(model, embeddings, provider, threads, batch_size, score, ensemble)
    kept = cache_folder(out, cache, no_cache)
    options = evaluation_options(
        batch_size, crops, detector, detector_baseline, reference, kept, flip=flip, every_pair=all_pairs
    )
    options = replace(options, neighbors=neighbors, fars=tuple(far) if far else None)
    _pairs("verification", embedder, data, out, options, similarity, json)


def reject(
    data: Data,
    out: Out,
    model: ModelOption = None,
    embeddings: Embeddings = None,
    score: ScoreOption = None,
    ensemble: EnsembleOption = None,
    fmr: Annotated[float, typer.Option(min=0.0, max=1.0, help="False match rate of the threshold.")] = 0.001,
    combine: Annotated[
        Combining, typer.Option(help="How the quality of a pair is computed from those of its images.")
    ] = Combining.MIN,
    similarity: SimilarityOption = Comparing.COSINE,
    all_pairs: AllPairs = False,
    flip: Flip = True,
    detector: Detector = "none",
    offline: Offline = False,
    detector_baseline: DetectorBaseline = None,
    reference: Reference = None,
    neighbors: Neighbors = NEIGHBORS,
    batch_size: Batch = 64,
    threads: Threads = None,
    provider: Provider = None,
    cache: Cache = None,
    no_cache: NoCache = False,
    json: Json = False,
) -> None:
    """Error versus reject: FNMR at FMR 0.001 as the pairs of lowest quality are rejected.

    Example: facerts evaluate reject --model m.onnx --data lfw/ --out results
    """
    embedder = open_embedder(model, embeddings, provider, threads, batch_size, score, ensemble)
    kept = cache_folder(out, cache, no_cache)
    options = evaluation_options(
        batch_size, False, detector, detector_baseline, reference, kept, flip=flip, every_pair=all_pairs
    )
    options = replace(options, neighbors=neighbors, fmr=fmr, combine=combine.value)
    _pairs("reject", embedder, data, out, options, similarity, json)


def identification(
    data: Annotated[
        list[str],
        typer.Option(help="A folder of IJB, TinyFace or SCface, or images with identities; may be repeated."),
    ],
    out: Out,
    model: ModelOption = None,
    embeddings: Embeddings = None,
    enrolled: Annotated[
        int,
        typer.Option(
            min=1, help="Images enrolled per person, in a gallery drawn from images with identities."
        ),
    ] = 1,
    unknown: Annotated[
        float,
        typer.Option(
            min=0.0,
            max=1.0,
            help="Share of the people who are not enrolled, in a gallery drawn from images with identities.",
        ),
    ] = 0.5,
    seed: Annotated[int, typer.Option(help="Seed of the random choice of a gallery.")] = 0,
    search: Annotated[Searching, typer.Option(help="Search backend; both are exact.")] = Searching.NUMPY,
    flip: Flip = True,
    detector: Detector = "none",
    offline: Offline = False,
    batch_size: Batch = 64,
    threads: Threads = None,
    provider: Provider = None,
    cache: Cache = None,
    no_cache: NoCache = False,
    json: Json = False,
) -> None:
    """Identification in a gallery: rank 1, 5 and 10, and FNIR at FPIR for people who may not be enrolled.

    Example: facerts evaluate identification --model m.onnx --data faces/ --out results
    """
    from facerts.evaluation.run import run_identification

    embedder = open_embedder(model, embeddings, provider, threads, batch_size)
    options = evaluation_options(
        batch_size, False, detector, None, None, cache_folder(out, cache, no_cache), flip=flip
    )
    with alone(out):
        result = run_identification(
            embedder, data, out, options, enrolled=enrolled, unknown=unknown, seed=seed, backend=search.value
        )
    warn_of_notes(result.identification)
    _show(result, "identification", result.identification, json, results.show_identification)


def ood(
    faces: Annotated[list[str], typer.Option("--in", help="Images of faces; may be repeated.")],
    others: Annotated[list[str], typer.Option("--out-of", help="Images of non-faces; may be repeated.")],
    out: Out,
    model: ModelOption = None,
    embeddings: Embeddings = None,
    score: ScoreOption = None,
    ensemble: EnsembleOption = None,
    exclude_in: Annotated[
        str | None, typer.Option(help="Pattern of file names to leave out of --in, such as *_0.jpg.")
    ] = None,
    exclude_out_of: Annotated[
        str | None, typer.Option(help="Pattern of file names to leave out of --out-of, such as *_0.jpg.")
    ] = None,
    crops: Crops = True,
    detector: Detector = "none",
    offline: Offline = False,
    detector_baseline: DetectorBaseline = None,
    reference: Reference = None,
    neighbors: Neighbors = NEIGHBORS,
    batch_size: Batch = 64,
    threads: Threads = None,
    provider: Provider = None,
    cache: Cache = None,
    no_cache: NoCache = False,
    json: Json = False,
) -> None:
    """Faces against non-faces: how well the quality, the embedding norm and baselines separate them.

    Example: facerts evaluate ood --model m.onnx --in lfw/ --in aaf/ --out-of pets/ --out results
    """
    from facerts.evaluation.ood import run_ood

    embedder = open_embedder(model, embeddings, provider, threads, batch_size, score, ensemble)
    options = evaluation_options(
        batch_size, crops, detector, detector_baseline, reference, cache_folder(out, cache, no_cache)
    )
    options = replace(options, neighbors=neighbors)
    with alone(out):
        result = run_ood(
            embedder, faces, others, out, options, exclude_faces=exclude_in, exclude_others=exclude_out_of
        )
    assert result.ood is not None  # it was just measured
    warn_of_notes({"ood": result.ood})
    _show(result, "ood", result.ood, json, results.show_ood)


def corruptions(
    model: Annotated[
        Path,
        typer.Option(
            help="Name of a shipped model, or path of an .onnx embedder, an insightface model pack, or a training run."
        ),
    ],
    data: Annotated[list[str], typer.Option(help="Aligned faces; may be repeated.")],
    out: Out,
    score: ScoreOption = None,
    ensemble: EnsembleOption = None,
    images: Annotated[
        int, typer.Option("--images", "--pictures", min=2, help="Number of faces, evenly spaced.")
    ] = 500,
    detector: Detector = "none",
    offline: Offline = False,
    detector_baseline: DetectorBaseline = None,
    batch_size: Batch = 64,
    threads: Threads = None,
    provider: Provider = None,
    cache: Cache = None,
    no_cache: NoCache = False,
    json: Json = False,
) -> None:
    """Corruption benchmark: whether quality falls with blur, noise, low resolution, JPEG, occlusion and light.

    Example: facerts evaluate corruptions --model m.onnx --data faces/ --out results
    """
    from facerts.evaluation.corruption_benchmark import run_corruptions

    embedder = open_embedder(model, None, provider, threads, batch_size, score, ensemble)
    options = evaluation_options(
        batch_size, False, detector, detector_baseline, None, cache_folder(out, cache, no_cache)
    )
    with alone(out):
        result = run_corruptions(embedder, data, out, options, images=images)
    warn_of_notes(result.corruptions)
    _show(result, "corruptions", result.corruptions, json, results.show_corruptions)


def _pairs(
    kind: Kind,
    embedder: AnyEmbedder,
    data: list[str],
    out: Path,
    options: EvaluationOptions,
    similarity: Comparing,
    json: bool,
) -> None:
    from facerts.evaluation.run import run_pairs
    from facerts.evaluation.similarity import SIMILARITIES

    with alone(out):
        result = run_pairs(embedder, [kind], data, out, options, similarity=SIMILARITIES[similarity.value])
    if kind == "verification":
        warn_of_notes(result.verification)
        _show(result, kind, result.verification, json, results.show_verification)
    else:
        warn_of_notes(result.calibration)
        _show(result, kind, result.reject, json, results.show_reject)


def alone(out: Path) -> AbstractContextManager[None]:
    """A lock on the result folder, since concurrent evaluations would overwrite each other's sections."""
    from facerts.evaluation.result_folder import JSON_FILE

    return locked(out / JSON_FILE)


def _show(result: Result, kind: str, section: Section, json: bool, show: Callable[[Section], None]) -> None:
    """Print one kind of sections."""
    print_json(result.to_json()[kind]) if json else show(section)


def warn_of_notes(sections: Mapping[str, WithNotes]) -> None:
    """Print notes on problems with the data to standard error."""
    for name, section in sections.items():
        for note in section.notes:
            warn(f"{name}: {note}")


def open_embedder(
    model: Path | None,
    embeddings: Path | None,
    provider: list[str] | None,
    threads: int | None,
    batch_size: int,
    scores: list[str] | None = None,
    ensemble: list[Path] | None = None,
) -> AnyEmbedder:
    from facerts.embedding import load_embedder, load_table
    from facerts.hub.registry import find_model

    if (model is None) == (embeddings is None):
        raise Error("give either --model or --embeddings")
    if model is not None and _is_run(model):
        from facerts.training.classifier_scores.classifier_embedder import load_run

        if provider:
            raise Error(
                "--provider is for ONNX Runtime; a training run goes through PyTorch, on a GPU where there is one"
            )
        return load_run(model, scores or (), ensemble or (), threads=threads)
    if scores or ensemble:
        raise Error(
            f"{model or embeddings}: --score and --ensemble need class centers, which are only in a training run; "
            f"give its folder or its {CHECKPOINT} as --model"
        )
    if embeddings is not None:
        return load_table(embeddings)
    assert model is not None
    return load_embedder(find_model(model), providers=provider, threads=threads, batch_size=batch_size)


def _is_run(model: Path) -> bool:
    return model.suffix == ".pt" or (model / CHECKPOINT).is_file()


def cache_folder(out: Path, folder: Path | None, no_cache: bool) -> Path | None:
    """The folder of kept outputs; None for none."""
    if no_cache and folder is not None:
        raise Error("give either --cache or --no-cache")
    return None if no_cache else folder or out / "cache"


def evaluation_options(
    batch_size: int,
    crops: bool,
    detector: str,
    detector_baseline: str | None,
    reference: str | None,
    cache: Path | None,
    *,
    flip: bool = True,
    every_pair: bool = False,
) -> EvaluationOptions:
    from facerts.datasets import open_images
    from facerts.detection import open_detector, open_face_finder
    from facerts.embedding.output_cache import OutputCache
    from facerts.evaluation.options import EvaluationOptions

    return EvaluationOptions(
        batch_size=batch_size,
        keep_crops=crops,
        detector=open_face_finder(detector),
        detector_baseline=(
            None
            if detector_baseline is None
            else open_detector(detector_baseline, threshold=BASELINE_THRESHOLD)
        ),
        reference=None if reference is None else open_images(reference),
        flip=flip,
        every_pair=every_pair,
        cache=None if cache is None else OutputCache(cache),
    )
