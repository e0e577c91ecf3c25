"""Open a benchmark from a path."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from facerts.benchmarks.heldout import pairs_of_people
from facerts.benchmarks.ijb import is_ijb, load_ijb
from facerts.benchmarks.listed import load_pair_list
from facerts.benchmarks.pair_benchmark import PairBenchmark
from facerts.benchmarks.pair_layouts import (
    CALFW_PAIRS,
    CPLFW_PAIRS,
    FRONTAL,
    XQLFW_PAIRS,
    is_agedb,
    load_agedb,
    load_bin,
    load_calfw,
    load_cfp,
    load_cplfw,
    load_xqlfw,
)
from facerts.benchmarks.surveillance import is_scface, is_tinyface, load_scface, load_tinyface
from facerts.benchmarks.template_benchmark import TemplateBenchmark
from facerts.datasets.open_source import open_source
from facerts.errors import DataError


class _BenchmarkLayout(NamedTuple):
    """A folder layout: ``mark`` is the file that marks it, or a description of its files."""

    name: str
    mark: str
    fits: Callable[[Path], bool]
    load: Callable[[Path], list[PairBenchmark]]


def _marked(name: str, mark: str, load: Callable[[Path], PairBenchmark]) -> _BenchmarkLayout:
    return _BenchmarkLayout(
        name, mark, lambda folder: (folder / mark).is_file(), lambda folder: [load(folder)]
    )


# LFW comes last, because AgeDB's list may also be named pairs.txt.
_LAYOUTS = (
    _BenchmarkLayout("CFP", FRONTAL, lambda folder: (folder / FRONTAL).is_file(), load_cfp),
    _marked("CALFW", CALFW_PAIRS, load_calfw),
    _marked("CPLFW", CPLFW_PAIRS, load_cplfw),
    _marked("XQLFW", XQLFW_PAIRS, load_xqlfw),
    _BenchmarkLayout(
        "AgeDB", "images like 16_JohnDoe_45_m.jpg", is_agedb, lambda folder: [load_agedb(folder)]
    ),
    _marked("LFW", "pairs.txt", lambda folder: load_pair_list(folder / "pairs.txt", name=folder.name)),
)
_TEMPLATES = (
    "IJB-B and IJB-C (meta/ijbc_face_tid_mid.txt), TinyFace (Gallery_Match and Probe) and SCface "
    "(surveillance_cameras_distance_1 and mugshots)"
)
_KNOWN = (
    "supported are a folder with a subfolder for each person, a .bin set, a list of pairs, folders in "
    "the layout of "
    + ", ".join(f"{layout.name} ({layout.mark})" for layout in _LAYOUTS)
    + f", and, for templates, {_TEMPLATES}"
)


def open_benchmarks(path: str | Path, images: str | Path | None = None) -> list[PairBenchmark]:
    """Open all verification benchmarks at a path.

    It is a .bin set, a list of pairs, or a folder in the layout of LFW, CFP (which contains two), AgeDB, CALFW, CPLFW
    or XQLFW, recognized by its files; or images with identities, such as a folder with a subfolder for each person, of
    which pairs are drawn (``pairs_of_people``). ``images`` is the folder that the paths in a list are relative to, see
    ``load_pair_list``.
    """
    path = Path(path)
    if path.is_dir():
        for layout in _LAYOUTS:
            if layout.fits(path):
                return layout.load(path)
        if is_template_benchmark(path):
            raise DataError(
                f"{path}: this is a benchmark of templates, not of pairs of images; open it with open_templates"
            )
    if path.is_dir() or (path.is_file() and path.suffix.lower() in (".tar", ".rec")):
        source = open_source(path)
        if source.labels is None:
            raise DataError(
                f"{path}: its images are not in folders by person, so its pairs are unknown; {_KNOWN}"
            )
        return [pairs_of_people(source)]
    if not path.is_file():
        raise DataError(f"{path}: no such verification benchmark; {_KNOWN}")
    return [load_bin(path) if path.suffix.lower() == ".bin" else load_pair_list(path, images)]


def open_benchmark(path: str | Path, images: str | Path | None = None) -> PairBenchmark:
    """Open the only verification benchmark at a path; see ``open_benchmarks``."""
    benchmarks = open_benchmarks(path, images)
    if len(benchmarks) > 1:
        names = ", ".join(benchmark.name for benchmark in benchmarks)
        raise DataError(f"{path}: it contains several benchmarks ({names}), but only one can be used here")
    return benchmarks[0]


def is_pair_benchmark(path: str | Path) -> bool:
    """Whether a folder is laid out as a verification benchmark."""
    return any(layout.fits(Path(path)) for layout in _LAYOUTS)


def is_template_benchmark(path: str | Path) -> bool:
    """Whether a path is to be opened by ``open_templates``."""
    return any(fits(Path(path)) for fits in (is_ijb, is_tinyface, is_scface))


def open_templates(path: str | Path) -> TemplateBenchmark:
    """Open a benchmark of templates: a folder in the layout of IJB-B, IJB-C, TinyFace or SCface."""
    path = Path(path)
    if not is_template_benchmark(path):
        raise DataError(f"{path}: not a benchmark of templates; {_KNOWN}")
    if is_tinyface(path):
        return load_tinyface(path)
    return load_scface(path) if is_scface(path) else load_ijb(path)
