"""Files of a folder of people that strangers, or a power failure, left: read as they are, or refused by name."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from facerts.errors import DataError
from facerts.people import find_people, found_faces, groups_file, merge_people, name_person, read_people
from facerts.people.decisions import Action, read_decisions
from facerts.people.found_faces import read_found_faces, write_found_faces
from facerts.people.people_folder import save
from tests.people.photos import open_scorer, write_people


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder of people with two decisions."""
    folder = tmp_path_factory.mktemp("files")
    write_people(folder / "photos", range(3), range(2))
    find_people(open_scorer(folder), folder / "photos", folder / "people")
    merge_people(folder / "people", [1, 2])
    name_person(folder / "people", 3, "Zoë <3")
    return folder / "people"


@pytest.fixture
def folder(made, tmp_path):
    """A copy of it."""
    copy = tmp_path / "people"
    copy.mkdir()
    for file in made.iterdir():
        if file.is_file():
            (copy / file.name).write_bytes(file.read_bytes())
    return copy


def arrays_of(path):
    with np.load(path, allow_pickle=False) as stored:
        return dict(stored)


def first(value, dtype=None):
    """Puts a value at the beginning of an array."""

    def change(values):
        changed = values.astype(dtype or values.dtype)
        changed[:1] = value
        return changed

    return change


BROKEN_FACES = [
    ("format", lambda _: "facerts.gallery/1", "not a table of faces of format"),
    ("box", None, "there is no array 'box'"),
    ("number", lambda values: values[1:], r"\(5,\), not \(6,\)"),
    ("embedding", lambda _: np.zeros((6, 5000), np.float32), "1 to 4,096"),
    ("sha256", lambda values: values[[1, *range(1, 6)]], "a SHA-256 of its own"),
    ("sha256", first("A" * 64), "a SHA-256 of its own"),
    ("image", first(6), "'image' has 6"),
    ("image", first(1), "an image is in no photo"),
    ("error", first("no", "U9"), "needs an error"),
    ("face_image", first(-1), "'face_image' has -1"),
    ("face_image", lambda values: values[::-1], "not ordered by image"),
    ("face_image", first(1), "there twice"),
    ("box", first([0, 1, 2, np.nan]), "a box is not left, top, right and bottom"),
    ("box", first([2, 0, 1, 2]), "a box is not left, top, right and bottom"),
    ("box", first([0, 2, 1, 2]), "a box is not left, top, right and bottom"),
    ("embedding", lambda values: 2 * values, "unit length"),
    ("reasons", lambda _: np.array(["evil"] * 6), "reasons of a face are 'evil'"),
]
BROKEN_GROUPS = [
    ("format", lambda _: "x", "not a file of groups of format"),
    ("group", None, "there is no array 'group'"),
    ("probability", lambda values: values[1:], r"\(5,\), not \(6,\)"),
    ("group", first(0), "'group' has a number that no group has"),
    ("group", first(4), "'group' has a number that no group has"),
    ("suggested", first(4), "'suggested' has a number that no group has"),
    ("alike", lambda _: np.array([[1, 3]]), r"'alike_probability' has the shape \(0,\), not \(1,\)"),
    ("highest", lambda _: np.array(2**63, np.uint64), r"'highest' has 9\.22337e\+18"),
    ("table", lambda _: np.array("../faces.npz"), r"'\.\./faces\.npz' is no name"),
]
# Numbers that an array may not have.
OUT_OF_RANGE = {
    "faces-*.npz": {"image": -2, "size": -2, "number": -1, "points": -np.inf, "embedding": np.nan, "percentile": 101},
    "groups.npz": {"suggested": -2, "probability": 2, "highest": -3, "min_quality": np.nan},
}
BROKEN = [
    *(("faces-*.npz", *each) for each in BROKEN_FACES),
    *(("groups.npz", *each) for each in BROKEN_GROUPS),
    *(
        (pattern, name, partial(np.full_like, fill_value=value), f"'{name}' has")
        for pattern, ranges in OUT_OF_RANGE.items()
        for name, value in ranges.items()
    ),
]


@pytest.mark.parametrize(("pattern", "name", "change", "problem"), BROKEN)
def test_a_broken_file_is_refused(folder, pattern, name, change, problem):
    """One array is changed, or left out."""
    (path,) = folder.glob(pattern)
    arrays = arrays_of(path)
    values = arrays.pop(name)
    np.savez(path, **arrays, **({} if change is None else {name: change(values)}))
    with pytest.raises(DataError, match=rf"{path.name}: .*{problem}.*; .*facerts people find"):
        read_people(folder)


