"""A benchmark whose people are known."""

from __future__ import annotations

from pathlib import Path

import pytest

from facerts.benchmarks import pairs_from_identities
from facerts.datasets import open_source
from facerts.datasets.synthetic import write_synthetic_faces
from tests.evaluation.conftest import write_pairs


@pytest.fixture(scope="module", autouse=True)
def _quickly(few_replicates: None) -> None:
    """No test here is about the width of an interval."""


@pytest.fixture(scope="session")
def named_folder(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A folder by person, and a list of pairs in it."""
    folder = tmp_path_factory.mktemp("named") / "people"
    write_synthetic_faces(folder, identities=30, images=4, seed=11)
    pairs = pairs_from_identities(open_source(folder), genuine=100, impostors=100, seed=2)
    return folder, write_pairs(pairs, folder / "named.csv")
