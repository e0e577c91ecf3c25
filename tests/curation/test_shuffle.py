"""A random order, read one after the other: every image once, the same order whatever it is written as."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from facerts.curation.output_spec import OutputSpec
from facerts.curation.shuffle import shuffle
from facerts.datasets import open_source
from facerts.datasets.source import Source
from tests.contents import content, rows


@pytest.fixture(scope="module")
def source(drawn_faces: Path) -> Source:
    return open_source(drawn_faces)


def expected(source: Source, seed: int) -> list[tuple[str, str, bytes]]:
    """The order as it is promised: image i at place i of the seed's permutation."""
    given = rows(source)
    places = np.random.default_rng(seed).permutation(len(given))
    return [given[index] for index in np.argsort(places)]


@pytest.mark.parametrize("pile_bytes", [1 << 30, 20_000], ids=["one pile", "many piles"])
@pytest.mark.parametrize(
    ("out", "shards"),
    [("s", 1), ("s", 5), ("s.tar", None), ("s", None)],
    ids=["shard", "shards", "tar", "records"],
)
def test_the_order_is_the_seed_s_whatever_the_form_and_the_memory(
    source: Source, tmp_path: Path, out: str, shards: int | None, pile_bytes: int
) -> None:
    shuffle(source, OutputSpec(tmp_path / out, shards), seed=7, pile_bytes=pile_bytes)
    read = open_source(str(tmp_path / out / "shard-*.tar") if shards else tmp_path / out)
    assert rows(read) == expected(source, 7)
    assert {path.name for path in tmp_path.iterdir()} == {out, "s.report.json"}


def test_images_without_identities_are_shuffled_too(non_faces: Path, tmp_path: Path) -> None:
    shuffle(open_source(non_faces), OutputSpec(tmp_path / "s", 2))
    assert content(str(tmp_path / "s" / "*.tar")) == content(non_faces)


def test_a_mixed_record_set_says_who_is_who_in_each_record(source: Source, tmp_path: Path) -> None:
    shuffle(source, OutputSpec(tmp_path / "s"), seed=3)
    (tmp_path / "s" / "train.lst").unlink()
    read = open_source(tmp_path / "s")
    assert read.labels is not None
    assert (np.diff(read.labels) < 0).any()  # not grouped
    assert [f"person_{label:04d}" for label in read.labels] == [row[0] for row in expected(source, 3)]
