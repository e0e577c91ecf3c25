"""Whole evaluations: from model and data on disk to a result folder; what the command line calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from facerts.benchmarks import PairBenchmark, open_benchmark
from facerts.data import Source, Subset, open_pictures
from facerts.embedder.outputs import Embedder
from facerts.errors import DataError, Error
from facerts.evaluate.embed import embed_source
from facerts.evaluate.ood import ood_of
from facerts.evaluate.reject import reject_of
from facerts.evaluate.result import ResultFolder, source_sha256
from facerts.evaluate.verification import verification_of


def run_pairs(
    embedder: Embedder,
    kinds: Sequence[str],
    data: Sequence[str | Path],
    out: str | Path,
    *,
    flip: bool = True,
    batch_size: int = 64,
) -> dict[str, Any]:
    """Embed each benchmark once, and measure what is asked for.

    Args:
        embedder: the model.
        kinds: "verification" and "reject", one or both.
        data: .bin sets, or folders in LFW's layout.
        out: the result folder.
        flip: add each crop's mirror to its embedding.
        batch_size: crops per call of the embedder.

    Returns:
        The result as the folder has it now.
    """
    benchmarks = [open_benchmark(path) for path in data]
    _check_names([benchmark.name for benchmark in benchmarks])
    folder = ResultFolder(out, embedder)
    for benchmark in benchmarks:
        outputs = embed_source(embedder, benchmark.images, flip=flip, batch_size=batch_size)
        sha256 = source_sha256(benchmark.images)
        for kind in kinds:
            if kind == "verification":
                section, arrays = verification_of(outputs, benchmark, flip=flip)
                folder.add(kind, benchmark.name, {**section, "data_sha256": sha256}, arrays)
            else:
                curves, arrays = reject_of(outputs, benchmark)
                folder.add(kind, benchmark.name, curves, arrays)
    return folder.content


def run_ood(
    embedder: Embedder,
    faces: Sequence[str],
    others: Sequence[str],
    out: str | Path,
    *,
    exclude_faces: str | None = None,
    exclude_others: str | None = None,
    batch_size: int = 64,
) -> dict[str, Any]:
    """Measure how well the model's scores separate sources of faces from sources of other things.

    Args:
        embedder: the model.
        faces: in-distribution sources, each measured by itself and all together.
        others: out-of-distribution sources.
        out: the result folder.
        exclude_faces: file names (with ``*``) to leave out of the faces.
        exclude_others: file names to leave out of the others, such as those that choices were made on.
        batch_size: crops per call of the embedder.

    Returns:
        The result as the folder has it now.
    """
    inside = {source.name: source for source in (_open(path, exclude_faces) for path in faces)}
    outside = {source.name: source for source in (_open(path, exclude_others) for path in others)}
    if len({**inside, **outside}) != len(faces) + len(others):
        raise Error("two sources have one name; results go by the name of the folder or file")
    folder = ResultFolder(out, embedder)
    sources = {**inside, **outside}
    outputs = {
        name: embed_source(embedder, source, flip=False, batch_size=batch_size)
        for name, source in sources.items()
    }
    names = {name: [source.key(i) for i in range(len(source))] for name, source in sources.items()}
    section, arrays = ood_of(
        {name: outputs[name] for name in inside}, {name: outputs[name] for name in outside}, names
    )
    section["excluded"] = {"in": exclude_faces, "out": exclude_others}
    section["data_sha256"] = {name: source_sha256(source) for name, source in sources.items()}
    folder.add("ood", None, section, arrays)
    return folder.content


def _open(path: str, exclude: str | None) -> Source:
    source = _pictures(path)
    if exclude is None:
        return source
    names = [PurePosixPath(source.key(index)).name for index in range(len(source))]
    kept = np.flatnonzero([not fnmatch(name, exclude) for name in names])
    if not len(kept):
        raise DataError(f"{path}: {exclude!r} leaves no picture")
    return Subset(source, kept)


def _pictures(path: str) -> Source:
    """A source, or the pictures that a benchmark's pairs name."""
    if (Path(path) / "pairs.txt").is_file():
        benchmark: PairBenchmark = open_benchmark(path)
        return benchmark.images
    return open_pictures(path)


def _check_names(names: Sequence[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise Error(f"two benchmarks are called {twice[0]!r}; results go by name, so rename one")
