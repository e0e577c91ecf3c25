"""AgeDB: faces by age, and pairs of images that are thirty years apart.

Moschoglou et al., "AgeDB: the first manually collected, in-the-wild age database", CVPRW 2017. An image is named
``16_JohnDoe_45_m.jpg``: number, person, age, sex. The list of pairs comes from the authors' protocol.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from facerts.benchmarks.listed import LIST_SUFFIXES, load_pair_list
from facerts.benchmarks.pair_benchmark import PairBenchmark
from facerts.datasets.folder import is_image_name
from facerts.errors import DataError

NAME = "agedb_30"

_STEM = re.compile(r"\d+_(?P<person>.+)_\d{1,3}_[mf]", re.IGNORECASE)


def is_agedb(folder: Path) -> bool:
    """Whether the folder contains an image named like AgeDB's."""
    with os.scandir(folder) as entries:
        return any(is_image_name(entry.name) and _STEM.fullmatch(Path(entry.name).stem) for entry in entries)


def load_agedb(folder: Path) -> PairBenchmark:
    """AgeDB's pairs, from the only list in the folder (.txt, .csv or .tsv, see ``load_pair_list``)."""
    lists = [name for name in sorted(os.listdir(folder)) if Path(name).suffix.lower() in LIST_SUFFIXES]
    if len(lists) != 1:
        found = f"{len(lists)} lists ({', '.join(lists)})" if lists else "no list of pairs"
        raise DataError(
            f"{folder}: AgeDB's images with {found}; put the list of the 30-year protocol beside them, or use "
            f"{NAME}.bin"
        )

    def person(key: str) -> str:
        match = _STEM.fullmatch(Path(key).stem)
        if match is None:
            raise DataError(
                f"{folder / key}: AgeDB's images have names like 16_JohnDoe_45_m.jpg; correct the list"
            )
        return match["person"]

    return load_pair_list(folder / lists[0], name=NAME, subject_of=person)
