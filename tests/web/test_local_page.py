"""The page of a static site, whose photos go nowhere: what differs from the service's, which tests/serving tries."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

import cv2
import pytest

from facerts.images import encode_png
from tests.browser import accessibility_faults, choose, of_others, saved, settled
from tests.web.conftest import serving

pytest.importorskip("playwright")
from playwright.sync_api import expect

if TYPE_CHECKING:
    pass


def visit(page, served):
    """Open the page until its models are loaded: its policy keeps scripts of strings from waiting in it."""
    page.goto(f"{served.address}/")
    page.locator("#about").wait_for(timeout=60_000)


@pytest.fixture
def opened(page, served, requested):
    """The page with its models; whatever is done on it, it asks its own server alone."""
    visit(page, served)
    yield page
    assert of_others(requested, served.address) == []
    assert len(requested) > 5


@pytest.fixture
def photos(tmp_path, astronaut):
    """One good, one blurred, and one that is no image."""
    blurred = cv2.GaussianBlur(astronaut, (0, 0), 6)
    files = {"good.png": encode_png(astronaut), "blurred.png": encode_png(blurred), "broken.jpg": b"no image"}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    return [tmp_path / name for name in files]


def compare(page, photos):
    choose(page, photos)
    page.get_by_role("button", name="Compare").click()
    page.get_by_text("Not enough quality to say").wait_for()


def test_photos_are_scored_and_compared_as_python_does(opened, photos, scorer):
    compare(opened, photos)
    for width, scheme in ((1200, "light"), (390, "dark")):
        opened.emulate_media(color_scheme=scheme)
        opened.set_viewport_size({"width": width, "height": 900})
        assert accessibility_faults(opened) == []
        assert opened.evaluate("document.documentElement.scrollWidth") <= width
    table = list(csv.DictReader(io.StringIO(saved(opened, "Download CSV"))))
    rows = [row for photo in photos for row in scorer.score(photo)]
    assert list(table[0]) == list(vars(rows[0]))
    for shown, photo, row in zip(table, photos, rows, strict=True):
        said = shown["path"], shown["verdict"], shown["reasons"], shown["error"] != ""
        assert said == (photo.name, row.verdict or "", ";".join(row.reasons), row.error is not None)
        if row.quality is not None:
            assert float(shown["quality"]) == pytest.approx(row.quality, abs=1e-3)
            assert [float(side) for side in shown["box"].split()] == pytest.approx(row.box, abs=1)


def test_three_hundred_photos_are_read_or_cancelled(opened, tmp_path, astronaut):
    photo = encode_png(cv2.resize(astronaut, (160, 160), interpolation=cv2.INTER_AREA))
    files = [tmp_path / f"{number:03}.png" for number in range(300)]
    for file in files:
        file.write_bytes(photo)
    opened.get_by_label("Choose images").set_input_files(files)
    opened.get_by_text("of 300").wait_for()
    # The page stays alive meanwhile.
    assert opened.evaluate("new Promise((done) => setTimeout(() => done(1 + 1), 0))") == 2
    opened.get_by_role("button", name="Cancel").click()
    settled(opened, 300)
    cancelled = opened.get_by_text("not scored: cancelled").count()
    assert 200 < cancelled < 300
    opened.get_by_role("button", name="Clear").click()
    opened.get_by_label("Choose images").set_input_files(files)
    expect(opened.get_by_text("300 images scored.")).to_have_count(1, timeout=300_000)
    settled(opened, 300)
    assert opened.locator(".card tbody tr").count() == 300


def test_without_a_network_it_still_works(page, site, photos):
    with serving(site) as server:
        visit(page, server)
        page.evaluate("navigator.serviceWorker.ready.then(() => null)")
    # The server is gone.
    visit(page, server)
    assert page.evaluate("crossOriginIsolated")
    compare(page, photos[:2])


def test_the_best_shot_of_the_camera_is_kept_and_it_stops(opened):
    opened.get_by_role("button", name="Use the camera").click()
    # The test's camera shows no face.
    opened.get_by_text("No face in view").wait_for()
    opened.get_by_role("button", name="Stop the camera").click()
    assert opened.evaluate("document.querySelector('#video').srcObject") is None
    assert opened.get_by_role("button", name="Stop the camera").count() == 0