@pytest.mark.parametrize(
    ("pattern", "types"),
    [("faces-*.npz", found_faces.FORMAT.types), ("groups.npz", groups_file.FORMAT.types)],
)
def test_a_small_file_must_not_hold_many_faces(folder, pattern, types):
    (path,) = folder.glob(pattern)
    arrays = arrays_of(path)
    many = {
        name: np.repeat(arrays[name][:1], 200_000, axis=0)
        for name, kind in types.items()
        if kind.shape[:1] == ("faces",)
    }
    np.savez_compressed(path, **(arrays | many))
    with pytest.raises(DataError, match="memory"):
        read_people(folder)


def test_groups_of_other_faces_are_refused(made, folder):
    arrays = arrays_of(folder / "groups.npz")
    fewer = {name: arrays[name][1:] for name in ("group", "probability", "suggested")}
    np.savez(folder / "groups.npz", **(arrays | fewer))
    problem = r"groups\.npz: groups of 5 faces, but faces-\w+\.npz has 6; delete it"
    with pytest.raises(DataError, match=problem):
        read_people(folder)
    with pytest.raises(DataError, match=problem):
        find_people(open_scorer(made.parent), made.parent / "photos", folder)


IMAGE = "0" * 64
BROKEN_LINES = {
    "nested too deep|not valid JSON": b"[" * 100_000,
    "not valid JSON": b"{",
    "not a decision": b'{"action": "explode"}',
    "move has 0 faces": b'{"action": "move"}',
    "1 faces left 0 groups": json.dumps({"action": "move", "faces": [[IMAGE, None]]}).encode(),
    "extra|unexpected|not a decision": b'{"action": "undo", "more": 1}',
    "0 is no number of a group": json.dumps({"action": "move", "faces": [[IMAGE, None]], "was": [0]}).encode(),
    f"{2**53} is no number of a group": b'{"action": "undo", "to": 9007199254740992}',
    "must not have control": b'{"action": "name", "name": "\\u001b[2J"}',
    "person's number": b'{"action": "name", "name": "person 12"}',
    "has the name": b'{"action": "name"}',
    "finite": b'{"action": "merge", "joined": [["0", [0, 0, 1, NaN]]]}',
    "joined.0": b'{"action": "merge", "joined": [["0"]]}',
}


@pytest.mark.parametrize("problem", BROKEN_LINES)
def test_a_broken_decision_is_refused_by_its_line(folder, problem):
    path = folder / "decisions.jsonl"
    path.write_bytes(path.read_bytes() + BROKEN_LINES[problem] + b"\n")
    with pytest.raises(DataError, match=rf"decisions\.jsonl, line 4: .*({problem})"):
        read_people(folder)


def test_another_file_is_not_taken_for_decisions(folder):
    for content in (b"", b"\n", b'{"format": "x"}\n', b'{"action": "undo"}\n'):
        (folder / "decisions.jsonl").write_bytes(content)
        with pytest.raises(DataError, match="decisions"):
            read_people(folder)


def test_a_file_that_lost_the_end_of_a_line_is_refused_or_read_whole(folder):
    path = folder / "decisions.jsonl"
    path.write_bytes(path.read_bytes()[:-1])
    assert [each.action for each in read_decisions(path)] == [Action.MERGE, Action.NAME]
    merge_people(folder, [1, 3])
    assert [each.action for each in read_decisions(path)] == [Action.MERGE, Action.NAME, Action.MERGE]
    path.write_bytes(path.read_bytes()[:-2])
    with pytest.raises(DataError, match="line 4: not valid JSON"):
        read_people(folder)


def test_a_table_survives_being_written_and_read(folder):
    (path,) = folder.glob("faces-*.npz")
    found = read_found_faces(path)
    write_found_faces(folder / "again.npz", found)
    for name, values in vars(read_found_faces(folder / "again.npz")).items():
        if not name.startswith("_"):
            assert np.array_equal(values, vars(found)[name], equal_nan=np.asarray(values).dtype.kind == "f"), name
    assert read_people(folder).person("Zoë <3").number == 3


def test_pairs_that_may_be_one_person_are_kept_until_they_are_merged(folder):
    people = read_people(folder)
    one, other = (person.number for person in people.persons[:2])
    # 2 was merged into 1.
    pairs, probability = np.array([[one, other], [one, 2]]), np.array([0.25, 0.2])
    save(replace(people, groups=replace(people.groups, alike=pairs, alike_probability=probability)))
    (pair,) = read_people(folder).alike
    assert (pair[0].number, pair[1].number, pair[2]) == (one, other, 0.25)
    merge_people(folder, [one, other])
    assert read_people(folder).alike == ()
    pairs[1] = one, 10**6
    save(replace(people, groups=replace(people.groups, alike=pairs, alike_probability=probability)))
    with pytest.raises(DataError, match="'alike' has a number that no group has"):
        read_people(folder)
