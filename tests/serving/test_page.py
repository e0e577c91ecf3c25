"""The page as a person meets it, in a real browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

import facerts
from facerts.galleries import Gallery
from facerts.images import encode_png
from facerts.images.align import align
from facerts.scoring import Scorer
from facerts.serving import Settings
from tests.matching import write_matcher
from tests.serving.browser import CHROMIUM, Tab, browser
from tests.serving.conftest import crop, photo, running, variant

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed (Debian: apt install chromium)"),
]

CARDS = "document.querySelectorAll('.card:not(.working)').length"
ROWS = "[...document.querySelectorAll('.card tbody tr')].map((row) => row.innerText.split(/\\s+/).join(' '))"


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with browser(tmp_path_factory.mktemp("chromium")) as tab:
        yield tab


@pytest.fixture
def page(tab: Tab, photo_client: httpx.Client) -> Iterator[Tab]:
    """The page, opened anew, which must not complain of anything."""
    tab.errors.clear()
    tab.scheme("light")
    tab.size(1200)
    tab.open(str(photo_client.base_url))
    tab.wait("model !== null")
    yield tab
    assert tab.errors == []


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two faces, none, and no image."""
    folder = tmp_path_factory.mktemp("chosen")
    (folder / "two.png").write_bytes(encode_png(photo([150, 250])))
    (folder / "none.png").write_bytes(encode_png(photo([])))
    (folder / "broken.png").write_bytes(b"no image")
    return [folder / name for name in ("two.png", "none.png", "broken.png")]


def choose(tab: Tab, files: list[Path]) -> None:
    tab.choose("#files", files)
    tab.wait(f"{CARDS} === {len(files)}")


def accept(tab: Tab, value: str) -> None:
    """Choose how faces are accepted."""
    tab.run(f"el('accept').value = {value!r}; el('accept').dispatchEvent(new Event('change'))")
    tab.wait("document.querySelectorAll('.card.working').length === 0")


def test_images_show_their_faces_or_why_there_are_none(
    page: Tab, images: list[Path], photo_scorer: Scorer
) -> None:
    choose(page, images)
    lines = page.run("[...document.querySelectorAll('.card .top')].map((top) => top.innerText)")
    assert "two.png" in lines[0]
    assert "2 faces · 2 accepted · 400 × 60" in lines[0]
    assert "0 faces" in lines[1]
    texts = page.run("[...document.querySelectorAll('.card .none, .card .problem')].map((p) => p.innerText)")
    assert texts[0] == "No face was found in this image."
    assert "not a JPEG" in texts[1]
    columns = "[...document.querySelectorAll('.card th')].slice(2).map((column) => column.innerText)"
    assert page.run(columns) == ["Percentile", "Decision", "Quality", "Detector"]
    for shown, row in zip(page.run(ROWS), photo_scorer.score(images[0]), strict=True):
        assert row.quality is not None
        reasons = ", ".join(row.reasons).replace("_", " ")
        assert reasons
        assert shown == f"{row.face + 1} {int(row.percentile)} ✓ accepted {reasons} {row.quality:.3f} 0.90"


def test_boxes_lie_on_the_faces_with_numbers_at_every_width(page: Tab, images: list[Path]) -> None:
    choose(page, images[:1])
    for width in (1400, 800, 390):
        page.size(width)
        numbers = page.run(
            """[...document.querySelectorAll('.box i')].map((number) => {
              const [one, all] = [number.getBoundingClientRect(), number.closest('.stage').getBoundingClientRect()];
              return [number.innerText, one.width > 5 && one.left >= all.left && one.top >= all.top
                && one.right <= all.right && one.bottom <= all.bottom]; })"""
        )
        assert numbers == [["1", True], ["2", True]]
    boxes: Any = page.run(
        """[...document.querySelectorAll('.box')].map((box) => {
          const [one, all] = [box.getBoundingClientRect(), box.parentNode.querySelector('img').getBoundingClientRect()];
          return [(one.left - all.left) / all.width, one.width / all.width, (one.top - all.top) / all.height,
            one.height / all.height]; })"""
    )
    for number, box in enumerate(boxes):
        assert box == pytest.approx([0.1 * number, 0.1, 0, 40 / 60], abs=0.015)


