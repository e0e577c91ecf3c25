"""From an ONNX embedder and labeled images to one ONNX file with embedding and quality."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError

from facerts.calibration.quality_thresholds import calibrate
from facerts.datasets import Source, Subset
from facerts.embedding import OnnxEmbedder, load_embedder
from facerts.embedding.onnx_embedder import OnnxQuality
from facerts.embedding.output_cache import OutputCache
from facerts.embedding.parity import Parity, check_crops, compare_outputs
from facerts.errors import Error, MissingExtraError, ModelError, did_you_mean, problems_text
from facerts.hub.registry import find_shipped
from facerts.images import CROP_SIZE
from facerts.io.files import scratch_folder
from facerts.losses import LOSSES, FaceLoss
from facerts.losses.face_loss import setting_names
from facerts.onnx.contract import METADATA_KEY, Description
from facerts.onnx.model_pack import find_recognizer, is_pack
from facerts.onnx.wire import replace_entry
from facerts.training.compose import parse_yaml
from facerts.training.graft_heads import QualityModule, add_features, graft, tapped
from facerts.training.head_comparison import HeadComparison, measure_head
from facerts.training.loader import open_identified
from facerts.training.posthoc_features import (
    AUGMENTATION,
    DEFAULT_VIEWS,
    Views,
    cached_features,
    features_of,
)
from facerts.training.recipe import Augmentation
from facerts.training.train_heads import MIN_MEASURED, HeadSettings, TrainedHeads, train_heads
from facerts.version import __version__

# The shipped model whose quality a new head is compared with.
REFERENCE = "facerts-quality"
# Settings with these words in front are those of the views and of the training; others are the method's.
OF_VIEWS, OF_TRAINING = "augmentation", "train"


@dataclass(frozen=True)
class GraftResult:
    """The result of ``add_quality``.

    Attributes:
        description: description of the file, with thresholds chosen on the held-out people.
        parity: differences between the file and PyTorch.
        cache: folder of the cached features.
        comparisons: the head beside the quality of ``REFERENCE`` on held-out people; empty if they are too few.
    """

    trained: TrainedHeads
    description: Description
    parity: Parity
    cache: Path
    comparisons: tuple[HeadComparison, ...]

    @property
    def advice(self) -> str:
        """What to do if the head is not better than the reference, or could not be measured; otherwise empty."""
        if not self.comparisons:
            return (
                f"The head could not be compared with {REFERENCE}: that takes {2 * MIN_MEASURED} held-out people, half "
                "of them to stop the training; use more faces or raise train.holdout."
            )
        if all(comparison.better == "yes" for comparison in self.comparisons):
            return ""
        return (
            f"The head is not clearly better than {REFERENCE}: facerts posthoc graft --quality {REFERENCE} gives its "
            "quality with the same embeddings."
        )


def build_loss(name: str, overrides: Sequence[str], embedding_size: int, seed: int) -> FaceLoss:
    """A loss with settings of the form ``key=value``; PyTorch's global generator does not change."""
    if name not in LOSSES:
        raise Error(f"no method {name!r}{did_you_mean(name, LOSSES)}")
    settings = _parse(name, setting_names(LOSSES[name]), overrides)
    with torch.random.fork_rng(), _settings_of(name):
        torch.manual_seed(seed)
        loss = LOSSES[name](embedding_size=embedding_size, seed=seed, **settings)
    if not loss.learns_beside_embedding:
        suitable = [known for known in LOSSES if LOSSES[known]().learns_beside_embedding]
        raise Error(
            f"{name} trains only the embedding, which does not change post hoc; use one of {', '.join(suitable)}"
        )
    return loss


def _split(overrides: Sequence[str], prefix: str) -> tuple[list[str], list[str]]:
    """The overrides that begin with ``prefix.``, without it, and the others."""
    own = [text for text in overrides if text.startswith(f"{prefix}.")]
    return [text.removeprefix(f"{prefix}.") for text in own], [text for text in overrides if text not in own]


def _parse(name: str, known: Collection[str], overrides: Sequence[str]) -> dict[str, Any]:
    """Settings of the form ``key=value``."""
    given: dict[str, object] = {}
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals:
            raise Error(f"{override!r}: not of the form key=value, e.g. margin=0.4")
        if key not in known:
            raise Error(f"{name} has no setting {key!r}{did_you_mean(key, known)}")
        given[key] = parse_yaml(value, f"{override!r}")
    return given


@contextmanager
def _settings_of(name: str) -> Iterator[None]:
    try:
        yield
    except ValidationError as error:
        raise Error(f"{name}: {problems_text(error.errors())}") from error


