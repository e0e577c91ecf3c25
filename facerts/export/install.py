"""Models of the catalog, made ready to use: downloaded, described, checked, and joined with our quality."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from facerts.embedding import OnnxEmbedder, load_embedder
from facerts.embedding.onnx_embedder import load_model, load_quality
from facerts.errors import Error, MissingExtraError
from facerts.export.channel_order import ChannelOrder, channel_order
from facerts.export.free_batch import fixed_batch, free_batch
from facerts.export.join_quality import join_quality
from facerts.export.parity import Parity, check_crops, compare_outputs
from facerts.hub.catalog import RECOGNIZERS, CatalogModel, catalog_models, in_catalog
from facerts.hub.fetch import alone, downloaded_file, fetch, is_offline
from facerts.hub.find import find_model, in_catalog_or_none, name_in
from facerts.hub.installed import (
    InstalledModel,
    find_installed,
    installed_file,
    installed_models,
    used_model,
    write_record,
)
from facerts.io.console import warn
from facerts.io.files import scratch_folder, sha256_file
from facerts.onnx.contract import METADATA_KEY, Description, store_description
from facerts.onnx.graph_edit import load_graph
from facerts.onnx.metadata import replace_entry
from facerts.onnx.model_pack import find_recognizer

if TYPE_CHECKING:
    from onnx import ModelProto

# The quality that recognizers get.
QUALITY = "facerts-quality"


@dataclass(frozen=True)
class Installation:
    """What ``install`` did.

    Attributes:
        path: the file that the model's name stands for.
        parity: of the joined file with the recognizer and the quality; None if they were not joined.
        order: of a recognizer's channels; None for other models.
        freed: whether the file took only one batch size, and takes any now.
    """

    path: Path
    parity: Parity | None = None
    order: ChannelOrder | None = None
    freed: bool = False


def install(
    name: str,
    source: str | Path | None = None,
    *,
    mirror: str | None = None,
    quality: str | None = QUALITY,
) -> Installation:
    """Get a model of the catalog and make it ready to use under its name, whether it was already or not.

    A recognizer, or that of a pack, is described by the catalog's contract, and its channel order is checked on drawn
    people. Its file gets the quality of another model, after a check that embeddings and qualities stay what they are.

    Args:
        source: a copy of the file to use instead of downloading it.
        mirror: an address below which the file is looked for first.
        quality: model whose quality recognizers get; None for their own, the norm.

    Raises:
        MissingExtraError: onnx or ONNX Runtime is not installed.
    """
    entry = in_catalog(name)
    if entry.kind == "detector":
        return Installation(fetch(entry, source, mirror))
    _needs_onnx()
    with alone(installed_file(name), "makes ready"):
        return _install(entry, source, mirror, quality)


def _install(
    entry: CatalogModel, source: str | Path | None, mirror: str | None, quality: str | None
) -> Installation:
    name = entry.name
    file = fetch(entry, source, mirror)
    with scratch_folder() as scratch:
        described, freed = _described(entry, file, scratch)
        model, out = load_model(described), installed_file(name)
        order = _checked_order(name, model) if isinstance(model, OnnxEmbedder) else None
        if order is not None and quality is not None:
            parity = join_quality(described, quality, out).parity
        else:
            parity = None
            store_description(described, model.description, out)
    write_record(
        InstalledModel(
            name=name,
            sha256=sha256_file(out),
            made_from=entry.sha256,
            quality="" if parity is None or quality is None else Path(quality).stem,
        )
    )
    return Installation(out, parity, order, freed)


def find_or_install(model: str | Path | None = None) -> Path:
    """As ``find_model``, but a model of the catalog that is not on this machine is pulled now, if that is allowed.

    Raises:
        MissingExtraError: as for ``install``.
    """
    name = used_model() if model is None else name_in(model)
    entry = None if name is None else in_catalog_or_none(name)
    if entry is None or entry.kind == "detector":
        return find_model(model)
    if (path := find_installed(entry.name)) is not None:
        return path
    if is_offline():
        return find_model(model)
    _needs_onnx()
    with alone(installed_file(entry.name), "makes ready"):
        # Another process may have done it meanwhile.
        return find_installed(entry.name) or _install(entry, None, None, QUALITY).path


def verify_installed() -> dict[str, list[str]]:
    """Problems of each model that was pulled, by name; an empty list if its file is intact and loads."""
    problems: dict[str, list[str]] = {}
    for entry in catalog_models():
        file = downloaded_file(entry)
        if entry.kind == "detector" and file.is_file():
            wrong = entry.mismatch(file)
            problems[entry.name] = [f"{file}: {wrong}; pull it again"] if wrong else []
    for record in installed_models():
        problems[record.name] = []
        try:
            path = find_installed(record.name)
            assert path is not None  # there is a record
            load_model(path)
        except Error as error:
            problems[record.name].append(str(error))
    return problems


def _needs_onnx() -> None:
    """Say that onnx is missing before anything is downloaded."""
    try:
        import onnx  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(
            "pulling a recognizer or a quality needs onnx, to write its description and quality into its file: "
            "pip install onnx"
        ) from error


def _described(entry: CatalogModel, file: Path, scratch: Path) -> tuple[Path, bool]:
    """Write the model with the catalog's description into a folder.

    Returns:
        The file, and whether it was freed from an only batch size.
    """
    if entry.kind == "pack":
        network, description = find_recognizer(file, scratch)
        description = description.model_copy(
            update={"method": "arcface", "embedding_size": entry.embedding_size}
        )
    else:
        assert entry.description is not None  # checked by CatalogModel
        network, description = file, entry.description
    description = description.model_copy(
        update={
            "name": entry.name,
            "terms": entry.terms,
            "source": f"{entry.source}; {entry.file}, SHA-256 {entry.sha256}",
        }
    )
    description = _with_batch(description, fixed_batch(load_graph(network, "reading its batch size")))
    out = scratch / f"{entry.name}.onnx"
    freed = (
        description.input.batch is not None
        and entry.kind in RECOGNIZERS
        and _freed(network, description, out)
    )
    if freed:
        description, network = _with_batch(description, None), out
    # Names like "*" are replaced by those of the tensors, for readers of the file.
    opened = load_quality if entry.kind == "quality" else load_embedder
    description = opened(network, description=description).description
    replace_entry(network, out, METADATA_KEY, description.to_json())
    return out, freed


def _with_batch(description: Description, batch: int | None) -> Description:
    return description.model_copy(update={"input": description.input.model_copy(update={"batch": batch})})


def _freed(network: Path, description: Description, out: Path) -> bool:
    """Write a copy that takes any batch size; False if it would not compute the same."""
    graph: ModelProto = load_graph(network, "freeing the batch size")
    free_batch(graph)
    out.write_bytes(graph.SerializeToString())
    crops = check_crops()
    expected = load_embedder(network, description=description)(crops)
    try:
        compare_outputs(expected, load_embedder(out, description=_with_batch(description, None))(crops))
    except Error:
        # An operator counts on the old size.
        return False
    return True


def _checked_order(name: str, recognizer: OnnxEmbedder) -> ChannelOrder:
    order = channel_order(recognizer)
    if order.is_wrong:
        described = recognizer.description.input.color
        swapped = {"RGB": "BGR", "BGR": "RGB"}[described]
        warn(
            f"{name} takes {described} by its description, but tells drawn people apart better as {swapped} (d' "
            f"{order.swapped:.2f} instead of {order.described:.2f}): its channels may be swapped. Compare both on your "
            "faces before you use it"
        )
    return order