def test_crops_are_drawn_as_they_are_scored(page: Tab, tmp_path: Path) -> None:
    # Smooth, so that a shift by a pixel is a difference, and the way of interpolating is none.
    y, x = np.mgrid[0:60, 0:400]
    image = np.stack([180 + 60 * np.sin(x / 3), 180 + 60 * np.cos(y / 4), 200 + 0 * x], axis=-1).astype(
        np.uint8
    )
    (tmp_path / "waves.png").write_bytes(encode_png(image))
    choose(page, [tmp_path / "waves.png"])
    assert page.run("document.querySelectorAll('canvas').length") == 3
    points = np.array(page.run("cards[0].answer.faces[1].points"))
    drawn = page.run(
        """[...document.querySelectorAll('canvas')[1].getContext('2d').getImageData(0, 0, 112, 112).data]"""
    )
    drawn = np.array(drawn, dtype=np.float64).reshape(112, 112, 4)
    expected = align(image, points).astype(np.float64)
    inside = (drawn[..., 3] == 255) & (expected.min(axis=2) > 100)
    assert inside.mean() > 0.6

    def apart(other: NDArray[np.float64]) -> float:
        return float(np.abs(drawn[..., :3] - other)[inside].mean())

    assert apart(expected) < 2.0
    for axis in (0, 1):
        assert apart(np.roll(expected, 1, axis)) > 2 * apart(expected)


def test_a_threshold_decides_in_color_and_in_words(page: Tab, images: list[Path]) -> None:
    decisions = "[...document.querySelectorAll('.decision')].map((cell) => cell.innerText)"
    colors = "[...document.querySelectorAll('.box')].map((box) => getComputedStyle(box).borderTopColor)"
    choose(page, images[:1])
    assert page.run("el('accept').selectedOptions[0].innerText") == "from percentile 5 (default)"
    assert page.run(decisions) == ["✓ accepted"] * 2
    accept(page, "min")
    poorer, better = page.run("cards[0].answer.faces.map((face) => face.percentile)")
    between = (poorer + better) / 2
    page.run(f"el('min').value = '{between}'; el('min').dispatchEvent(new Event('change'))")
    page.wait("document.querySelectorAll('tr.no').length === 1")
    assert page.run(decisions) == ["✕ rejected", "✓ accepted"]
    assert page.run("[...document.querySelectorAll('.box')].map((box) => box.classList.contains('no'))") == [
        True,
        False,
    ]
    assert len({*page.run(colors)}) == 2
    assert "2 faces · 1 accepted" in page.run("document.querySelector('.card .top').innerText")


def test_two_images_can_be_compared(tab: Tab, tmp_path: Path) -> None:
    scorer = facerts.load(write_matcher(tmp_path / "matcher.onnx"), detector="none", threads=1)
    for number, level in enumerate((200, 220, 20)):
        (tmp_path / f"{number}.png").write_bytes(crop(level))
    files = [tmp_path / f"{number}.png" for number in range(3)]
    with running(scorer, Settings()) as client:
        tab.open(str(client.base_url))
        tab.wait("model !== null")
        choose(tab, files[:1])
        assert tab.run("el('compare').hidden") is True
        tab.choose("#files", files[1:])
        tab.wait(f"{CARDS} === 3")
        assert tab.run("el('fmr').selectedOptions[0].innerText") == "1 in 1,000"
        for second, decision in ((1, "✓ Same person"), (2, "Not enough quality to say")):
            expected = scorer.verify(files[0], files[second])
            tab.run(f"el('second').value = {second}; el('second').dispatchEvent(new Event('change'))")
            assert tab.run("el('verdict').innerText") == ""
            tab.run("document.querySelector('#compare form').requestSubmit()")
            tab.wait("document.querySelector('#verdict .decision') !== null")
            assert tab.run("document.querySelector('#verdict .decision').innerText") == decision
            similarity = f"{expected.similarity:.3f}".replace("-", "−")
            assert f"Similarity {similarity}." in tab.run("el('verdict').innerText")


