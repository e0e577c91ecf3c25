"""The page of people: complete, escaped, without a network or a script, and of a size that a browser bears."""

import re
import shlex
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from facerts.people import find_people, move_faces, name_person, read_people
from facerts.report import people_page
from facerts.report.people_page import write_people_page
from tests.command import run
from tests.people.photos import face, open_scorer, write_people, write_photo
from tests.people.test_people import of, path

NAME = "<script>alert(1)</script>\" onload='x' & Söhne"


class Page(HTMLParser):
    """What a browser would see."""

    def __init__(self, text):
        super().__init__()
        self.tags = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data

    def all(self, tag, attribute):
        return [
            attributes[attribute] or "" for name, attributes in self.tags if name == tag and attribute in attributes
        ]


@pytest.fixture
def folder(tmp_path):
    """People of every kind, in a folder whose name a shell would split."""
    photos, out = tmp_path / "photos", tmp_path / "my people; $(rm x)"
    write_people(photos, range(6), range(3))
    write_photo(photos / "once.png", face(7, 0))
    write_photo(photos / 'a"b<i>.png', face(0, 20, light=0.15))
    write_photo(photos / "dim.png", face(1, 21, light=0.8))
    (photos / "<u>broken.png").write_bytes(b"no image")
    people = find_people(open_scorer(tmp_path), photos, out).people
    name_person(out, of(people, "p2_0.png"), NAME)
    name_person(out, of(people, "p3_0.png"), ".newsreader")
    move_faces(out, [path(people, "p4_0.png")], "nobody")
    move_faces(out, [path(people, "p5_0.png")], "new")
    return out


def read(folder):
    return Page(write_people_page(read_people(folder)).read_text(encoding="utf-8"))


def test_all_faces_are_shown_once_but_removed_ones_and_names_are_escaped(folder):
    people, page = read_people(folder), read(folder)
    crops = page.all("img", "src")
    assert len(crops) == len(set(crops)) == len(people.found) - 1
    assert all((folder / crop).is_file() for crop in crops)
    assert NAME in page.text
    assert "1 face was removed" in page.text
    assert not {"script", "i", "u", "link", "iframe"} & {tag for tag, _ in page.tags}
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
    content = (folder / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"https?://|url\(|@import", content)
    assert "prefers-color-scheme: dark" in content


def test_images_have_a_text_a_size_and_are_loaded_as_they_come_into_view(folder):
    images = [attributes for tag, attributes in read(folder).tags if tag == "img"]
    assert all(image["alt"] and image["loading"] == "lazy" and image["width"] for image in images)
    assert sum('a"b<i>.png' in (image["alt"] or "") for image in images) == 1


def test_every_link_leads_to_something_on_the_page(folder):
    page = read(folder)
    ids = {attributes["id"] for _, attributes in page.tags if "id" in attributes}
    links = page.all("a", "href")
    assert links
    assert {link.removeprefix("#") for link in links} <= ids


def test_the_commands_can_be_pasted(folder, capsys):
    page = read(folder)
    commands = re.findall(r"facerts people .*$", page.text, flags=re.MULTILINE)
    assert {command.split()[2] for command in commands} >= {
        *("name", "merge", "move", "find", "undo", "copy", "to-gallery")
    }
    assert {command.rsplit(" ", 1)[1] for command in commands if " move " in command} >= {"new", "nobody"}
    for command in {(*command.split()[2:3], command.split()[-1]): command for command in commands}.values():
        _, *arguments = shlex.split(command)
        assert arguments[2] == str(folder) or arguments[1] == "find"
        if arguments[1] in ("find", "undo", "copy", "to-gallery") or "NUMBER" in arguments:
            continue
        # Each is possible, and one is taken back before the next.
        assert run(*arguments) == 0, (command, capsys.readouterr().err)
        assert run("people", "undo", folder) == 0


def test_a_large_page_shows_the_first_of_each_and_says_how_many_more(folder, monkeypatch):
    whole = read(folder)
    for limit, value in (("MAX_FACES", 1), ("MAX_PEOPLE", 2), ("MAX_ONCE", 1), ("MAX_UNCLEAR", 0)):
        monkeypatch.setattr(people_page, limit, value)
    page = read(folder)
    assert len(page.all("img", "src")) < len(whole.all("img", "src"))
    assert "… and 1 face more in people.csv" in page.text
    assert re.search(r"… and \d+ (people|person) more in people.csv", page.text)


def test_who_may_be_the_same_person_is_a_link_if_that_one_is_shown(folder, monkeypatch):
    people = read_people(folder)
    first, *_, last = (person.number for person in people.persons if person.photos > 1 and not person.hidden)
    pairs = {"alike": np.array([[first, last]]), "alike_probability": np.array([0.42])}
    likely = replace(people, groups=replace(people.groups, **pairs))
    for shown, links in ((people_page.MAX_PEOPLE, 2), (1, 0)):
        monkeypatch.setattr(people_page, "MAX_PEOPLE", shown)
        page = Page(write_people_page(likely).read_text(encoding="utf-8"))
        assert "(42%)" in page.text
        assert sum(link.startswith("#person-") for link in page.all("a", "href")) == links
