"""Photos to people: whom a run finds, what it does not look at again, and what corrections do at once."""

import csv
import os
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest

from facerts.errors import DataError, Error, LockedError, ModelError
from facerts.galleries import Gallery
from facerts.io.files import locked
from facerts.people import (
    FaceStatus,
    copy_photos,
    find_job,
    find_people,
    merge_people,
    move_faces,
    name_person,
    people_folder,
    read_people,
    undo_decision,
)
from facerts.people.decisions import Action
from facerts.people.found_faces import read_found_faces
from facerts.people.grouping import group_faces
from tests.people.photos import face, open_scorer, write_people, write_photo


@pytest.fixture
def photos(tmp_path):
    """Three photos of each of five people, and one of two people."""
    write_people(tmp_path / "photos", range(5), range(3))
    write_photo(tmp_path / "photos" / "both.png", face(0, 8), face(1, 8))
    return tmp_path / "photos"


@pytest.fixture
def people(scorer, photos, out):
    """The people of the photos, in the folder ``out``."""
    return find_people(scorer, photos, out).people


def by_photo(people):
    """The person of each face of each photo, by the photo's name."""
    found = {}
    for row in sorted(people.faces(), key=lambda row: (row.path, row.face or 0)):
        found.setdefault(Path(row.path).name, []).append(row.person)
    return found


def of(people, photo):
    """The person of the only face of a photo."""
    (number,) = by_photo(people)[photo]
    return number


def path(people, photo):
    (found,) = (each for each in people.found.path.tolist() if Path(each).name == photo)
    return str(found)


