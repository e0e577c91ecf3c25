"""The whole way: from an ONNX embedder and pictures to one file with embedding and quality."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import yaml
from pydantic import ValidationError

from facerts.data import Source, open_source
from facerts.embedder import OnnxEmbedder, load_embedder
from facerts.embedder.description import Description
from facerts.embedder.pack import find_recogniser, is_pack
from facerts.errors import DataError, Error, MissingExtraError, did_you_mean
from facerts.methods import METHODS, Method
from facerts.onnx_file import Parity, add_description, appearing, check_crops, compare
from facerts.posthoc.features import cached_features, embedder_key, features_of
from facerts.posthoc.graft import Scorer, add_features, graft, tapped
from facerts.posthoc.train import Settings, Trained, train_heads
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
    tap: str | None = None,
    cache: str | Path | None = None,
    terms: str = "",
    providers: Sequence[str] | None = None,
    threads: int | None = None,
    batch_size: int = 64,
) -> Graft:
    """Train a quality head on a frozen embedder and write both as one ONNX file.

    Args:
        method: by its registry name; one that has heads and needs one view of each image.
        model: an ONNX embedder with its description, or a model pack.
        data: pictures with identities, whatever ``open_source`` takes.
        out: the .onnx file; it appears only if it passes the check.
        overrides: settings of the method, ``key=value`` each.
        settings: of the training.
        tap: an earlier tensor of the graph, which heads read beside the embedding.
        cache: the .npz file for the features; beside ``out`` by default.
        terms: on which the pictures may be used; the file carries them beside the embedder's own.
        providers: ONNX Runtime's execution providers by name.
        threads: of ONNX Runtime.
        batch_size: crops in a run of the embedder.

    Raises:
        ModelError: the embedder or the tapped tensor cannot be used, or ONNX Runtime and PyTorch disagree.
        DataError: the pictures have no identities, or too few.
        Error: an unknown method or setting, or a method that cannot be trained on features.
    """
    try:
        import onnx
    except ImportError as error:
        raise MissingExtraError("grafting needs onnx: pip install 'facerts[train]'") from error
    out = Path(out)
    config = _config(method, overrides)
    source = _with_identities(data)
    with TemporaryDirectory() as scratch:
        file, described = (
            find_recogniser(Path(model), Path(scratch)) if is_pack(Path(model)) else (model, None)
        )
        embedder = load_embedder(
            file, description=described, providers=providers, threads=threads, batch_size=batch_size
        )
        graph = onnx.load(str(file))
    told = embedder.description
    tensors = add_features(graph, told, tap)
    reader = embedder if tap is None else tapped(embedder, graph, tensors[-1], threads)
    cache = out.with_suffix(".features.npz") if cache is None else Path(cache)
    features = cached_features(reader, source, cache, key=embedder_key(embedder, tap))
    assert source.labels is not None
    settings = settings or Settings()
    with torch.random.fork_rng():
        # What a method keeps of its own is drawn here.
        torch.manual_seed(settings.seed)
        built = METHODS[method](config, features.unit.shape[1])
    trained = train_heads(built, features, source.labels, settings)
    scorer = Scorer(trained)
    crops = check_crops(source)
    with appearing(out) as part:
        names = graft(graph, tensors, scorer, part)
        add_description(part, _describe(told, names, trained, source, out.stem, terms))
        parity = compare(scorer.outputs(features_of(reader(crops))), OnnxEmbedder(part)(crops))
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
            "training_data": "; ".join(filter(None, (told.training_data, learned))),
            "terms": "; ".join(dict.fromkeys(filter(None, (told.terms, terms)))),
            "facerts_version": __version__,
        }
    )


def _config(name: str, overrides: Sequence[str]) -> Any:
    """A method's settings.

    Raises:
        Error: no such method or setting, or a method that features are not enough for.
    """
    if name not in METHODS:
        raise Error(f"no method {name!r}{did_you_mean(name, METHODS)}")
    method = METHODS[name]
    fields: dict[str, Any] = {}
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals:
            raise Error(f"{override!r}: a setting reads key=value, e.g. margin=0.4")
        if key not in method.Config.model_fields:
            raise Error(f"{name} has no setting {key!r}{did_you_mean(key, method.Config.model_fields)}")
        try:
            fields[key] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise Error(f"{override!r}: the value is not valid YAML: {error}") from error
    try:
        config = method.Config(**fields)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(str(part) for part in problem['loc'])}: {problem['msg']}"
            for problem in error.errors()
        )
        raise Error(f"{name}: {problems}") from error
    _refuse_unfit(method, config)
    return config


def _refuse_unfit(method: type[Method], config: Any) -> None:
    reason = None
    if method.trains == "heads":
        reason = "trains heads on whole images by recipe; use facerts train"
    elif method.views > 1:
        reason = f"compares {method.views} views of each image, and features have one"
    elif method.sampler != "shuffle":
        reason = "draws its batches by identity"
    elif not method(config).heads():
        reason = "has no head of its own to train"
    if reason is not None:
        fit = [name for name, known in METHODS.items() if _fits(known)]
        raise Error(f"{method.name} {reason}; post hoc, there are {', '.join(fit)}")


def _fits(method: type[Method]) -> bool:
    plain = method.trains == "network" and method.views == 1 and method.sampler == "shuffle"
    return plain and bool(method(method.Config()).heads())


def _with_identities(data: str | Path | Sequence[str | Path]) -> Source:
    source = open_source(data)
    if source.labels is None:
        raise DataError(
            f"{source.name} has no identities, which a quality head is trained on; give a folder by identity, "
            "a record directory or tar shards"
        )
    return source
