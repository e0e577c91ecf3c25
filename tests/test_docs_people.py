"""The figures of the page of people: of the sizes that the documentation says, and of people who are right."""

from __future__ import annotations

from pathlib import Path

import cv2
import pytest

from tests.scripts import TOOLS, load_script

script = load_script("docs_people", TOOLS)
FIGURES = Path(__file__).parents[1] / "docs" / "figures"


@pytest.mark.parametrize("name", script.FIGURES)
def test_the_figures_have_the_sizes_that_their_command_gives(name: str) -> None:
    image = cv2.imread(str(FIGURES / name))
    width, height, dark = script.FIGURES[name]
    assert image is not None
    assert image.shape == (height, width, 3)
    assert (image[:8, :8].mean() < 60) == dark


@pytest.mark.slow
def test_the_people_of_the_figures_are_those_who_were_drawn(tmp_path: Path) -> None:
    people = script.make_people(tmp_path)
    owners = {
        person.number: {script.owner(people, row) for row in person.rows.tolist()}
        for person in people.persons
    }
    assert all(len(each) == 1 for each in owners.values())
    drawn = {next(iter(each)) for each in owners.values()}
    assert len(drawn) == len(owners)
    assert drawn >= {f"person_{number:04d}" for number in range(12)}
    named = {person.name for person in people.persons} - {""}
    assert named == set(script.NAMES)
    assert (people.folder / "index.html").is_file()
