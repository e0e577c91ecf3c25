"""The figures of the README and the documentation are what their commands draw, with the model that ships."""

from __future__ import annotations

import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

from facerts.scoring.annotate import ACCEPTED, REJECTED
from tests.scripts import TOOLS, load_script

gallery, people, video = (load_script(f"docs_{name}", TOOLS) for name in ("gallery", "people", "video"))
FIGURES = Path(__file__).parents[1] / "docs" / "figures"


# Another version of matplotlib or of a codec may change pixels a little; another crop, box or decision changes more.
@pytest.mark.parametrize(
    ("script", "names", "most"),
    [(gallery, ["scores.jpg"], 2), (video, ["video_frame.jpg", "video_frame_small.jpg"], 1)],
)
def test_figures_are_what_their_command_draws(script, names, most, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", [f"{script.__name__}.py", "--out", str(tmp_path / names[0])])
    script.main()
    for name in names:
        drawn, kept = (cv2.imread(str(folder / name)).astype(int) for folder in (tmp_path, FIGURES))
        assert drawn.shape == kept.shape
        assert np.abs(drawn - kept).mean() < most


def test_faces_are_accepted_as_long_as_they_can_be_recognized_and_nothing_else_is():
    decisions = {name: row.accepted for name, _, row in gallery.scored(gallery.crops())}
    assert [name for name, accepted in decisions.items() if accepted] == ["original", "JPEG"]
    reasons = {name: row.reasons[0] for name, _, row in gallery.scored(gallery.crops()) if not row.accepted}
    assert reasons == {
        "noise": "noisy",
        "blur": "blurred",
        "overexposed": "over_exposed",
        "covered": "covered",
        "cat": "not_a_face",
        "cup": "not_a_face",
    }


def test_three_tracks_are_good_and_one_is_not():
    pixels = video.figure(640).astype(int)
    assert pixels.shape == (360, 640, 3)
    for color, number in ((ACCEPTED, 3), (REJECTED, 1)):
        mask = (np.abs(pixels - color).sum(axis=2) < 12).astype(np.uint8)
        _, _, stats, _ = cv2.connectedComponentsWithStats(mask)
        assert (stats[1:, cv2.CC_STAT_AREA] > 500).sum() == number


@pytest.mark.parametrize("name", people.FIGURES)
def test_the_figures_of_the_page_of_people_have_the_sizes_that_their_command_gives(name):
    image = cv2.imread(str(FIGURES / name))
    width, height, dark = people.FIGURES[name]
    assert image is not None
    assert image.shape == (height, width, 3)
    assert (image[:8, :8].mean() < 60) == dark


@pytest.mark.slow
def test_the_people_of_the_figures_are_those_who_were_drawn(tmp_path):
    made = people.make_people(tmp_path)
    owners = {p.number: {people.owner(made, row) for row in p.rows.tolist()} for p in made.persons}
    assert all(len(each) == 1 for each in owners.values())
    drawn = {next(iter(each)) for each in owners.values()}
    assert len(drawn) == len(owners)
    assert drawn >= {f"person_{number:04d}" for number in range(12)}
    assert {person.name for person in made.persons} - {""} == {*people.NAMES, ".stranger"}
    assert (made.folder / "index.html").is_file()
