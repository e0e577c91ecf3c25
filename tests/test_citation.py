"""CITATION.cff has what its format requires, and the version of the package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from facerts.version import __version__

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def citation() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    return found


def test_the_required_keys_are_there(citation: dict[str, Any]) -> None:
    # https://github.com/citation-file-format/citation-file-format: required keys of 1.2.0, and of a reference.
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert citation["cff-version"] == "1.2.0"
    for reference in citation["references"]:
        assert {"type", "title", "authors"} <= set(reference)
    for entry in (citation, *citation["references"]):
        assert all("name" in author or "family-names" in author for author in entry["authors"])


def test_version_and_license_are_those_of_the_package(citation: dict[str, Any]) -> None:
    assert citation["version"] == __version__
    assert f"license = {citation['license']}\n" in (ROOT / "setup.cfg").read_text(encoding="utf-8")


def test_the_paper_behind_rts_is_cited(citation: dict[str, Any]) -> None:
    (paper,) = citation["references"]
    assert paper["title"].endswith("via Random Temperature Scaling")
    names = [author["family-names"] for author in paper["authors"]]
    assert names == ["Shang", "Huang", "Shi", "Liu", "Liu", "Wang", "Sun", "Xie", "Qiao"]
