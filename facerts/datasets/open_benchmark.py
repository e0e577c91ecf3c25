"""Open a benchmark from a path."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from facerts.datasets.ijb import is_ijb, load_ijb
from facerts.datasets.listed_pairs import load_pair_list
from facerts.datasets.open_source import open_source
from facerts.datasets.pair_benchmark import PairBenchmark, pairs_of_people
from facerts.datasets.pair_layouts import (
    CALFW_PAIRS,
    CPLFW_PAIRS,
    FRONTAL,
    XQLFW_PAIRS,
    is_agedb,
    load_agedb,
    load_bin,
    load_cfp,
    load_cross_lfw,
    load_xqlfw,
)
from facerts.datasets.surveillance import is_scface, is_tinyface, load_scface, load_tinyface
from facerts.datasets.template_benchmark import TemplateBenchmark
from facerts.errors import DataError

Opened = TypeVar("Opened")


@dataclass(frozen=True)
class _Layout(Generic[Opened]):
    """A folder layout: ``mark`` is the file that marks it, or a description of its files."""

    name: str
    mark: str
    load: Callable[[Path], Opened]
    is_marked: Callable[[Path], bool] | None = None

    def fits(self, folder: Path) -> bool:
        """Whether a folder has this layout."""
        return (folder / self.mark).is_file() if self.is_marked is None else self.is_marked(folder)


# LFW comes last, because AgeDB's list may also be named pairs.txt.
_PAIRS: tuple[_Layout[list[PairBenchmark]], ...] = (
    _Layout("CFP", FRONTAL, load_cfp),
    _Layout("CALFW", CALFW_PAIRS, lambda folder: [load_cross_lfw(folder / CALFW_PAIRS)]),
    _Layout("CPLFW", CPLFW_PAIRS, lambda folder: [load_cross_lfw(folder / CPLFW_PAIRS)]),
    _Layout("XQLFW", XQLFW_PAIRS, lambda folder: [load_xqlfw(folder)]),
    _Layout("AgeDB", "images like 16_JohnDoe_45_m.jpg", lambda folder: [load_agedb(folder)], is_agedb),
    _Layout("LFW", "pairs.txt", lambda folder: [load_pair_list(folder / "pairs.txt", name=folder.name)]),
)
_TEMPLATES: tuple[_Layout[TemplateBenchmark], ...] = (
    _Layout("TinyFace", "Gallery_Match and Probe", load_tinyface, is_tinyface),
    _Layout("SCface", "surveillance_cameras_distance_1 and mugshots", load_scface, is_scface),
    _Layout("IJB-B and IJB-C", "meta/ijbc_face_tid_mid.txt", load_ijb, is_ijb),
)


def _listed(layouts: Sequence[_Layout[Opened]]) -> str:
    return ", ".join(f"{layout.name} ({layout.mark})" for layout in layouts)


_KNOWN = (
    "supported are a folder with a subfolder for each person, a .bin set, a list of pairs, folders in the layout of "
    f"{_listed(_PAIRS)}, and, for templates, {_listed(_TEMPLATES)}"
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
        for layout in _PAIRS:
            if layout.fits(path):
                return layout.load(path)
        if is_template_benchmark(path):
            raise DataError(
                f"{path}: this is a benchmark of templates, not of pairs of images; open it with open_templates"
            )
    if path.is_dir() or (path.is_file() and path.suffix.lower() in (".tar", ".rec")):
        source = open_source(path)
        if source.labels is None:
            raise DataError(f"{path}: its images are not in folders by person, so its pairs are unknown; {_KNOWN}")
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
    return any(layout.fits(Path(path)) for layout in _PAIRS)


def is_template_benchmark(path: str | Path) -> bool:
    """Whether a path is to be opened by ``open_templates``."""
    return any(layout.fits(Path(path)) for layout in _TEMPLATES)


def open_templates(path: str | Path) -> TemplateBenchmark:
    """Open a benchmark of templates: a folder in the layout of IJB-B, IJB-C, TinyFace or SCface."""
    path = Path(path)
    for layout in _TEMPLATES:
        if layout.fits(path):
            return layout.load(path)
    raise DataError(f"{path}: not a benchmark of templates; {_KNOWN}")