def test_a_gallery_names_the_person_of_each_face(
    tab: Tab, searcher: Scorer, gallery_file: Path, tmp_path: Path
) -> None:
    images = {
        "anna": variant(0, 0),
        "frida": variant(5, 0),
        "stranger": variant(8, 0),
        "dark": variant(0, 0) // 20,
    }
    for name, image in images.items():
        (tmp_path / f"{name}.png").write_bytes(encode_png(image))
    files = [tmp_path / f"{name}.png" for name in images]
    with running(searcher, Settings(gallery=gallery_file, fpir=0.2)) as client:
        tab.errors.clear()
        tab.open(str(client.base_url))
        tab.wait("model !== null")
        choose(tab, files)
        # The name of a person is text and nothing else.
        matches = Gallery(gallery_file).search(searcher, [*map(str, files)], fpir=0.2)
        assert [match.person for match in matches[:2]] == ["Anna", "<b>Frida"]
        assert tab.run("[...document.querySelectorAll('.who')].map((cell) => cell.innerText)") == [
            f"Anna, {matches[0].cosine:.2f}",
            f"<b>Frida, {matches[1].cosine:.2f}",
            "unknown",
            "too poor to say",
        ]
        assert (
            tab.run("el('accept').selectedOptions[0].innerText") == "from percentile 1 (default of searches)"
        )
        assert "6 people, 18 images" in tab.run("el('model-facts').textContent")
        asked = tab.run("performance.getEntriesByType('resource').map((entry) => entry.name)")
        posted = [url for url in asked if "/v1/" in url and "model" not in url]
        assert len(posted) == 4
        assert all("/v1/search" in url for url in posted)
        assert tab.errors == []


def test_options_are_asked_of_the_service(page: Tab, images: list[Path]) -> None:
    choose(page, images[:1])
    page.run("el('largest').click()")
    page.wait("document.querySelectorAll('.box').length === 1")
    page.run("el('aligned').click()")
    page.wait("document.querySelector('.card .problem') !== null")
    assert "not an aligned crop" in page.run("document.querySelector('.card .problem').innerText")


def test_everything_can_be_reached_and_done_with_the_keyboard(page: Tab, images: list[Path]) -> None:
    choose(page, images[:1])
    page.run("document.activeElement.blur()")
    focused = []
    for _ in range(30):
        page.press("Tab", 9)
        # Its name, for people: the text of its label, its own, or what it is called.
        name = page.run(
            "(({id, labels, ariaLabel, innerText}) => id || ariaLabel || innerText || labels[0].innerText)"
            "(document.activeElement)"
        )
        focused.append(name)
        if name == "Show face 2 in the image":
            break
    assert {"files", "accept", "largest", "aligned", "save", "clear"} <= set(focused)
    assert "Faces of two.png" in focused, "the table can be scrolled"
    picked = "[...document.querySelectorAll('.box')].map((box) => box.classList.contains('picked'))"
    assert page.run(picked) == [False, True]
    page.run("el('clear').focus()")
    assert page.run(picked) == [False, False]
    page.press("Enter", 13)
    page.wait("document.querySelectorAll('.card').length === 0")


def test_assistive_technology_is_told_the_name_of_everything(page: Tab, images: list[Path]) -> None:
    choose(page, images)
    named = page.named()
    roles = {"button", "image", "checkbox", "combobox", "link", "region", "table", "article"}
    assert [role for role, name in named if role in roles and not name] == []
    assert ("image", "two.png, 2 faces") in named
    assert ("heading", "two.png") in named
    assert ("status", "") in named or any(role == "status" for role, _ in named)
    assert page.run("el('status').innerText").startswith(("two.png: ", "none.png: ", "broken.png: "))


def test_names_of_files_are_text_and_nothing_else(page: Tab) -> None:
    page.run("""add([new File(['x'], '<img src=x onerror="window.harmed = 1">.png', {type: 'image/png'})])""")
    page.wait(f"{CARDS} === 1")
    assert "<img src=x" in page.run("document.querySelector('.card h2').innerText")
    assert page.run("window.harmed") is None


def test_images_can_be_dropped(page: Tab, images: list[Path]) -> None:
    data = list(images[0].read_bytes())
    page.run(
        f"""const moved = new DataTransfer();
        moved.items.add(new File([new Uint8Array({data})], 'dropped.png', {{type: 'image/png'}}));
        document.dispatchEvent(new DragEvent('dragenter', {{bubbles: true}}));
        document.dispatchEvent(new DragEvent('drop', {{bubbles: true, cancelable: true, dataTransfer: moved}}))"""
    )
    page.wait("document.querySelectorAll('.box').length === 2")
    assert page.run("el('drop').classList.contains('over')") is False