def test_faces_are_grouped_by_person_and_poor_ones_join_nobody(scorer, photos, out):
    for person in range(5):
        write_photo(photos / f"dark{person}.png", face(person, 20, light=0.15))
        write_photo(photos / f"dim{person}.png", face(person, 21, light=0.8))
    (photos / "broken.png").write_bytes(b"no image")
    people = find_people(scorer, photos, out).people
    found = by_photo(people)
    numbers = [of(people, f"p{person}_0.png") for person in range(5)]
    assert sorted(numbers) == [1, 2, 3, 4, 5]
    for person, number in enumerate(numbers):
        assert {of(people, f"p{person}_{image}.png") for image in range(3)} == {number}
        assert found[f"dark{person}.png"] == [None]
        assert found[f"dim{person}.png"] == [number]
    assert found["both.png"] == numbers[:2]
    status = {Path(row.path).name: row.status for row in people.faces()}
    assert (status["dark0.png"], status["dim0.png"]) == (FaceStatus.UNCLEAR, FaceStatus.ATTACHED)
    assert (status["p0_0.png"], status["broken.png"]) == (FaceStatus.MEMBER, FaceStatus.ERROR)
    (first, second) = people.persons[:2]
    assert (first.photos, second.photos, people.persons[2].photos) == (5, 5, 4)
    assert people.summary()["could_not_be_read"] == 1
    # The attached face is the worst of its person, and the table says of each face what the object says.
    assert all(
        Path(people.found.path[people.found.photos_of(p.rows[-1])[0]]).name.startswith("dim") for p in people.persons
    )
    with (out / "people.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["path"] for row in rows] == [row.path for row in people.faces()]
    assert {row["status"] for row in rows} == {"member", "attached", "unclear", "error"}
    assert "below_threshold" in next(row["reasons"] for row in rows if row["status"] == "attached")


def test_without_the_threshold_poor_faces_join_people_and_a_notice_says_so(photos, tmp_path, out):
    for person in range(5):
        write_photo(photos / f"dark{person}.png", face(person, 20, light=0.15))
    scorer = open_scorer(tmp_path, thresholds=False)
    found = find_people(scorer, photos, out)
    assert "no quality threshold" in found.notices[0]
    assert len({found.people.groups.group[row] for row in range(len(found.people.found))}) < 11
    dark = {of(found.people, f"dark{person}.png") for person in range(5)}
    assert len(dark) == 1


def test_a_model_without_match_thresholds_is_refused_before_anything_is_read(tmp_path, out):
    scorer = open_scorer(tmp_path)
    calibration = scorer.recognizer.opened.description.calibration
    scorer.recognizer.opened.description = scorer.recognizer.opened.description.model_copy(
        update={"calibration": calibration.model_copy(update={"matching": None})}
    )
    with pytest.raises(ModelError, match="calibrate"):
        find_people(scorer, tmp_path / "nowhere", out)
    assert not out.exists()


def test_known_images_are_not_scored_again_whatever_they_are_called(scorer, photos, out):
    assert find_people(scorer, photos, out).scored == 16
    numbers = by_photo(read_people(out))
    (photos / "p0_0.png").rename(photos / "renamed.png")
    shutil.copy(photos / "p1_0.png", photos / "copy.png")
    os.utime(photos / "p2_0.png")
    (photos / "p3_0.png").unlink()
    write_photo(photos / "p4_0.png", face(4, 50))
    again = find_people(scorer, photos, out)
    # The replaced p4_0.png is there, the renamed p0_0.png too.
    assert (again.scored, again.vanished) == (1, (str(photos / "p3_0.png"),))
    found = by_photo(again.people)
    assert found["renamed.png"] == numbers["p0_0.png"]
    assert found["copy.png"] == found["p1_0.png"] == numbers["p1_0.png"]
    assert {name: found[name] for name in numbers if name in found} == {
        name: number for name, number in numbers.items() if name in found
    }
    # A copy is no second photo of a person.
    assert again.people.by_number[found["copy.png"][0] or 0].photos == 4
    crops = {crop.name for crop in (out / "crops").iterdir()}
    assert len(crops) == len(again.people.found)


def test_the_folder_may_lie_among_the_photos(scorer, photos):
    first = find_people(scorer, photos, photos / "people")
    assert find_people(scorer, photos, photos / "people").people.summary() == first.people.summary()
    with pytest.raises(DataError, match="choose another"):
        find_people(scorer, photos / "people" / "crops", photos / "people")


def test_another_folder_is_not_written_to(scorer, photos, out):
    with pytest.raises(Error, match="not a folder of people"):
        find_people(scorer, photos, photos)
    out.mkdir()
    (out / "crops").symlink_to(photos)
    with pytest.raises(Error, match="link"):
        find_people(scorer, photos, out)
    with pytest.raises(DataError, match="facerts people find"):
        read_people(photos)


def test_decisions_alone_are_enough_to_start_from(scorer, photos, tmp_path, out):
    other = tmp_path / "other"
    people = find_people(scorer, photos, out).people
    merged = merge_people(out, [of(people, "p0_0.png"), of(people, "p1_0.png")]).people
    other.mkdir()
    shutil.copy(out / "decisions.jsonl", other)
    again = find_people(scorer, photos, other)
    assert again.scored == 16
    assert len(again.people.persons) == len(merged.persons) == 4
    assert of(again.people, "p0_0.png") == of(again.people, "p1_0.png")


def test_a_run_that_is_interrupted_continues(scorer, photos, tmp_path, monkeypatch, out):
    monkeypatch.setattr(find_job, "BLOCK_SIZE", 4)
    write_people(photos, range(5), range(3, 9))
    load = find_job._load
    loaded = []

    def stopped(source, index, sha256):
        loaded.append(sha256)
        if len(loaded) > 40:
            raise KeyboardInterrupt
        return load(source, index, sha256)

    with monkeypatch.context() as patch:
        patch.setattr(find_job, "_load", stopped)
        patch.setattr(scorer.recognizer.opened, "batch_size", 2)
        with pytest.raises(KeyboardInterrupt):
            find_people(scorer, photos, out)
    parts = sorted((out / "parts").glob("0*"))
    assert parts
    assert not (out / "groups.npz").exists()
    parts[-1].write_bytes(parts[-1].read_bytes()[:-100])
    found = find_people(scorer, photos, out)
    assert found.scored == 46 - 4 * (len(parts) - 1)
    assert "done again" in found.notices[0]
    whole = find_people(scorer, photos, tmp_path / "whole")
    assert by_photo(found.people) == by_photo(whole.people)
    assert not (out / "parts").exists()


def test_images_that_could_not_be_decoded_are_tried_again(scorer, photos, monkeypatch, out):
    decode = find_job.decode

    def without_png(data, *, where):
        if where.endswith("p0_0.png"):
            raise DataError(f"{where}: PNG is not installed")
        return decode(data, where=where)

    with monkeypatch.context() as patch:
        patch.setattr(find_job, "decode", without_png)
        first = find_people(scorer, photos, out).people
    assert "not installed" in " ".join(first.found.error.tolist())
    assert find_people(scorer, photos, out).scored == 1


def test_adding_photos_leaves_groups_and_photos_as_they_are(scorer, photos, tmp_path, out):
    write_photo(photos / "dark.png", face(0, 20, light=0.15))
    first = find_people(scorer, photos, out).people
    before, highest = by_photo(first), first.groups.highest
    write_people(tmp_path / "new", range(3, 8), range(10, 13))
    (photos / "p0_1.png").rename(tmp_path / "new" / "moved.png")
    (photos / "p0_2.png").unlink()
    added = find_people(scorer, tmp_path / "new", out, add=True)
    after = by_photo(added.people)
    assert {name: after[name] for name in before if name != "p0_1.png"} == {
        name: number for name, number in before.items() if name != "p0_1.png"
    }
    assert added.scored == 15
    assert after["moved.png"] == before["p0_1.png"]
    assert "p0_1.png" not in after
    # What is gone is said, and kept until a run without --add.
    assert added.vanished == (str(photos / "p0_2.png"),)
    assert of(added.people, "p3_10.png") == of(first, "p3_0.png")
    assert {of(added.people, f"p{person}_10.png") for person in (5, 6, 7)} == {
        highest + 1,
        highest + 2,
        highest + 3,
    }
    with pytest.raises(Error, match="without add"):
        find_people(open_scorer(tmp_path, 4), tmp_path / "new", out, add=True)


def test_a_number_is_never_used_twice(scorer, photos, out):
    gone = of(find_people(scorer, photos, out).people, "p4_0.png")
    for image in range(3):
        (photos / f"p4_{image}.png").unlink()
    find_people(scorer, photos, out)
    write_people(photos, range(20, 21), range(3))
    assert of(find_people(scorer, photos, out).people, "p20_0.png") == 6 != gone


def test_corrections_take_effect_at_once_and_can_be_undone(people, out):
    first, second, third = (of(people, f"p{person}_0.png") for person in range(3))
    states = [by_photo(people)]

    merged = merge_people(out, [first, second]).people
    assert of(merged, "p1_2.png") == first
    assert by_photo(merged)["both.png"] == [first, first]
    states.append(by_photo(merged))

    split = move_faces(out, [path(people, "p2_1.png")], "new").people
    assert of(split, "p2_1.png") == 6
    assert of(split, "p2_0.png") == third
    states.append(by_photo(split))

    moved = move_faces(out, [f"{path(people, 'both.png')}#1"], 6).people
    assert by_photo(moved)["both.png"] == [first, 6]
    assert [row.probability for row in moved.faces() if row.path.endswith("both.png") and row.face] == [1.0]
    states.append(by_photo(moved))

    new = move_faces(out, [path(people, "p3_0.png"), path(people, "p4_0.png")], "new")
    assert new.numbers == [7]
    assert of(new.people, "p3_0.png") == of(new.people, "p4_0.png") == 7
    states.append(by_photo(new.people))

    removed = move_faces(out, [os.path.relpath(path(people, "p1_0.png"))], "nobody").people
    assert by_photo(removed)["p1_0.png"] == [None]
    assert removed.summary()["removed"] == 1
    states.append(by_photo(removed))

    name_person(out, first, " Zo\xeb  ")
    named = name_person(out, third, "Zoe\u0308").people
    for name in ("Zo\xeb", "Zoe\u0308", str(third), chr(0xFF10 + third)):
        assert named.person(name).number == third
    assert of(named, "p0_0.png") == third
    assert named.decisions == 7

    # Reading gives what the command left, and each undo what was there before.
    assert by_photo(read_people(out)) == by_photo(named)
    undo_decision(out)
    undone = undo_decision(out)
    assert undone.decision.action is Action.NAME
    assert not any(person.name for person in undone.people.persons)
    for state in reversed(states[1:]):
        assert by_photo(read_people(out)) == state
        undo_decision(out)
    assert by_photo(read_people(out)) == states[0]
    with pytest.raises(Error, match="nothing to undo"):
        undo_decision(out)


def test_only_a_decision_that_holds_makes_a_face_certain(scorer, photos, out):
    write_photo(photos / "dim.png", face(1, 21, light=0.8))

    def probability(people):
        return next(row.probability for row in people.faces() if Path(row.path).name == "dim.png")

    start = find_people(scorer, photos, out).people
    before, faces = probability(start), [path(start, "dim.png")]
    assert before != 1
    move_faces(out, faces, "nobody")
    assert probability(undo_decision(out).people) == before
    assert probability(move_faces(out, faces, "new").people) == 1
    assert probability(undo_decision(out).people) is None
    assert probability(find_people(scorer, photos, out).people) == before


def test_photos_may_have_names_that_are_no_text(scorer, photos, tmp_path, out):
    odd = photos / "o\udcffd.png"
    (photos / "p0_0.png").rename(odd)
    people = find_people(scorer, photos, out).people
    assert (people.found.path == str(photos / "o\\udcffd.png")).sum() == 1
    assert len(copy_photos(people, tmp_path / "sorted").written) == 17
    (copied,) = (tmp_path / "sorted").rglob(odd.name)
    assert copied.read_bytes() == odd.read_bytes()
    assert len(move_faces(out, [str(odd)], "nobody").decision.faces) == 1
    (photos / "new").mkdir()
    write_photo(photos / "new" / "new.png", face(9, 0))
    assert find_people(scorer, photos / "new", out, add=True).vanished == ()


def test_impossible_corrections_change_nothing(people, out):
    before = {file.name: file.read_bytes() for file in out.iterdir() if file.is_file()}
    first = of(people, "p0_0.png")
    for wrong, message in (
        (lambda: merge_people(out, [first, first]), "two different people"),
        (lambda: merge_people(out, [first, 99]), "no person 99"),
        (lambda: merge_people(out, []), "two different people"),
        (lambda: move_faces(out, ["ffffffff-0"], first), "no face ffffffff-0"),
        (lambda: move_faces(out, [path(people, "both.png")], first), "has 2 faces"),
        (lambda: move_faces(out, [path(people, "p0_0.png")], "Nobody"), "no person Nobody"),
        (lambda: move_faces(out, [], "nobody"), "one face or more"),
        (lambda: name_person(out, first, ""), "empty"),
        (lambda: name_person(out, first, "Person\xa03"), "number"),
        (lambda: name_person(out, first, "New"), "a new person"),
        (lambda: name_person(out, first, "Nobody"), "nobody"),
    ):
        with pytest.raises(Error, match=message):
            wrong()
    assert {file.name: file.read_bytes() for file in out.iterdir() if file.is_file()} == before


def test_a_second_process_is_refused(people, scorer, photos, out):
    with locked(out):
        for change in (
            lambda: find_people(scorer, photos, out),
            lambda: merge_people(out, [1, 2]),
            lambda: undo_decision(out),
        ):
            with pytest.raises(LockedError):
                change()
    assert by_photo(read_people(out)) == by_photo(people)


def test_decisions_without_their_groups_are_carried_out_by_the_next_reader(people, scorer, photos, out):
    numbers = [of(people, f"p{person}_0.png") for person in range(5)]
    groups = (out / "groups.npz").read_bytes()
    for decide in (
        lambda: merge_people(out, [numbers[4], numbers[0], numbers[1]]),
        lambda: move_faces(out, [path(people, "p2_0.png")], "nobody"),
        lambda: move_faces(out, [path(people, "p3_1.png")], numbers[4]),
        lambda: undo_decision(out),
        lambda: move_faces(out, [path(people, "p3_2.png")], "new"),
        lambda: undo_decision(out),
        lambda: undo_decision(out),
    ):
        done = decide().people
        (out / "groups.npz").write_bytes(groups)
        read = read_people(out)
        assert by_photo(read) == by_photo(done)
        assert np.array_equal(read.groups.probability, done.groups.probability, equal_nan=True)
    added = find_people(scorer, photos, out, add=True).people
    assert by_photo(added) == by_photo(read)


def test_an_undo_after_the_groups_were_lost_puts_no_face_into_a_strangers_group(people, scorer, photos, out):
    merge_people(out, [of(people, f"p{person}_0.png") for person in (4, 2)])
    (out / "groups.npz").unlink()
    find_people(scorer, photos, out)
    undo_decision(out)
    persons = [
        {number for name in (f"p{person}_0.png", f"p{person}_1.png") for number in by_photo(read_people(out))[name]}
        for person in range(5)
    ]
    assert all(len(each) == 1 for each in persons)
    assert len(set.union(*persons)) == 5


def test_hidden_people_keep_their_faces_and_are_left_out(scorer, photos, out):
    number = of(find_people(scorer, photos, out).people, "p4_0.png")
    hidden = name_person(out, number, ".newsreader").people
    assert hidden.persons[-1].number == number
    write_people(photos, range(4, 5), range(30, 32))
    later = find_people(scorer, photos, out).people
    assert of(later, "p4_30.png") == number
    assert {row.status for row in later.faces() if row.person == number} == {FaceStatus.HIDDEN}
    assert ".newsreader" not in later.gallery().image_counts()
    assert not name_person(out, number, "Newsreader").people.person(number).hidden


def test_a_gallery_of_people_finds_them(scorer, photos, tmp_path, out):
    write_photo(photos / "dim2.png", face(2, 21, light=0.8))
    people = find_people(scorer, photos, out).people
    people = name_person(out, of(people, "p2_0.png"), "Clara").people
    gallery = Gallery(tmp_path / "people.npz")
    gallery.replace(people.gallery(2).read())
    assert gallery.summary().images == 10
    probes = [write_photo(tmp_path / f"probe{person}.png", face(person, 90)) for person in range(5)]
    matches = gallery.search(scorer, probes, fpir=0.1)
    names = [people.person(of(people, f"p{person}_0.png")).file_name for person in range(5)]
    assert names[2] == "Clara"
    assert [(match.person, match.decision.value) for match in matches] == [(name, "match") for name in names]
    assert [match.person for match in people.search(scorer.faces(probes), fpir=0.1)] == names
    only = people.gallery(9, named_only=True)
    assert [*only.image_counts()] == ["Clara"]
    # Without the poor face that is attached.
    assert {Path(each).name for each in only.read().path.tolist()} == {"p2_0.png", "p2_1.png", "p2_2.png"}
    undo_decision(out)
    with pytest.raises(Error, match="name people first"):
        read_people(out).gallery(named_only=True)


def test_photos_may_lie_in_archives_which_copies_cannot_be_made_of(scorer, photos, tmp_path, out):
    shard = tmp_path / "photos.tar"
    with tarfile.open(shard, "w") as archive:
        for photo in sorted(photos.iterdir()):
            archive.add(photo, photo.name)
    first = find_people(scorer, shard, out)
    assert (first.scored, len(first.people.persons)) == (16, 5)
    assert find_people(scorer, shard, out).scored == 0
    # Unpacked, they are the same images; the archive is there, so that nothing is gone.
    added = find_people(scorer, photos, out, add=True)
    assert (added.scored, added.vanished, len(added.people.found.path)) == (0, (), 32)
    find_people(scorer, shard, out)
    written, errors = copy_photos(read_people(out), tmp_path / "sorted")
    assert written == []
    assert len(errors) == len({*errors}) > 0
    assert all("as files" in error for error in errors)


def test_photos_are_copied_by_person_and_nothing_is_overwritten(people, photos, tmp_path, out):
    target = tmp_path / "sorted"
    first, second = of(people, "p0_0.png"), of(people, "p1_0.png")
    people = name_person(out, first, "Anna/../Ben").people
    (target / f"person-{second}").mkdir(parents=True)
    (target / f"person-{second}" / "both.png").write_bytes(b"mine")
    written, errors = copy_photos(people, target)
    assert (len(written), errors) == (17, [])
    assert (target / f"person-{second}" / "both.png").read_bytes() == b"mine"
    assert (target / f"person-{second}" / "both (2).png").read_bytes() == (photos / "both.png").read_bytes()
    (named,) = [each for each in target.iterdir() if each.name.startswith("Anna_")]
    assert {each.name for each in named.iterdir()} == {"p0_0.png", "p0_1.png", "p0_2.png", "both.png"}
    assert copy_photos(people, target) == ([], [])
    assert len(copy_photos(people, tmp_path / "faces", crops=True, named_only=True).written) == 4


def test_photos_that_are_gone_or_changed_are_named_and_the_others_are_copied(people, photos, tmp_path):
    target = tmp_path / "sorted"
    write_photo(photos / "p0_0.png", face(9, 9))
    (photos / "both.png").unlink()
    written, errors = copy_photos(people, target)
    # The photo of both is missing twice, and said once.
    assert len(written) == 17 - 3
    assert sorted(errors) == [
        f"{photos / 'both.png'}: no such file; copies need the images where they were, as files; "
        "run facerts people find again",
        f"{photos / 'p0_0.png'}: changed since it was read; run facerts people find again",
    ]


def test_a_run_that_ends_between_two_reads_is_seen_whole(scorer, photos, tmp_path, monkeypatch, out):
    find_people(scorer, photos, out)
    write_people(tmp_path / "more", range(4, 6), range(2))
    ended = []

    def read_later(path):
        if not ended:
            monkeypatch.undo()
            ended.append(find_people(scorer, tmp_path / "more", out))
        return read_found_faces(path)

    monkeypatch.setattr(people_folder, "read_found_faces", read_later)
    people = read_people(out)
    assert list(out.glob("faces-*.npz")) == [out / people.groups.table]
    assert by_photo(people) == by_photo(ended[0].people)


def test_numbers_that_are_none_are_refused(scorer, photos, out):
    with pytest.raises(Error, match="not a number"):
        find_people(scorer, photos, out, min_quality=float("nan"))
    assert not out.exists()
    people = find_people(scorer, photos, out).people
    with pytest.raises(Error, match="no face"):
        people.rows_of([f"{photos / 'both.png'}#{'1' * 5000}"])


def test_removed_faces_do_not_take_part_when_others_are_grouped(scorer, photos, monkeypatch, out):
    grouped = []
    people = find_people(scorer, photos, out).people
    move_faces(out, [path(people, "p2_0.png")], "nobody")

    def watched(embedding: np.ndarray, *rest: object, **options: object):
        grouped.append(len(embedding))
        return group_faces(embedding, *rest, **options)

    monkeypatch.setattr(people_folder, "group_faces", watched)
    find_people(scorer, photos, out)
    assert grouped == [len(people.found) - 1]