def add_quality(
    method: str,
    model: str | Path,
    data: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    overrides: Sequence[str] = (),
    settings: HeadSettings | None = None,
    views: int | None = None,
    tap: str | None = None,
    cache: str | Path | None = None,
    terms: str = "",
    providers: Sequence[str] | None = None,
    threads: int | None = None,
    batch_size: int | None = 64,
) -> GraftResult:
    """Train a quality head on a frozen embedder and write both as one ONNX file.

    Args:
        method: registry name of a method that trains more than the embedding.
        model: an ONNX embedder with its description, or a model pack.
        data: labeled images, in any layout that ``open_source`` accepts.
        out: path of the .onnx file; written only if it passes the parity check.
        overrides: settings of the method, of the form ``key=value``; of the augmentation of the views,
            ``augmentation.key=value``, where they are to differ from ``features.AUGMENTATION``; and of the training,
            ``train.key=value``, where they are to differ from ``settings``.
        views: number of views of each image, the original included; by default 1, or 4 if the method compares views.
        tap: name of an intermediate tensor of the graph, as a further input of the heads.
        cache: folder that keeps the features; by default next to ``out``.
        terms: terms of use of the images; the file carries them in addition to the embedder's own.
    """
    try:
        import onnx
    except ImportError as error:
        raise MissingExtraError("grafting needs onnx: pip install '.[use]'") from error
    out = Path(out)
    of_views, others = _split(overrides, OF_VIEWS)
    of_training, of_loss = _split(others, OF_TRAINING)
    with _settings_of(OF_TRAINING):
        known = [field.name for field in fields(HeadSettings)]
        settings = replace(settings or HeadSettings(), **_parse(OF_TRAINING, known, of_training))
    build_loss(method, of_loss, 2, settings.seed)
    with _settings_of(OF_VIEWS):
        changed = _parse(OF_VIEWS, Augmentation.model_fields, of_views)
        augmentation = Augmentation(**{**AUGMENTATION.model_dump(), **changed})
    source = open_identified(data, "training a quality head")
    with scratch_folder() as scratch:
        file, pack_description = find_recognizer(Path(model), scratch) if is_pack(Path(model)) else (model, None)
        embedder = load_embedder(
            file, description=pack_description, providers=providers, threads=threads, batch_size=batch_size
        )
        graph = onnx.load(str(file))
    description = embedder.description
    tensors = add_features(graph, description, tap)
    feature_embedder = embedder if tap is None else tapped(embedder, graph, tensors[-1], threads)
    features_cache = OutputCache(out.with_suffix(".features") if cache is None else cache)
    size = embedder(np.empty((0, CROP_SIZE, CROP_SIZE, 3), dtype=np.uint8)).embedding.shape[1]
    built = build_loss(method, of_loss, size, settings.seed)
    settings = replace(settings, norm=_uses_norm(built, description, settings.norm, tap))
    features = cached_features(
        feature_embedder,
        source,
        features_cache,
        _views(built, views, augmentation, settings.seed),
    )
    assert source.labels is not None
    trained = train_heads(built, features, source.labels, settings)
    quality = QualityModule(trained)
    crops = check_crops(source)
    with scratch_folder() as scratch:
        part = scratch / out.name
        names = graft(graph, tensors, quality, part)
        grafted = _describe(description, names, trained, source, out.stem, terms)
        parity = compare_outputs(
            quality.outputs(features_of(feature_embedder(crops))),
            OnnxEmbedder(out, content=part.read_bytes(), description=grafted)(crops),
        )
        described = scratch / "described" / out.name
        described.parent.mkdir()
        replace_entry(part, described, METADATA_KEY, grafted.to_json())
        people = Subset(source, np.flatnonzero(trained.held_out))
        if len(people):
            found = calibrate(described, people, out=out, providers=providers, threads=threads, batch_size=batch_size)
            grafted = found.description
        else:
            replace_entry(described, out, METADATA_KEY, grafted.to_json())
    comparisons: tuple[HeadComparison, ...] = ()
    if trained.measured.any():
        comparisons = measure_head(
            quality.quality_of,
            features,
            source,
            source.labels,
            trained.measured,
            feature_embedder,
            OnnxQuality(find_shipped(REFERENCE), providers=providers, threads=threads, batch_size=batch_size),
            features_cache,
            has_norm=_has_norm(description),
            seed=settings.seed,
        )
    return GraftResult(trained, grafted, parity, features_cache.folder, comparisons)


def _describe(
    embedder: Description,
    names: dict[str, str],
    trained: TrainedHeads,
    source: Source,
    name: str,
    terms: str,
) -> Description:
    head_data = f"quality head: {source.name} ({trained.images:,} images of {trained.identities:,} identities)"
    return embedder.model_copy(
        update={
            "name": name,
            "method": f"{trained.method.name}, post hoc",
            "embedding_size": trained.heads.sizes[0],
            "outputs": {**embedder.outputs, **names},
            "quality": f"output:{names['quality']}",
            "polarity": "higher_is_better",
            # The embedder's thresholds, if any, are for another quality.
            "thresholds": {},
            "calibration": None,
            "training_data": "; ".join(filter(None, (embedder.training_data, head_data))),
            "terms": "; ".join(dict.fromkeys(filter(None, (embedder.terms, terms)))),
            "facerts_version": __version__,
        }
    )


def _views(method: FaceLoss, count: int | None, augmentation: Augmentation, seed: int) -> Views:
    if count is None:
        count = 1 if method.views == 1 else DEFAULT_VIEWS
    if count < method.views:
        raise Error(
            f"{method.name} compares {method.views} views of each image; --views must be {method.views} or more"
        )
    if count == 1 and augmentation != AUGMENTATION:
        raise Error("with a single view only the original image is used; give --views 2 or more to use augmentation")
    return Views(count, augmentation, seed)


def _uses_norm(method: FaceLoss, description: Description, norm: bool | None, tap: str | None) -> bool:
    """Whether the heads use the embedding's norm; by default if it is available and there are heads."""
    available = _has_norm(description)
    if norm and not available:
        raise ModelError("the embedder does not output the norm of its embedding; leave out train.norm")
    if not method.heads() and (norm or tap is not None):
        raise Error(f"{method.name} uses only the unit embedding; leave out train.norm and --tap")
    return bool(available and method.heads()) if norm is None else norm


def _has_norm(description: Description) -> bool:
    return description.normalize_embedding or "norm" in description.outputs
