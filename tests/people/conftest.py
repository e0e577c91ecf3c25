from __future__ import annotations

from pathlib import Path

import pytest

from facerts.scoring import Scorer
from tests.people.photos import open_scorer


@pytest.fixture
def scorer(tmp_path) -> Scorer:
    return open_scorer(tmp_path)


@pytest.fixture
def out(tmp_path) -> Path:
    return tmp_path / "people"
