"""Files of a folder of people that strangers, or a power failure, left: read as they are, or refused by name."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from facerts.errors import DataError
from facerts.people import find_people, merge_people, name_person, read_people
from facerts.people.decisions import Action, read_decisions
from facerts.people.found_faces import read_found_faces, write_found_faces
from facerts.people.people_folder import save
from tests.people.photos import open_scorer, write_people


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of people with two decisions."""
    folder = tmp_path_factory.mktemp("files")
    write_people(folder / "photos", range(3), range(2))
    find_people(open_scorer(folder), folder / "photos", folder / "people")
    merge_people(folder / "people", [1, 2])
    name_person(folder / "people", 3, "Zoë <3")
    return folder / "people"


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    copy = tmp_path / "people"
    copy.mkdir()
    for file in made.iterdir():
        if file.is_file():
            (copy / file.name).write_bytes(file.read_bytes())
    return copy


def arrays_of(path: Path) -> dict[str, Any]:
    with np.load(path, allow_pickle=False) as stored:
        return dict(stored)


def first(values: np.ndarray, value: Any) -> np.ndarray:
    changed = values.copy()
    changed[0] = value
    return changed


BROKEN_FACES: dict[str, Any] = {
    "no array": lambda a: {name: values for name, values in a.items() if name != "box"},
    "2-dimensional": lambda a: a | {"quality": a["quality"][:, None]},
    "of photos differ": lambda a: a | {"size": a["size"][1:]},
    "of faces differ": lambda a: a | {"number": a["number"][1:]},
    "boxes need 4": lambda a: a | {"box": a["box"][:, :3]},
    "1 to 4,096": lambda a: a | {"embedding": np.zeros((6, 5000), np.float32)},
    "a SHA-256 of its own": lambda a: a | {"sha256": first(a["sha256"], a["sha256"][1])},
    "image that is not listed": lambda a: a | {"image": first(a["image"], 6)},
    "not ordered by image": lambda a: a | {"face_image": a["face_image"][::-1]},
    "needs an error": lambda a: a | {"image": first(a["image"], -1)},
    "unit length": lambda a: a | {"embedding": 2 * a["embedding"]},
    "some of its sides": lambda a: a | {"box": first(a["box"], [0, 1, 2, np.nan])},
    "infinite": lambda a: a | {"quality": first(a["quality"], np.inf)},
    "reasons of a face": lambda a: a | {"reasons": np.array(["evil"] * 6)},
    "not a table of format": lambda a: a | {"format": np.array("facerts.gallery/1")},
}


@pytest.mark.parametrize("problem", BROKEN_FACES)
def test_a_broken_table_is_refused(folder: Path, problem: str) -> None:
    path = folder / "faces.npz"
    np.savez(path, **BROKEN_FACES[problem](arrays_of(path)))
    with pytest.raises(DataError, match=rf"faces\.npz: .*{problem}"):
        read_people(folder)


def test_a_small_file_must_not_hold_many_faces(folder: Path) -> None:
    path = folder / "faces.npz"
    arrays = arrays_of(path)
    many = {
        name: np.repeat(arrays[name][:1], 100_000, axis=0)
        for name in ("face_image", "number", "box", "points", "embedding", "quality", "percentile", "reasons")
    }
    np.savez_compressed(path, **(arrays | many))
    with pytest.raises(DataError, match="memory"):
        read_people(folder)


BROKEN_GROUPS: dict[str, Any] = {
    "no array": lambda a: {name: values for name, values in a.items() if name != "group"},
    "differ in length": lambda a: a | {"group": a["group"][1:]},
    "image that is not listed": lambda a: a | {"face_image": first(a["face_image"], 9)},
    "number that no group has": lambda a: a | {"group": first(a["group"], 0)},
    "none of a group": lambda a: a | {"highest": np.array(-3)},
    "is no number": lambda a: a | {"min_quality": np.array(np.nan)},
    "not from 0 to 1": lambda a: a | {"probability": first(a["probability"], 2)},
    "groups of format": lambda a: a | {"format": np.array("x")},
    "more memory": lambda a: {
        name: np.repeat(values[:1], 200_000, axis=0) if values.ndim and name != "sha256" else values
        for name, values in a.items()
    },
}


