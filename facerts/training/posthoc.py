"""From an ONNX embedder and labeled images to one ONNX file with embedding and quality."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from pydantic import ValidationError, field_validator, model_validator

from facerts.calibration.quality_thresholds import calibrate
from facerts.datasets import Source, Subset
from facerts.embedding import OnnxEmbedder, load_embedder
from facerts.embedding.onnx_embedder import OnnxQuality
from facerts.embedding.output_cache import OutputCache
from facerts.embedding.parity import Parity, check_crops, compare_outputs
from facerts.errors import Error, RecipeError, importing
from facerts.hub.registry import find_shipped
from facerts.images import CROP_SIZE
from facerts.io.files import scratch_folder
from facerts.losses import LOSSES, FaceLoss
from facerts.onnx.contract import METADATA_KEY, Description
from facerts.onnx.model_pack import find_recognizer, is_pack
from facerts.onnx.wire import replace_entry
from facerts.training.compose import Fields, override
from facerts.training.graft_heads import QualityModule, add_features, graft, tapped
from facerts.training.head_comparison import HeadComparison, measure_head
from facerts.training.loader import open_identified
from facerts.training.posthoc_features import AUGMENTATION, Views, cached_features, features_of
from facerts.training.recipe import Augmentation, Method, Section, build_loss, explain
from facerts.training.train_heads import MIN_MEASURED, HeadSettings, TrainedHeads, train_heads
from facerts.version import __version__

# The shipped model whose quality a new head is compared with.
REFERENCE = "facerts-quality"
# Number of views by default, for methods that compare views.
DEFAULT_VIEWS = 4


class HeadRecipe(Section):
    """What a head is trained with: the method's settings, the augmentation of the views, and the training."""

    method: Method
    augmentation: Augmentation
    train: HeadSettings

    @field_validator("method")
    @classmethod
    def learns_beside_embedding(cls, method: Fields) -> Fields:
        """The embedding does not change post hoc."""
        with torch.device("meta"):
            if build_loss(method).learns_beside_embedding:
                return method
            suitable = ", ".join(name for name in LOSSES if LOSSES[name]().learns_beside_embedding)
        raise ValueError(f"{method['name']} trains only the embedding, which does not change; use one of {suitable}")

    @model_validator(mode="after")
    def views_are_used(self) -> HeadRecipe:
        """A method must get the views that it compares, and a changed augmentation must be used."""
        name, needed, views = self.method["name"], LOSSES[self.method["name"]].views, self.views.count
        if views < needed:
            raise ValueError(
                f"{name} compares {needed} views of each image: set augmentation.views to {needed} or more"
            )
        if views == 1 and self.augmentation.model_copy(update={"views": None}) != AUGMENTATION:
            raise ValueError(
                "with a single view only the original image is used: set augmentation.views to 2 or more, or leave "
                "the augmentation as it is"
            )
        return self

    @property
    def views(self) -> Views:
        """The views of each image, by default 1, or ``DEFAULT_VIEWS`` for methods that compare views."""
        default = 1 if LOSSES[self.method["name"]].views == 1 else DEFAULT_VIEWS
        return Views(self.augmentation.views or default, self.augmentation, self.train.seed)

    def build_loss(self, embedding_size: int) -> FaceLoss:
        """The loss for a recognizer; PyTorch's global generator does not change."""
        with torch.random.fork_rng():
            torch.manual_seed(self.train.seed)
            return build_loss(self.method, embedding_size, self.train.seed)


def head_recipe(method: str, overrides: Sequence[str] = ()) -> HeadRecipe:
    """The recipe of a head for ``add_quality``, which says what the overrides are."""
    fields: Fields = {"method": {"name": method}, "augmentation": AUGMENTATION.model_dump(), "train": {}}
    for text in overrides:
        override(fields, text, "" if text.startswith(("augmentation.", "train.")) else "method.")
    try:
        return HeadRecipe.model_validate(fields)
    except ValidationError as error:
        raise RecipeError(explain(error, HeadRecipe)) from error


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
    comparisons: list[HeadComparison]

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


def add_quality(
    method: str,
    model: str | Path,
    data: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    overrides: Sequence[str] = (),
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
        overrides: settings of the method, of the form ``key=value``; of the views of each image,
            ``augmentation.key=value``, where they are to differ from ``posthoc_features.AUGMENTATION``; and of the
            training, ``train.key=value``, see ``train_heads.HeadSettings``. ``augmentation.views`` is the number of
            views, the image itself included; by default 1, or 4 if the method compares views.
        cache: folder that keeps the features; by default next to ``out``.
        terms: terms of use of the images; the file carries them in addition to the embedder's own.
    """
    with importing("grafting needs onnx", "use"):
        import onnx
    recipe, out = head_recipe(method, overrides), Path(out)
    tap = recipe.train.tap
    source = open_identified(data, "training a quality head")
    assert source.labels is not None
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
    loss = recipe.build_loss(size)
    if tap is not None and not loss.heads():
        raise Error(f"{method} uses only the unit embedding; leave out train.tap")
    has_norm = description.normalize_embedding or "norm" in description.outputs
    features = cached_features(feature_embedder, source, features_cache, recipe.views)
    norm = recipe.train.norm and has_norm and bool(loss.heads())
    trained = train_heads(loss, features, source.labels, recipe.train, norm=norm)
    quality = QualityModule(trained)
    crops = check_crops(source)
    with scratch_folder() as scratch:
        part, described = scratch / f"part.{out.name}", scratch / out.name
        names = graft(graph, tensors, quality, part)
        grafted = _describe(description, names, trained, source, out.stem, terms)
        parity = compare_outputs(
            quality.outputs(features_of(feature_embedder(crops))),
            OnnxEmbedder(out, content=part.read_bytes(), description=grafted)(crops),
        )
        people = Subset(source, np.flatnonzero(trained.held_out))
        replace_entry(part, described if len(people) else out, METADATA_KEY, grafted.to_json())
        if len(people):
            found = calibrate(described, people, out=out, providers=providers, threads=threads, batch_size=batch_size)
            grafted = found.description
    comparisons: list[HeadComparison] = []
    if trained.measured.any():
        comparisons = measure_head(
            quality.quality_of,
            features,
            source,
            trained.measured,
            feature_embedder,
            OnnxQuality(find_shipped(REFERENCE), providers=providers, threads=threads, batch_size=batch_size),
            features_cache,
            has_norm=has_norm,
            seed=recipe.train.seed,
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