def test_what_was_found_can_be_saved(page: Tab, images: list[Path]) -> None:
    choose(page, images)
    saved = page.run(
        """(async () => { let kept; const old = URL.createObjectURL;
        URL.createObjectURL = (blob) => { kept = blob; return 'blob:'; };
        HTMLAnchorElement.prototype.click = () => {};
        el('save').click(); URL.createObjectURL = old; return kept.text(); })()"""
    )
    saved_json = json.loads(saved)
    assert saved_json["model"] == "bright"
    assert [len(image.get("faces", [])) for image in saved_json["images"]] == [2, 0, 0]
    assert "not a JPEG" in saved_json["images"][2]["error"]


@pytest.mark.parametrize("path", ["", "docs"])
def test_it_fits_narrow_screens_and_follows_the_wish_for_dark(
    page: Tab, photo_client: httpx.Client, images: list[Path], path: str
) -> None:
    if path:
        page.open(str(photo_client.base_url.join("/docs")))
        page.wait("document.querySelectorAll('h2').length > 5")
    else:
        choose(page, images)
    page.size(320, 640, mobile=True)
    overflow = "document.scrollingElement.scrollWidth - document.documentElement.clientWidth"
    assert page.run(overflow) == 0
    background = "getComputedStyle(document.body).backgroundColor"
    assert page.run(background) == "rgb(255, 255, 255)"
    page.scheme("dark")
    assert page.run(background) == "rgb(21, 24, 28)"


def test_the_policy_lets_no_script_of_others_run(page: Tab) -> None:
    page.run(
        "document.body.append(Object.assign(document.createElement('script'), {textContent: 'harmed = 1'}))"
    )
    page.run(
        "document.body.insertAdjacentHTML('beforeend', '<b onclick=\"harmed = 1\" id=\"b\"></b>'); b.click()"
    )
    assert page.run("typeof harmed") == "undefined"
    assert any("Content Security Policy" in error for error in page.errors)
    page.errors.clear()


def test_a_service_with_a_token_asks_for_it(tab: Tab, photo_scorer: Scorer, images: list[Path]) -> None:
    with running(photo_scorer, Settings(token="sesame", keep=0.95)) as client:
        tab.open(str(client.base_url))
        tab.wait("!el('key').hidden")
        assert tab.run("document.activeElement.id") == "token"
        for given, saved_json in (("wrong", "Wrong token."), ("sesame", "")):
            tab.run(f"el('token').value = {given!r}; el('key').requestSubmit()")
            tab.wait(
                f"el('key-problem').innerText === {saved_json!r} && (model !== null) === {str(not saved_json).lower()}"
            )
        assert tab.run("el('key').hidden") is True
        choose(tab, images[:1])
        assert tab.run("document.querySelectorAll('tr.yes').length") == 2, "as the service decides"
        assert tab.run("JSON.stringify([localStorage, sessionStorage, document.cookie])") == '[{},{},""]'


def test_the_reference_shows_the_whole_schema(tab: Tab, client: httpx.Client) -> None:
    tab.errors.clear()
    tab.open(str(client.base_url.join("/docs")))
    tab.wait("document.querySelectorAll('h2').length > 5")
    text = tab.run("document.body.innerText")
    schema = client.get("/openapi.json").json()
    for path in schema["paths"]:
        assert path in text
    examples = tab.run("[...document.querySelectorAll('pre')].map((pre) => pre.innerText)")
    for path, lines in (("score", 3), ("search", 3), ("verify", 2)):
        (example,) = [example for example in examples if f"/v1/{path}" in example]
        assert (example.count("curl"), example.count("a.jpg")) == (lines, lines)
    for name, model in schema["components"]["schemas"].items():
        assert tab.run(f"document.getElementById({name!r}) !== null")
        assert all(field in text for field in model.get("properties", {}))
    assert tab.run(
        "[...document.querySelectorAll('a[href^=\"#\"]')].every((a) => document.querySelector(a.hash))"
    )
    assert tab.errors == []
