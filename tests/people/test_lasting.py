"""What people decided survives three later runs with new photos, whatever the photos are called and however found."""

import shutil

import pytest

from facerts.people import find_people, merge_people, move_faces, name_person, read_people
from tests.people.photos import face, open_scorer, write_people, write_photo
from tests.people.test_people import by_photo, of, path

# Persons 0 and 1 are different to the model; 3 and 3.5 are siblings, whom it takes for one person.


@pytest.fixture
def photos(tmp_path):
    write_people(tmp_path / "photos", range(6), range(3))
    for image in range(3):
        write_photo(tmp_path / "photos" / f"sibling_{image}.png", face(3.5, image))
    write_photo(tmp_path / "photos" / "dark.png", face(2, 20, light=0.15))
    write_photo(tmp_path / "photos" / "all.png", *(face(person, 9) for person in (0, 1, 2, 3, 3.5)))
    return tmp_path / "photos"


def later_runs(scorer, photos, out, *, store=True):
    """Three runs: with new photos; renamed and copied, with another detector; and in the first way, to more photos.

    Args:
        store: False deletes the stored decisions before the first.
    """

    def first():
        if not store:
            (out / "decisions.jsonl").unlink()
        write_people(photos, range(7), range(30, 33))
        for image in range(30, 33):
            write_photo(photos / f"sibling_{image}.png", face(3.5, image))
        return find_people(scorer, photos, out).people

    def second():
        for photo in sorted(photos.iterdir())[::2]:
            photo.rename(photo.with_name(f"renamed_{photo.name}"))
        for photo in sorted(photos.iterdir())[::3]:
            (photos / "copies").mkdir(exist_ok=True)
            shutil.copy(photo, photos / "copies" / f"copied_{photo.name}")
        return find_people(open_scorer(out.parent, 9.0), photos, out).people

    def third():
        write_people(photos, range(8), range(40, 43))
        # A person is once in a photo, so both whom one decision made one are in different ones.
        write_photo(photos / "late.png", face(3.5, 44), face(0, 44))
        write_photo(photos / "later.png", face(2, 45), face(1, 44))
        return find_people(scorer, photos, out).people

    return [first, second, third]


def people_of(people, begin):
    """The people of all photos of one face whose names begin so, however they were renamed."""
    return {
        number
        for name, numbers in by_photo(people).items()
        if name.replace("copied_", "").replace("renamed_", "").startswith(begin) and len(numbers) == 1
        for number in numbers
    }


@pytest.mark.parametrize("store", [True, False])
def test_decisions_survive_three_later_runs_and_without_the_store_they_do_not(scorer, photos, store, out):
    start = find_people(scorer, photos, out).people
    zero, one, two, three, four, five = (of(start, f"p{person}_0.png") for person in range(6))
    assert of(start, "sibling_0.png") == three
    merge_people(out, [zero, one])
    siblings = [path(start, f"sibling_{image}.png") for image in range(3)]
    sibling = move_faces(out, [*siblings, f"{path(start, 'all.png')}#4"], "new").numbers[0]
    move_faces(out, [path(start, "dark.png")], two)
    move_faces(out, [path(start, "p5_2.png")], four)
    name_person(out, two, "Clara")
    name_person(out, four, ".newsreader")
    move_faces(out, [path(start, "p5_0.png")], "nobody")
    done = read_people(out)

    def holds(people):
        found = by_photo(people)
        whole = next(numbers for name, numbers in found.items() if name.endswith("all.png"))
        return {
            "merge": people_of(people, "p0_") == people_of(people, "p1_") == {zero},
            "move to new": people_of(people, "sibling_") == {sibling}
            and people_of(people, "p3_") == {three}
            and whole[3:] == [three, sibling],
            "move of a poor face": people_of(people, "dark") == {two},
            "move": people_of(people, "p5_2.") == {four} and people_of(people, "p5_1.") == {five},
            "name": people.by_number[two].name == "Clara" and people_of(people, "p2_") == {two},
            "hide": people.by_number[four].hidden and people_of(people, "p4_") == {four},
            "move to nobody": people_of(people, "p5_0.") == {None},
        }

    assert all(holds(done).values()), holds(done)
    for run in later_runs(scorer, photos, out, store=store):
        people = run()
        assert read_people(out).groups.group.tolist() == people.groups.group.tolist()
        assert set(holds(people).values()) == {store}, holds(people)
        # New people are not drawn into anybody's group.
        assert not people_of(people, "p6_") & {zero, two, three, four, five, sibling}


@pytest.mark.parametrize("add", [False, True])
def test_a_later_decision_overrides_an_earlier_one_in_all_runs(scorer, photos, tmp_path, add, out):
    start = find_people(scorer, photos, out).people
    zero, one, two = (of(start, f"p{person}_0.png") for person in range(3))
    merge_people(out, [zero, one])
    name_person(out, zero, "Anna")
    ones = [path(start, f"p1_{image}.png") for image in range(3)]
    one = move_faces(out, [*ones, f"{path(start, 'all.png')}#1"], "new").numbers[0]
    move_faces(out, ones[:1], two)
    move_faces(out, ones[:1], one)
    move_faces(out, ones[1:2], "nobody")
    move_faces(out, ones[1:2], one)
    (tmp_path / "new").mkdir()
    write_people(tmp_path / "new", range(3), range(50, 52))
    given = tmp_path / "new" if add else [photos, tmp_path / "new"]
    for _ in range(3):
        people = find_people(scorer, given, out, add=add).people
        assert people_of(people, "p0_") == {zero}
        assert people_of(people, "p1_") == {one}
        assert people_of(people, "p2_") == {two}
        assert (people.by_number[zero].name, people.by_number[one].name) == ("Anna", "")
        assert by_photo(people)["all.png"][:3] == [zero, one, two]
