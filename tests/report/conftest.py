"""Few replicates for every test of reports."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module", autouse=True)
def _quickly(few_replicates, few_changes) -> None:
    """No test here is about the width of an interval."""
