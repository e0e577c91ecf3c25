"""Equal images: found as a comparison of each with each finds them, and dealt with as was asked."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from facerts.curation import exact_duplicates as duplicates
from facerts.curation.exact_duplicates import By, dedup, find_duplicates
from facerts.curation.identity_pairs import IdentityAction, IdentityPair, choose_dropped, merge_labels
from facerts.curation.output_spec import OutputSpec
from facerts.curation.pack import unpack
from facerts.datasets import open_source
from facerts.datasets.source import Source
from facerts.images import decode
from tests.contents import content

Make = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def repeated(drawn_faces: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The drawn faces with copies.

    Of person 1 two images again (one of them twice); one of person 2 with person 3; most of person 4 again as a
    person of another name, who has one image of their own; one of person 5 as PNG, pixel for pixel the same.
    """
    folder = tmp_path_factory.mktemp("repeated") / "faces"
    unpack(open_source(drawn_faces), folder)

    def copy(one: str, other: str) -> None:
        (folder / other).parent.mkdir(exist_ok=True)
        (folder / other).write_bytes((folder / one).read_bytes())

    copy("person_0001/0000.jpg", "person_0001/0100.jpg")
    copy("person_0001/0000.jpg", "person_0001/0101.jpg")
    copy("person_0001/0005.jpg", "person_0001/0102.jpg")
    copy("person_0002/0003.jpg", "person_0003/0100.jpg")
    for number in range(4):
        copy(f"person_0004/000{number}.jpg", f"another/{number}.jpg")
    copy("person_0006/0000.jpg", "another/own.jpg")
    (folder / "person_0006" / "0000.jpg").unlink()
    pixels = decode((folder / "person_0005" / "0002.jpg").read_bytes(), where="")
    cv2.imwrite(str(folder / "person_0005" / "0100.png"), pixels[..., ::-1])
    return folder


@pytest.fixture
def make(repeated: Path, tmp_path: Path) -> Make:
    def run(**options: Any) -> dict[str, Any]:
        return dedup(open_source(repeated), OutputSpec(tmp_path / "once.tar"), **options)

    return run


def dropped_list(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "once.dropped.jsonl").read_text().splitlines()]


def equal_to_each_other(source: Source, by: By) -> set[frozenset[int]]:
    """Pairs of equal images, each compared with each."""
    every = [source.read(index) for index in range(len(source))]
    pixels = [decode(data, where="") for data in every]
    return {
        frozenset(pair)
        for pair in combinations(range(len(source)), 2)
        if (every[pair[0]] == every[pair[1]] if by == "hash" else np.array_equal(*(pixels[i] for i in pair)))
    }


@pytest.mark.parametrize("by", ["hash", "pixels"])
@pytest.mark.parametrize("short", [8, 1, 0])
def test_copies_are_those_that_a_comparison_of_all_finds(
    repeated: Path, by: By, short: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Short digests collide; whole ones have to tell such images apart.
    monkeypatch.setattr(duplicates, "_PREFIX_BYTES", short)
    source = open_source(repeated)
    found = find_duplicates(source, by)
    pairs = {frozenset(pair) for group in found.groups for pair in combinations(group, 2)}
    assert pairs == equal_to_each_other(source, by)
    assert len(pairs) == 9 + (by == "pixels")
    assert found.broken == {}


def test_within_an_identity_the_first_stays_and_between_identities_all_stay(
    make: Make, repeated: Path, tmp_path: Path
) -> None:
    report = make()
    once = content(tmp_path / "once.tar")
    assert set(once) == set(content(repeated))
    assert max(once.values()) == 1
    assert report["dropped"] == {"images": 3, "identities": 0, "by_reason": {"equal bytes": 3}}
    assert {(Path(row["image"]).name, Path(row["resembles"]).name) for row in dropped_list(tmp_path)} == {
        ("0100.jpg", "0000.jpg"),
        ("0101.jpg", "0000.jpg"),
        ("0102.jpg", "0005.jpg"),
    }
    pairs = {(row["first"], row["second"]): row for row in report["identity_pairs"]["surest"]}
    assert pairs["another", "person_0004"]["equal_images"] == 4
    assert pairs["another", "person_0004"]["one_person"] is True
    assert pairs["another", "person_0004"]["share"] == 0.8
    assert pairs["person_0002", "person_0003"]["one_person"] is False
    assert len(pairs) == 2
    assert len((tmp_path / "once.pairs.jsonl").read_text().splitlines()) == 2


def test_one_person_of_two_names_can_be_merged(make: Make, tmp_path: Path) -> None:
    report = make(identity_action=IdentityAction.MERGE)
    source = open_source(tmp_path / "once.tar")
    assert "another" not in source.identities
    assert report["written"][0]["identities"] == 8
    assert report["dropped"]["by_reason"] == {"equal bytes": 7}
    merged_one = [row for row in content(source) if row[0] == "person_0004"]
    assert len(merged_one) == 9  # eight of its own and the other's own
    assert "person_0004/another_own.jpg" in [source.key(index) for index in range(len(source))]
    # The image that two people share says nothing of who is on it.
    assert {"person_0002", "person_0003"} <= set(source.identities)


def test_or_the_one_with_fewer_images_be_dropped(make: Make, repeated: Path, tmp_path: Path) -> None:
    report = make(identity_action=IdentityAction.DROP)
    assert set(open_source(tmp_path / "once.tar").identities) == set(open_source(repeated).identities) - {
        "another"
    }
    assert report["dropped"]["by_reason"] == {"equal bytes": 3, "identity resembles another": 5}
    assert report["dropped"]["identities"] == 1
    gone = [row for row in dropped_list(tmp_path) if row["identity"] == "another"]
    assert {row["resembles"] for row in gone} == {"person_0004"}


def test_what_cannot_be_decoded_is_left_out_where_pixels_count(drawn_faces: Path, tmp_path: Path) -> None:
    unpack(open_source(drawn_faces), tmp_path / "faces")
    for person in ("person_0001", "person_0002"):
        (tmp_path / "faces" / person / "0001.jpg").write_bytes(b"not an image")
    source = open_source(tmp_path / "faces")
    report = dedup(source, OutputSpec(tmp_path / "once.tar"), by="pixels")
    assert report["dropped"]["by_reason"] == {"cannot be decoded": 2}
    assert all("not a JPEG" in row["error"] for row in dropped_list(tmp_path))
    assert report["identity_pairs"]["count"] == 0
    # Bytes are compared without a look into them.
    assert dedup(source, OutputSpec(tmp_path / "all.tar"))["dropped"]["images"] == 0


def pair(first: int, second: int, sure: float, one_person: bool = True) -> IdentityPair:
    return IdentityPair(first, second, one_person, sure)


def test_whoever_hangs_together_becomes_the_one_with_the_most_images() -> None:
    images = np.array([2, 5, 5, 9, 1, 1, 3])
    becomes = merge_labels(
        [pair(0, 1, 1), pair(1, 2, 1), pair(4, 5, 1), pair(3, 6, 9, one_person=False)], images
    )
    assert becomes.tolist() == [1, 1, 1, 3, 4, 4, 6]


def test_nobody_is_dropped_for_one_who_is_dropped() -> None:
    images = np.array([3, 2, 1, 4])
    gone = choose_dropped([pair(1, 2, 0.8), pair(0, 1, 0.9), pair(0, 3, 0.1, one_person=False)], images)
    assert set(gone) == {1}  # it goes for 0, the surer pair; 2 resembles nobody who stays
