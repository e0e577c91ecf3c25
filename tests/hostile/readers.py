"""A reader for each kind of file, which reads all of it as users' commands do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from facerts.datasets.source import Source
from facerts.errors import Error


def read_source(source: Source) -> None:
    """Read every name and every image; an image that cannot be read is skipped, as in scoring."""
    for index in range(len(source)):
        source.location(index)
        try:
            source.read(index)
        except Error:
            continue


def _source(path: Path) -> None:
    from facerts.datasets import open_images

    read_source(open_images(path))


def _table(path: Path) -> None:
    from facerts.embedding import load_table

    load_table(path)


def _model(path: Path) -> None:
    import numpy as np

    from facerts.embedding import load_embedder, load_quality

    crops = np.random.default_rng(0).integers(0, 256, (5, 112, 112, 3), dtype=np.uint8)
    embedder = load_embedder(path, threads=1)
    embedder(crops)
    load_quality(path, threads=1)(crops)


def _recipe(path: Path) -> None:
    from facerts.training.recipe import load_recipe

    load_recipe(path)


def _checkpoint(path: Path) -> None:
    from facerts.training.checkpoint import is_checkpoint, load_checkpoint, read_file
    from facerts.training.pretrained import open_network

    open_network(path)
    if is_checkpoint(read_file(path)):
        load_checkpoint(path)


def _result(folder: Path) -> None:
    from facerts.evaluation.compare import compare
    from facerts.report import write_report

    with TemporaryDirectory() as out:
        write_report([folder], Path(out) / "page.html")
    compare([f"one={folder}", f"other={folder}"])


def _log(path: Path) -> None:
    from facerts.report import write_report

    with TemporaryDirectory() as out:
        write_report([path.parent], Path(out) / "page.html")


# By kind of file; each raises only the project's own errors, whatever the file contains.
READERS: dict[str, Callable[[Path], None]] = {
    "source": _source,
    "table": _table,
    "model": _model,
    "recipe": _recipe,
    "checkpoint": _checkpoint,
    "result": _result,
    "log": _log,
}
