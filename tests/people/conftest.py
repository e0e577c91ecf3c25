import pytest

from tests.people.photos import open_scorer


@pytest.fixture
def scorer(tmp_path):
    return open_scorer(tmp_path)


@pytest.fixture
def out(tmp_path):
    return tmp_path / "people"
