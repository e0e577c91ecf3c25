"""The figures of the README and the documentation are what their commands draw, with the model that ships."""

import cv2
import numpy as np
import pytest

from tests.scripts import TOOLS, load_script

script = load_script("docs_figures", TOOLS)


# Another version of matplotlib or of a codec may change pixels a little; another crop, box or decision changes more.
@pytest.mark.parametrize(("figure", "most"), [("scores", 2), ("video", 1)])
def test_figures_are_what_their_command_draws(figure, most, tmp_path):
    script.DRAWN[figure](tmp_path)
    for path in tmp_path.iterdir():
        drawn, kept = (cv2.imread(str(folder / path.name)).astype(int) for folder in (tmp_path, script.FIGURES))
        assert drawn.shape == kept.shape
        assert np.abs(drawn - kept).mean() < most


def test_faces_are_accepted_as_long_as_they_can_be_recognized_and_nothing_else_is():
    decisions = {name: row.accepted for name, _, row in script.scored(script.crops())}
    assert [name for name, accepted in decisions.items() if accepted] == ["original", "JPEG"]
    reasons = {name: row.reasons[0] for name, _, row in script.scored(script.crops()) if not row.accepted}
    assert reasons == {
        "noise": "noisy",
        "blur": "blurred",
        "overexposed": "over_exposed",
        "covered": "covered",
        "cat": "not_a_face",
        "cup": "not_a_face",
    }


@pytest.mark.parametrize("name", script.PAGES)
def test_the_figures_of_the_page_of_people_have_the_sizes_that_their_command_gives(name):
    image = cv2.imread(str(script.FIGURES / name))
    width, height, dark = script.PAGES[name]
    assert image is not None
    assert image.shape == (height, width, 3)
    assert (image[:8, :8].mean() < 60) == dark


@pytest.mark.slow
def test_the_people_of_the_figures_are_those_who_were_drawn(tmp_path):
    made = script.make_people(tmp_path)
    owners = {p.number: {script.owner(made, row) for row in p.rows.tolist()} for p in made.persons}
    assert all(len(each) == 1 for each in owners.values())
    drawn = {next(iter(each)) for each in owners.values()}
    assert len(drawn) == len(owners)
    assert drawn >= {f"person_{number:04d}" for number in range(12)}
    assert {person.name for person in made.persons} - {""} == {*script.NAMES, ".stranger"}
    assert (made.folder / "index.html").is_file()
