"""Tests of real data are skipped where there is none, and fail where it is said to be there."""

import pytest

from tests.conftest import shared_folder


@pytest.mark.parametrize(("required", "outcome"), [("", pytest.skip), ("1", pytest.fail)])
def test_missing_real_data_is_a_failure_where_it_is_required(tmp_path, monkeypatch, required, outcome):
    monkeypatch.setenv("FACERTS_DATA", str(tmp_path))
    monkeypatch.setenv("FACERTS_REQUIRE_REAL_DATA", required)
    with pytest.raises((pytest.skip.Exception, pytest.fail.Exception), match="set FACERTS_DATA") as raised:
        shared_folder("FACERTS_DATA", "data", "faces")
    assert raised.type is outcome.Exception
    (tmp_path / "faces").mkdir()
    assert shared_folder("FACERTS_DATA", "data", "faces") == tmp_path