@pytest.mark.parametrize("problem", BROKEN_GROUPS)
def test_broken_groups_are_refused(folder: Path, problem: str) -> None:
    path = folder / "groups.npz"
    np.savez_compressed(path, **BROKEN_GROUPS[problem](arrays_of(path)))
    with pytest.raises(DataError, match=rf"groups\.npz: .*{problem}"):
        read_people(folder)


IMAGE = "0" * 64
BROKEN_LINES = {
    "nested too deep|not valid JSON": b"[" * 100_000,
    "not valid JSON": b"{",
    "not a decision": b'{"action": "explode"}',
    "sets of faces": b'{"action": "split", "faces": [[]]}',
    "extra|unexpected|not a decision": b'{"action": "undo", "more": 1}',
    "number of a group": json.dumps({"action": "remove", "faces": [[{"image": IMAGE, "was": 0}]]}).encode(),
    "must not have control": b'{"action": "name", "faces": [[]], "name": "\\u001b[2J"}',
    "person's number": b'{"action": "name", "faces": [[]], "name": "person 12"}',
    "has the name": b'{"action": "name", "faces": [[]]}',
    "finite": b'{"action": "remove", "faces": [[{"image": "0", "box": [0, 0, 1, NaN]}]]}',
}


@pytest.mark.parametrize("problem", BROKEN_LINES)
def test_a_broken_decision_is_refused_by_its_line(folder: Path, problem: str) -> None:
    path = folder / "decisions.jsonl"
    path.write_bytes(path.read_bytes() + BROKEN_LINES[problem] + b"\n")
    with pytest.raises(DataError, match=rf"decisions\.jsonl, line 4: .*({problem})"):
        read_people(folder)


def test_another_file_is_not_taken_for_decisions(folder: Path) -> None:
    for content in (b"", b"\n", b'{"format": "x"}\n', b'{"action": "undo"}\n'):
        (folder / "decisions.jsonl").write_bytes(content)
        with pytest.raises(DataError, match="decisions"):
            read_people(folder)


def test_a_decision_that_a_power_failure_cut_off_was_never_made(folder: Path) -> None:
    path = folder / "decisions.jsonl"
    whole, groups = path.read_bytes(), (folder / "groups.npz").read_bytes()
    for cut in (1, 10, len(whole.splitlines()[-1])):
        path.write_bytes(whole[:-cut])
        (folder / "groups.npz").write_bytes(groups)
        assert [each.action for each in read_decisions(path)] == [Action.MERGE]
        merge_people(folder, [1, 3])
        assert [each.action for each in read_decisions(path)] == [Action.MERGE, Action.MERGE]
        assert len(read_people(folder).persons) == 1


def test_a_table_survives_being_written_and_read(folder: Path) -> None:
    found = read_found_faces(folder / "faces.npz")
    write_found_faces(folder / "again.npz", found)
    for name, values in vars(read_found_faces(folder / "again.npz")).items():
        if not name.startswith("_"):
            assert np.array_equal(
                values, vars(found)[name], equal_nan=np.asarray(values).dtype.kind == "f"
            ), name
    assert read_people(folder).person("Zoë <3").number == 3


def test_pairs_that_may_be_one_person_are_kept_until_they_are_merged(folder: Path) -> None:
    people = read_people(folder)
    one, other = (person.number for person in people.persons[:2])
    save(replace(people, groups=replace(people.groups, alike=((one, other, 0.25), (one, 10**6, 0.2)))))
    (pair,) = read_people(folder).alike
    assert (pair[0].number, pair[1].number, pair[2]) == (one, other, 0.25)
    merge_people(folder, [one, other])
    assert read_people(folder).alike == ()
