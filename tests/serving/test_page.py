"""The page as a person meets it, in a real browser; of the service, where the models are the tests' own."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

import facerts
from facerts.galleries import Gallery
from facerts.images import encode_png
from facerts.images.align import align
from facerts.scoring import Row, Scorer
from facerts.scoring.sinks import put_csv
from facerts.serving import Settings
from tests.browser import accessibility_faults, choose, of_others, saved, settled, texts
from tests.matching import write_matcher
from tests.serving.conftest import crop, photo, running, variant

if TYPE_CHECKING:
    pass

# A name is text and nothing else.
MEAN = "<img src=x onerror=harmed=1>.png"
OVERFLOW = "document.scrollingElement.scrollWidth - document.documentElement.clientWidth"
BACKGROUND = "getComputedStyle(document.body).backgroundColor"


def visit(page, client, path="/"):
    """Open a page of a service, until it says what the model is or shows the schema."""
    page.goto(str(client.base_url.join(path)))
    (page.get_by_text("About the model") if path == "/" else page.locator("h2").nth(6)).wait_for()


@pytest.fixture
def opened(page, photo_client, requested):
    """The page of the service that finds faces in photos; whatever is done on it, it asks nobody else."""
    visit(page, photo_client)
    yield page
    assert of_others(requested, str(photo_client.base_url)) == []
    assert page.evaluate("typeof harmed") == "undefined"


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Two faces, none, and no image."""
    folder = tmp_path_factory.mktemp("chosen")
    contents = {
        "two.png": encode_png(photo([150, 250])),
        "none.png": encode_png(photo([])),
        MEAN: b"no image",
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return [folder / name for name in contents]


def test_images_show_their_faces_or_why_there_are_none(opened, images, photo_scorer):
    choose(opened, images)
    assert texts(opened, ".card h2") == [image.name for image in images]
    lines = texts(opened, ".card .top")
    assert "two.png 2 faces · 2 accepted · 400 × 60" in lines[0]
    assert "0 faces" in lines[1]
    none, problem = texts(opened, ".card .none, .card .problem")
    assert none == "No face was found in this image."
    assert "not a JPEG" in problem
    columns = ["Percentile", "Decision", "Yaw, pitch, roll", "Quality"]
    assert texts(opened, ".card th")[2:] == ["Verdict", *columns]
    for shown, row in zip(texts(opened, ".card tbody tr"), photo_scorer.score(images[0]), strict=True):
        assert row.reasons
        reasons = ", ".join(row.reasons).replace("_", " ")
        pose = " ".join(f"{round(angle)}°" for angle in row.pose).replace("-", "−")
        expected = f"{row.face + 1} {row.verdict} {int(row.percentile)} ✓ accepted {reasons} {pose}"
        assert shown == f"{expected} {row.quality:.3f}"
    assert "3 images scored, 1 could not be read." in opened.get_by_role("status").all_inner_texts()


def test_boxes_lie_on_the_faces_with_numbers_at_every_width(opened, images):
    choose(opened, images)
    for width in (320, 1400, 800, 390):
        opened.set_viewport_size({"width": width, "height": 900})
        assert opened.evaluate(OVERFLOW) == 0
        if width == 320:  # where the numbers of this low image do not fit
            continue
        numbers = opened.evaluate(
            """[...document.querySelectorAll('.box i')].map((number) => {
              const [one, all] = [number.getBoundingClientRect(), number.closest('.stage').getBoundingClientRect()];
              return [number.innerText, one.width > 5 && one.left >= all.left && one.top >= all.top
                && one.right <= all.right && one.bottom <= all.bottom]; })"""
        )
        assert numbers == [["1", True], ["2", True]]
    boxes = opened.evaluate(
        """[...document.querySelectorAll('.card .box')].map((box) => {
          const [one, all] = [box.getBoundingClientRect(), box.parentNode.querySelector('img').getBoundingClientRect()];
          return [(one.left - all.left) / all.width, one.width / all.width, (one.top - all.top) / all.height,
            one.height / all.height]; })"""
    )
    for number, box in enumerate(boxes):
        assert box == pytest.approx([0.1 * number, 0.1, 0, 40 / 60], abs=0.015)


def test_crops_are_drawn_as_they_are_scored(opened, photo_scorer, tmp_path):
    # Smooth, so that a shift by a pixel is a difference, and the way of interpolating is none.
    y, x = np.mgrid[0:60, 0:400]
    image = np.stack([180 + 60 * np.sin(x / 3), 180 + 60 * np.cos(y / 4), 200 + 0 * x], axis=-1)
    (tmp_path / "waves.png").write_bytes(encode_png(image.astype(np.uint8)))
    choose(opened, [tmp_path / "waves.png"])
    crops = opened.locator("td canvas")
    assert crops.count() == 3
    pixels = "(canvas) => [...canvas.getContext('2d').getImageData(0, 0, 112, 112).data]"
    drawn = np.array(crops.nth(1).evaluate(pixels), dtype=np.float64).reshape(112, 112, 4)
    points = photo_scorer.faces(tmp_path / "waves.png")[1].points
    expected = align(image.astype(np.uint8), points).astype(np.float64)
    inside = (drawn[..., 3] == 255) & (expected.min(axis=2) > 100)
    assert inside.mean() > 0.6

    def apart(other):
        return float(np.abs(drawn[..., :3] - other)[inside].mean())

    assert apart(expected) < 2.0
    for axis in (0, 1):
        assert apart(np.roll(expected, 1, axis)) > 2 * apart(expected)


def test_a_threshold_decides_in_color_and_in_words(opened, images, photo_scorer):
    colors = "[...document.querySelectorAll('.card .box')].map((box) => getComputedStyle(box).borderTopColor)"
    choose(opened, images[:1])
    accept = opened.get_by_label("Accept")
    assert accept.locator("option:checked").inner_text() == "from percentile 5 (default)"
    assert texts(opened, ".decision") == ["✓ accepted"] * 2
    accept.select_option("from another percentile …")
    poorer, better = (row.percentile for row in photo_scorer.score(images[0]))
    opened.get_by_label("Lowest percentile, 0 to 100").fill(f"{(poorer + better) / 2}")
    opened.keyboard.press("Tab")
    opened.locator("tr.no").wait_for()
    assert texts(opened, ".decision") == ["✕ rejected", "✓ accepted"]
    assert "2 faces · 1 accepted" in texts(opened, ".card .top")[0]
    assert len({*opened.evaluate(colors)}) == 2


def test_options_and_the_order_can_be_chosen(opened, images, tmp_path):
    for name, level in (("dark", 140), ("light", 240)):
        (tmp_path / f"{name}.png").write_bytes(encode_png(photo([level, 130])))
    choose(opened, [tmp_path / "dark.png", images[1], tmp_path / "light.png"])
    order = opened.get_by_label("Order")
    for choice, names in (
        ("best first", "light dark none"),
        ("worst first", "dark light none"),
        ("as added", "dark none light"),
    ):
        order.select_option(choice)
        assert texts(opened, ".card h2") == [f"{name}.png" for name in names.split()]
    opened.get_by_label("Largest face only").check()
    opened.locator(".card .box").nth(2).wait_for(state="detached")
    opened.get_by_label("Images are aligned face crops").check()
    opened.locator(".card .problem", has_text="not an aligned crop").first.wait_for()


def test_everything_can_be_reached_and_done_with_the_keyboard(opened, images):
    choose(opened, images[:2])
    opened.evaluate("document.activeElement.blur()")
    focused = []
    while len(focused) < 40 and focused[-1:] != ["Show face 2 in the image"]:
        opened.keyboard.press("Tab")
        # Its name, for people: what it is called, the text of its label, or its own.
        name = "({ariaLabel, labels, innerText}) => ariaLabel || labels?.[0]?.innerText || innerText"
        focused.append(opened.evaluate(f"({name})(document.activeElement)").partition("\n")[0].strip())
    assert [name for name in focused if name.startswith("Choose")] == ["Choose images", "Choose a folder"]
    buttons = ["Download CSV", "Save as JSON", "Clear", "Remove two.png", "Faces of two.png"]
    assert [name for name in focused if name in buttons] == buttons
    assert any(name.startswith("Order") for name in focused)
    picked = "(boxes) => boxes.map((box) => box.classList.contains('picked'))"
    assert opened.locator(".card .box").evaluate_all(picked) == [False, True]
    opened.get_by_role("button", name="Clear").focus()
    assert opened.locator(".box.picked").count() == 0
    opened.keyboard.press("Enter")
    settled(opened, 0)


def test_assistive_technology_is_told_everything(opened, images):
    choose(opened, images)
    opened.get_by_text("About the model").click()
    for scheme, background in (("light", "rgb(255, 255, 255)"), ("dark", "rgb(21, 24, 28)")):
        opened.emulate_media(color_scheme=scheme)
        assert opened.evaluate(BACKGROUND) == background
        assert accessibility_faults(opened) == []
    assert opened.get_by_role("img", name="two.png, 2 faces").count() == 1
    assert opened.get_by_role("heading", name="two.png").count() == 1


@pytest.mark.parametrize("kind", ["drop", "paste"])
def test_images_can_be_dropped_and_pasted(opened, images, kind):
    opened.evaluate(
        """([kind, bytes]) => {
          const moved = new DataTransfer();
          moved.items.add(new File([new Uint8Array(bytes)], 'given.png', {type: 'image/png'}));
          const options = {bubbles: true, cancelable: true, dataTransfer: moved, clipboardData: moved};
          const Kind = kind === 'drop' ? DragEvent : ClipboardEvent;
          if (kind === 'drop') document.dispatchEvent(new DragEvent('dragenter', {bubbles: true}));
          document.dispatchEvent(new Kind(kind, options)); }""",
        [kind, list(images[0].read_bytes())],
    )
    settled(opened, 1)
    assert opened.locator(".card .box").count() == 2
    assert opened.locator("#drop.over").count() == 0


# As the browser gives a folder with an image, a folder in it, and what is neither; a hundred entries at a time.
DROPPED_FOLDER = """(bytes) => {
  const file = (path) => ({isDirectory: false, fullPath: path,
    file: (done) => done(new File([new Uint8Array(bytes)], path.split('/').pop(), {type: 'image/png'}))});
  const folder = (path, parts) => ({isDirectory: true, fullPath: path, createReader: () => {
    const left = [...parts]; return {readEntries: (done) => done(left.splice(0, 1))}; }});
  const top = folder('/trip', [file('/trip/b.png'), file('/trip/notes.txt'),
    folder('/trip/a', [file('/trip/a/1.png')])]);
  const event = new Event('drop', {cancelable: true});
  event.dataTransfer = {files: [], items: [{webkitGetAsEntry: () => top}]};
  document.dispatchEvent(event); }"""


def test_a_folder_is_chosen_or_dropped_with_paths_as_names(opened, images):
    opened.evaluate(DROPPED_FOLDER, list(images[0].read_bytes()))
    settled(opened, 2)
    assert texts(opened, ".card h2") == ["trip/a/1.png", "trip/b.png"]
    assert "1 other file left out." in opened.get_by_role("status").all_inner_texts()
    folder = images[0].parent
    opened.get_by_label("Choose a folder").set_input_files(folder)
    settled(opened, 5)
    assert texts(opened, ".card h2")[2:] == [f"{folder.name}/{name}" for name in (MEAN, "none.png", "two.png")]


def test_what_was_found_can_be_saved(opened, images, photo_scorer):
    choose(opened, images)
    kept = json.loads(saved(opened, "Save as JSON"))
    assert kept["quality"]["name"] == kept["recognizer"]["name"] == "bright"
    assert [image["name"] for image in kept["images"]] == [image.name for image in images]
    assert [len(image["faces"]) for image in kept["images"]] == [2, 0, 0]
    assert "not a JPEG" in kept["images"][2]["error"]
    expected = io.StringIO()
    put = put_csv(expected, Row)
    for path in images:
        for row in photo_scorer.score(path):
            # The service reads fewer formats.
            error = row.error and row.error.replace(str(path), path.name)
            error = error and error.replace("WebP, BMP, GIF, TIFF, HEIC or AVIF", "WebP or BMP")
            put(replace(row, path=path.name, error=error))
    assert saved(opened, "Download CSV") == expected.getvalue()


def test_numbers_are_written_as_python_writes_them(opened, images, photo_scorer):
    expected, faces = io.StringIO(), []
    put = put_csv(expected, Row)
    for face, value in enumerate((1e-5, 1e-4, 1.0, 100.0, 1e16, 123456.5, 0.1000005, 1 / 3, -0.5, -0.0)):
        values = dict.fromkeys(("det_score", "percentile", "quality", "uncertainty"), value)
        values |= {
            "box": [value] * 4,
            "pose": [value] * 3,
            "rotation": 90,
            "accepted": True,
            "verdict": "good",
        }
        points = [[value, float(row)] for row in range(5)]
        flat = [number for point in points for number in point]
        sha256 = photo_scorer.quality.sha256
        put(Row("two.png", face, points=flat, **values, reasons=("blurred",), model_sha256=sha256))
        faces.append({**values, "points": points, "reasons": ["blurred"]})
    image = {"name": "two.png", "width": 9, "height": 9, "found": len(faces), "error": None, "faces": faces}
    opened.route("**/v1/score*", lambda route: route.fulfill(json={"images": [image]}))
    choose(opened, images[:1])
    assert saved(opened, "Download CSV") == expected.getvalue()


def test_two_images_can_be_compared(page, scorer, tmp_path):
    recognizer = facerts.Recognizer(write_matcher(tmp_path / "matcher.onnx"))
    both = Scorer(scorer.quality, recognizer)
    files = [tmp_path / f"{number}.png" for number in range(3)]
    for file, level in zip(files, (200, 220, 20), strict=True):
        file.write_bytes(crop(level))
    with running(both, Settings()) as client:
        visit(page, client)
        choose(page, files[:1])
        section = page.get_by_role("region", name="Same person?")
        assert not section.is_visible()
        choose(page, files[1:])
        chosen = [page.get_by_label(label).locator("option:checked") for label in ("Accept", "False match rate")]
        assert [option.inner_text() for option in chosen] == ["from percentile 5 (default)", "1 in 1,000"]
        for second, decision in ((1, "✓ Same person"), (2, "Not enough quality to say")):
            section.get_by_label("Second").select_option(f"{second}.png")
            assert section.get_by_role("status").inner_text() == ""
            section.get_by_role("button", name="Compare").click()
            section.get_by_text(decision).wait_for()
            similarity = f"{both.verify(files[0], files[second]).similarity:.3f}".replace("-", "−")
            assert f"Similarity {similarity}." in section.get_by_role("status").inner_text()
            assert section.get_by_role("img").count() == 2
        page.get_by_text("About the model").click()
        for name in ("bright", "matcher"):
            assert page.get_by_role("definition").filter(has_text=name).count() > 0
        assert accessibility_faults(page) == []


def test_a_gallery_names_the_person_of_each_face(page, searcher, gallery_file, tmp_path, requested):
    dark = variant(0, 0) // 20
    faces = {"anna": variant(0, 0), "frida": variant(5, 0), "stranger": variant(8, 0), "dark": dark}
    files = [tmp_path / f"{name}.png" for name in faces]
    for file, image in zip(files, faces.values(), strict=True):
        file.write_bytes(encode_png(image))
    with running(searcher, Settings(gallery=gallery_file, fpir=0.2)) as client:
        visit(page, client)
        choose(page, files)
        anna, frida, *_ = Gallery(gallery_file).search(searcher, [*map(str, files)], fpir=0.2)
        shown = [f"Anna, {anna.cosine:.2f}", f"<b>Frida, {frida.cosine:.2f}", "unknown", "too poor to say"]
        assert texts(page, ".who") == shown
        chosen = page.get_by_label("Accept").locator("option:checked").inner_text()
        assert chosen == "from percentile 1 (default of searches)"
        assert "6 people, 18 images" in page.get_by_role("group").text_content()
        asked = [url for url in requested if "/v1/" in url and "model" not in url]
        assert len(asked) == 4
        assert all("/v1/search" in url for url in asked)


def test_a_service_with_a_token_asks_for_it(page, photo_scorer, images):
    with running(photo_scorer, Settings(token="sesame", keep=0.95)) as client:
        page.goto(str(client.base_url))
        token = page.get_by_label("This service requires a token.")
        token.wait_for()
        assert page.evaluate("document.activeElement.id") == "token"
        token.fill("wrong")
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("alert").filter(has_text="Wrong token.").wait_for()
        assert accessibility_faults(page) == []
        token.fill("sesame")
        page.get_by_role("button", name="Sign in").click()
        page.get_by_text("About the model").wait_for()
        assert not token.is_visible()
        choose(page, images[:1])
        assert page.locator("tr.yes").count() == 2, "as the service decides"
        kept = page.evaluate("JSON.stringify([localStorage, sessionStorage, document.cookie])")
        assert kept == '[{},{},""]'


def test_the_reference_shows_the_whole_schema(page, client):
    visit(page, client, "/docs")
    text = page.locator("body").inner_text()
    schema = client.get("/openapi.json").json()
    for path in schema["paths"]:
        assert path in text
    examples = page.locator("pre").all_inner_texts()
    for path, lines in (("score", 3), ("search", 3), ("verify", 2)):
        (example,) = [example for example in examples if f"/v1/{path}" in example]
        assert (example.count("curl"), example.count("a.jpg")) == (lines, lines)
    for name, model in schema["components"]["schemas"].items():
        assert page.locator(f"[id={name}]").count() == 1
        assert all(field in text for field in model.get("properties", {}))
    assert page.evaluate(
        "[...document.querySelectorAll('a[href^=\"#\"]')].every((a) => document.querySelector(a.hash))"
    )
    assert accessibility_faults(page) == []
    page.set_viewport_size({"width": 320, "height": 640})
    assert page.evaluate(OVERFLOW) == 0
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(BACKGROUND) == "rgb(21, 24, 28)"


def test_the_policy_lets_no_script_of_others_run(opened, complaints):
    opened.evaluate(
        """document.body.append(Object.assign(document.createElement('script'), {textContent: 'harmed = 1'}));
        document.body.insertAdjacentHTML('beforeend', '<b onclick="harmed = 1" id="b"></b>'); b.click()"""
    )
    assert any("Content Security Policy" in complaint for complaint in complaints)
    complaints.clear()
