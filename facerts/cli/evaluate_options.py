"""Options of ``facerts evaluate``: the recognizer, the images, the baselines, and where results and outputs go."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from facerts.cli.settings import CommandSettings
from facerts.errors import Error
from facerts.io.console import say
from facerts.io.files import locked

if TYPE_CHECKING:
    from facerts.datasets import PairBenchmark
    from facerts.detection import OpenDetector
    from facerts.embedding import Embedder, OnnxQuality
    from facerts.embedding.embed import AnyEmbedder
    from facerts.evaluation.evaluation_options import EvaluationOptions

# Below it, a detector's scores of poor faces would be lost.
BASELINE_THRESHOLD = 0.02
# In front of the run of an ensemble.
ENSEMBLE = "ensemble:"
# What a training run writes; its own room cannot be asked without PyTorch.
CHECKPOINT = "checkpoint.pt"

MODEL_HELP = (
    "Name of a model, path of an .onnx recognizer, an insightface model pack (folder or .zip), a training run, "
    "or a table of embeddings computed elsewhere (.npz or .parquet)."
)
Out = Annotated[Path, typer.Option(help="Result folder; several commands may share one.")]
Quality = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|FILE|own",
        help="Name or .onnx file of the quality to evaluate with the recognizer's embedding; by default, or with own, "
        "the recognizer's own.",
    ),
]


@dataclass(frozen=True)
class ScoreOptions:
    """Scores of a training run's classifier.

    Attributes:
        score: With a training run: max_softmax, max_logit, odin, energy, mc_dropout, ser_fiq, newton_temperature or
            perturbed_quality of its classifier, or ensemble:RUN for the score of an ensemble with another run on the
            same identities; may be repeated.
    """

    score: Annotated[list[str] | None, typer.Option(metavar="NAME[:OPTION=VALUE,...]")] = None

    def split(self) -> tuple[list[str], list[Path]]:
        """The scores of the run alone, and the other runs of an ensemble."""
        alone = [text for text in self.score or () if not text.startswith(ENSEMBLE)]
        return alone, [Path(text.removeprefix(ENSEMBLE)) for text in self.score or () if text not in alone]


NO_SCORES = ScoreOptions()


@dataclass(frozen=True)
class RecognizerOptions:
    """The recognizer that is evaluated: a model, or a table of its embeddings."""

    model: Annotated[Path, typer.Option(help=MODEL_HELP)]
    quality: Quality = None

    def open(self, settings: CommandSettings, scores: ScoreOptions = NO_SCORES) -> AnyEmbedder:
        """Load the model or the table."""
        from facerts.embedding import load_table

        if not is_table(self.model):
            return open_model(self.model, settings, scores, self.quality)
        if self.quality is not None:
            raise Error("--quality scores images, and so needs a model; a table has qualities as columns")
        _refuse_scores(self.model, scores)
        return load_table(self.model)


@dataclass(frozen=True)
class PairOptions:
    """The pairs that are compared.

    Attributes:
        data: A folder with a subfolder for each person, a .bin set, a list of pairs, or a folder of LFW, CFP, AgeDB,
            CALFW, CPLFW, XQLFW, IJB; may be repeated.
        pairs: A list of pairs of the images in the folder that --data names, or beside the list.
    """

    data: list[str] | None = None
    pairs: Path | None = None

    def open(self) -> Sequence[str | PairBenchmark]:
        """What ``run_pairs`` measures."""
        from facerts.datasets import load_pair_list

        folders = self.data or []
        if len(folders) > 1 if self.pairs else not folders:
            raise Error("give --data, or --pairs and at most one folder of its images as --data")
        return folders if self.pairs is None else [load_pair_list(self.pairs, *folders)]


@dataclass(frozen=True)
class BaselineOptions:
    """Training-free scores that a model's quality is compared with.

    Attributes:
        reference: Other faces; the mean similarity to the nearest of them is measured as a baseline.
    """

    reference: str | None = None

    def open(self, settings: CommandSettings) -> dict[str, object]:
        """The fields of ``EvaluationOptions``."""
        from facerts.datasets import open_images

        reference = None if self.reference is None else open_images(self.reference)
        return {
            "detector_baseline": open_baseline(settings),
            "reference": reference,
            "neighbors": settings.evaluate.neighbors,
        }


def evaluation_options(out: Path, settings: CommandSettings, **more: Any) -> EvaluationOptions:
    """How images are read, and where the model's outputs are kept.

    Args:
        out: result folder.
        more: further fields of ``EvaluationOptions``.
    """
    from facerts.embedding.output_cache import OutputCache
    from facerts.evaluation.evaluation_options import EvaluationOptions

    return EvaluationOptions(
        batch_size=settings.batch_size or 64,
        detector=settings.face_finder(),
        cache=OutputCache(settings.output_cache or out / "cache"),
        **more,
    )


def is_table(model: str | Path) -> bool:
    """Whether a file has embeddings, not the model that gives them."""
    return str(model).lower().endswith((".npz", ".parquet"))


def open_baseline(settings: CommandSettings) -> OpenDetector | None:
    """The detector whose scores are a baseline; None for no such baseline."""
    from facerts.detection import open_detector

    detector = settings.evaluate.detector_baseline
    return None if detector is None else open_detector(detector, threshold=BASELINE_THRESHOLD, rotate=False)


def open_model(
    model: Path, settings: CommandSettings, scores: ScoreOptions = NO_SCORES, quality: str | None = None
) -> Embedder:
    """Load a model, or a training run with its scores, and the quality of another model if it is named."""
    from facerts.embedding import OnnxQuality
    from facerts.embedding.combined import with_quality

    opened = open_scored(model, settings, scores)
    if isinstance(opened, OnnxQuality):
        raise Error(f"{model} has no embedding; give a recognizer with it: --model facerts-small --quality {model}")
    return with_quality(opened, quality, **settings.runtime())


def open_scored(model: Path, settings: CommandSettings, scores: ScoreOptions) -> Embedder | OnnxQuality:
    """As ``open_model``, or a quality alone."""
    from facerts.embedding.onnx_embedder import load_model
    from facerts.hub.find import find_model

    if model.suffix != ".pt" and not (model / CHECKPOINT).is_file():
        _refuse_scores(model, scores)
        return load_model(find_model(model), **settings.runtime())
    from facerts.training.classifier_scores import load_run

    if settings.typed("provider"):
        raise Error(
            "the setting provider is for ONNX Runtime; a training run goes through PyTorch, on a GPU where there is one"
        )
    return load_run(model, *scores.split(), threads=settings.threads)


def _refuse_scores(model: Path, scores: ScoreOptions) -> None:
    if scores.score:
        raise Error(
            f"{model}: --score needs class centers, which are only in a training run; give its folder or "
            f"its {CHECKPOINT} as --model"
        )


@contextmanager
def locked_results(out: Path) -> Iterator[None]:
    """A lock on a folder of results, as concurrent evaluations would overwrite each other's; others are refused."""
    from facerts.evaluation.result_folder import ARRAYS_FILE, JSON_FILE
    from facerts.evaluation.saved_result import LOG_FILE

    inside = {path.name for path in out.glob("[!.]*")}
    # An interrupted evaluation leaves outputs of the model.
    others = inside - {"cache", ARRAYS_FILE}
    if others and inside.isdisjoint((JSON_FILE, LOG_FILE, CHECKPOINT)):
        raise Error(f"{out} has other files than results, such as {min(others)}; choose another folder as --out")
    with locked(out / JSON_FILE):
        yield
    say(f"results: {out}; next: facerts report {shlex.quote(str(out))} --out report.html")
