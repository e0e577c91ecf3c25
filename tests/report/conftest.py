"""Few replicates for every test of reports."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def _quickly(few_replicates, few_changes):
    """No test here is about the width of an interval."""
