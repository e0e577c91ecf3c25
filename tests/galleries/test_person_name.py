"""A name has one form wherever it comes from, and what nobody could read or type is no name."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import facerts
from facerts.datasets.synthetic import write_synthetic_faces
from facerts.errors import DataError, Error
from facerts.galleries import Gallery, Listed, Reason
from facerts.galleries.person_name import person_name
from tests.galleries.test_gallery import draw

NFC, NFD = "Zo\xeb", "Zoe\u0308"


SAME = ("0001", "person-12", "علی\u200cرضا", "☺\ufe0f", "👩\u200d🚀", "x" * 200)
FORMS = {NFD: NFC, " \u3000Anna\xa0Lee\n": "Anna\xa0Lee", **{name: name for name in SAME}}


@pytest.mark.parametrize("name", FORMS)
def test_a_name_has_one_form(name):
    assert person_name(name) == FORMS[name]


INVISIBLE = ["\u200d", "\ufe0f", "\u2800", "\u3164\u200c", "\u115f", "\u1160", "\uffa0", "\u034f", "\u0301"]
CONTROLS = ["\x1b[2J", "a\nb", "\u200b", "\xad", "\u202egnp", "\U000e0041", "\udcff", "a\0b"]
IMPOSSIBLE = {
    **dict.fromkeys(["", " \xa0\u3000\n"], "empty"),
    **dict.fromkeys(INVISIBLE, "seen"),
    **dict.fromkeys(CONTROLS, "control"),
    "x" * 201: "201 letters",
}
NUMBERS = ["12", "１２", "٣", "①", "person 12", "Person\xa012", "ＰＥＲＳＯＮ\u200312", "person-3"]
NUMBERS += ["per\u200dson_3", "New", "nobody"]


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_what_nobody_could_read_or_type_is_no_name(name):
    with pytest.raises(Error, match=IMPOSSIBLE[name]):
        person_name(name)


@pytest.mark.parametrize("name", NUMBERS)
def test_where_people_have_numbers_no_name_is_taken_for_one(name):
    assert person_name(name)
    with pytest.raises(Error, match="person's number, a new person or nobody"):
        person_name(name, numbered=True)
    assert person_name("Anna 12", numbered=True) == "Anna 12"


@pytest.fixture(scope="module")
def scorer(model):
    return facerts.load(model, detector="none", threads=1)


@pytest.fixture(params=["file", "database"])
def gallery(request, postgres, tmp_path):
    """A gallery that is not there yet."""
    place = postgres.address(gallery="names") if request.param == "database" else tmp_path / "g.npz"
    return Gallery(place)


def test_spellings_of_one_name_are_one_person(gallery, scorer, tmp_path):
    write_synthetic_faces(tmp_path / "people", identities=3, images=2, seed=5)
    first, second, _ = sorted((tmp_path / "people").iterdir())
    first.rename(first.with_name(NFC))
    copies = [str(copy) for copy in sorted(second.rename(second.with_name(NFD)).iterdir())]
    assert gallery.build(scorer, tmp_path / "people", overwrite=True, min_quality=-9).people == 2
    assert gallery.image_counts()[NFC] == 4
    # Enrolled already.
    gallery.add(scorer, copies, person=f" {NFD} ", min_quality=-9)
    assert gallery.image_counts()[NFC] == 4
    known = gallery.read()
    poor = [Listed(NFD, path, Reason.POOR) for _, path in known.entries if Path(path).parent.name != "person_0002"]
    assert [name for name, _ in Gallery(known).remove(findings=poor).kept] == [NFC]
    assert gallery.remove(findings=[Listed(NFD, copies[0], "")]).entries == ((NFC, copies[0]),)
    assert gallery.remove(people=[NFD]).gone == (NFC,)


def test_a_file_of_others_may_spell_a_name_in_two_ways(tmp_path):
    path = tmp_path / "g.npz"
    Gallery(path).replace(draw(3, 2))
    arrays = dict(np.load(path))
    np.savez(path, **arrays | {"people": np.array([NFD, NFC, "Anna"])})
    assert Gallery(path).image_counts() == {"Anna": 2, NFC: 4}


def rename(people, name):
    next(people.iterdir()).rename(people / name)
    return people


def file_with(folder, name):
    path = folder / "theirs.npz"
    Gallery(path).replace(draw(2, 2))
    np.savez(path, **dict(np.load(path)) | {"people": np.array([name, "b"])})
    return path


ENROLLED = {
    "a folder": (
        r"people: the name \\x1b must not .* nothing was enrolled, so rename",
        lambda gallery, scorer, people: gallery.build(scorer, rename(people, "\x1b"), overwrite=True),
    ),
    "embeddings": (
        r"the name '\\u3164' must have",
        lambda gallery, scorer, people: gallery.merge(replace(draw(1, 2), person=np.full(2, "\u3164"))),
    ),
    "an option": (
        "a name must not be empty",
        lambda gallery, scorer, people: gallery.add(scorer, people, person=" "),
    ),
    "a file of others": (
        r"theirs\.npz: a broken gallery: the name \\x07 must not .*; build it again",
        lambda gallery, scorer, people: Gallery(file_with(people, "\x07")).read(),
    ),
}


@pytest.mark.parametrize("source", ENROLLED)
def test_nobody_gets_an_impossible_name(gallery, scorer, tmp_path, source):
    people = tmp_path / "people"
    write_synthetic_faces(people, identities=2, images=2, seed=5)
    gallery.build(scorer, people, overwrite=True, min_quality=-9)
    before = gallery.read().entries
    message, use = ENROLLED[source]
    with pytest.raises(Error, match=message):
        use(gallery, scorer, people)
    assert gallery.read().entries == before
    with pytest.raises(DataError, match="is not in the gallery"):
        gallery.remove(people=["\u3164\0\udcff"])
