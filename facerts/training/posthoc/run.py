"""The whole way: from an ONNX embedder and pictures to one file with embedding and quality."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from facerts.datasets import Source, open_source
from facerts.embedding import OnnxEmbedder, load_embedder
from facerts.embedding.cache import embedder_key
from facerts.embedding.packs import find_recognizer
from facerts.errors import DataError, Error, MissingExtraError, ModelError
from facerts.export.parity import Parity, check_crops, compare_outputs
from facerts.images import CROP_SIZE
from facerts.onnx.contract import Description
from facerts.onnx.packs import is_pack
from facerts.training.export.onnx_file import add_description, appearing
from facerts.training.methods import Method
from facerts.training.posthoc.features import cached_features, features_of
from facerts.training.posthoc.graft import Scorer, add_features, graft, tapped
from facerts.training.posthoc.method import build_method, configure
from facerts.training.posthoc.train import Settings, Trained, train_heads
from facerts.training.posthoc.views import AUGMENTATION, SEVERAL, Views
from facerts.training.recipe import Augmentation
from facerts.version import __version__


@dataclass(frozen=True)
class Graft:
    """What was done.

    Attributes:
        trained: the heads and their losses.
        parity: of the file with PyTorch.
        cache: where the features are.
    """

    trained: Trained
    parity: Parity
    cache: Path


def add_quality(
    method: str,
    model: str | Path,
    data: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    overrides: Sequence[str] = (),
    settings: Settings | None = None,
    views: int | None = None,
    augmentation: Augmentation | None = None,
    tap: str | None = None,
    cache: str | Path | None = None,
    terms: str = "",
    providers: Sequence[str] | None = None,
    threads: int | None = None,
    batch_size: int = 64,
) -> Graft:
    """Train a quality head on a frozen embedder and write both as one ONNX file.

    Args:
        method: by its registry name; one that trains more than the embedding.
        model: an ONNX embedder with its description, or a model pack.
        data: pictures with identities, whatever ``open_source`` takes.
        out: the .onnx file; it appears only if it passes the check.
        overrides: settings of the method, ``key=value`` each.
        settings: of the training.
        views: of each picture, itself and augmented ones; by default itself alone, or four where the method compares
            views.
        augmentation: of the views, see ``views.AUGMENTATION``.
        tap: an earlier tensor of the graph, which heads read beside the embedding.
        cache: the .npz file for the features; beside ``out`` by default.
        terms: on which the pictures may be used; the file carries them beside the embedder's own.
        providers: ONNX Runtime's execution providers by name.
        threads: of ONNX Runtime.
        batch_size: crops in a run of the embedder.

    Raises:
        ModelError: the embedder or the tapped tensor cannot be used, or ONNX Runtime and PyTorch disagree.
        DataError: the pictures have no identities, or too few.
        Error: an unknown method or setting, a method that cannot be trained on features, or too few views for it.
    """
    try:
        import onnx
    except ImportError as error:
        raise MissingExtraError("grafting needs onnx: pip install 'facerts[train]'") from error
    out = Path(out)
    settings = settings or Settings()
    config = configure(method, overrides)
    source = _with_identities(data)
    with TemporaryDirectory() as scratch:
        file, described = (
            find_recognizer(Path(model), Path(scratch)) if is_pack(Path(model)) else (model, None)
        )
        embedder = load_embedder(
            file, description=described, providers=providers, threads=threads, batch_size=batch_size
        )
        graph = onnx.load(str(file))
    told = embedder.description
    tensors = add_features(graph, told, tap)
    reader = embedder if tap is None else tapped(embedder, graph, tensors[-1], threads)
    cache = out.with_suffix(".features.npz") if cache is None else Path(cache)
    size = embedder(np.empty((0, CROP_SIZE, CROP_SIZE, 3), dtype=np.uint8)).embedding.shape[1]
    built = build_method(method, config, size, settings.seed)
    settings = replace(settings, norm=_reads_norm(built, told, settings.norm, tap))
    shown = _views(built, views, augmentation or AUGMENTATION, settings.seed)
    features = cached_features(reader, source, cache, key=embedder_key(embedder, tap=tap), views=shown)
    assert source.labels is not None
    trained = train_heads(built, features, source.labels, settings)
    scorer = Scorer(trained)
    crops = check_crops(source)
    with appearing(out) as part:
        names = graft(graph, tensors, scorer, part)
        add_description(part, _describe(told, names, trained, source, out.stem, terms))
        parity = compare_outputs(scorer.outputs(features_of(reader(crops))), OnnxEmbedder(part)(crops))
    return Graft(trained, parity, cache)


def _describe(
    told: Description, names: dict[str, str], trained: Trained, source: Source, name: str, terms: str
) -> Description:
    """The embedder's description with the quality's part in it."""
    learned = f"quality head: {source.name} ({trained.images:,} images of {trained.identities:,} identities)"
    return told.model_copy(
        update={
            "name": name,
            "method": f"{trained.method.name}, post hoc",
            "embedding_size": trained.heads.sizes[0],
            "outputs": {**told.outputs, **names},
            "quality": f"output:{names['quality']}",
            "polarity": "higher_is_better",
            # They were thresholds of another quality.
            "thresholds": {},
            "calibration": None,
            "training_data": "; ".join(filter(None, (told.training_data, learned))),
            "terms": "; ".join(dict.fromkeys(filter(None, (told.terms, terms)))),
            "facerts_version": __version__,
        }
    )


def _views(method: Method, count: int | None, augmentation: Augmentation, seed: int) -> Views:
    """The views that a method is given.

    Raises:
        Error: fewer than the method compares, or an augmentation of none.
    """
    if count is None:
        count = 1 if method.views == 1 else SEVERAL
    if count < method.views:
        raise Error(
            f"{method.name} compares {method.views} views of each image; --views must be {method.views} or more"
        )
    if count == 1 and augmentation != AUGMENTATION:
        raise Error(
            "the one view of a picture is the picture as it is; to augment others give --views 2 or more"
        )
    return Views(count, augmentation, seed)


def _reads_norm(method: Method, told: Description, wanted: bool | None, tap: str | None) -> bool:
    """Whether heads read the embedding's length: where there is one and they can, unless somebody decided.

    Raises:
        Error: features are asked for that are not there, or that nothing would read.
    """
    known = told.normalize_embedding or "norm" in told.outputs
    if wanted and not known:
        raise ModelError("the embedder does not tell the norm of its embedding; leave out --norm")
    if not method.heads() and (wanted or tap is not None):
        raise Error(f"{method.name} reads the unit embedding alone; leave out --norm and --tap")
    return bool(known and method.heads()) if wanted is None else wanted


def _with_identities(data: str | Path | Sequence[str | Path]) -> Source:
    source = open_source(data)
    if source.labels is None:
        raise DataError(
            f"{source.name} has no identities, which a quality head is trained on; give a folder by identity, "
            "a record directory or tar shards"
        )
    return source
