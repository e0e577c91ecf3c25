"""The browser module says of photos what Python says, whatever the file."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
import PIL.Image
import pytest

import facerts
from facerts.datasets.synthetic import draw_face
from facerts.images import encode_png
from facerts.images.align import align
from facerts.images.changes import apply_change
from facerts.web import write_site
from tests.foreign import write_description, write_embedder
from tests.matching import blocks, matching, write_matcher
from tests.scoring.test_reasons import ASTRONAUT
from tests.web.conftest import READ, differences, open_module, serving

if TYPE_CHECKING:
    pass

Read = Callable[..., dict[str, Any]]
# What photos of an astronaut become: blurred, dark, turned, small, large, cut off, covered, two.
KINDS = "blur", "dark", "bright", "noise", "jpeg", "low_resolution", "gray", "mask", "rotation", "perspective"
SIZES = (60, 90), (250, 250), (333, 500), (700, 640), (1300, 1100), (2100, 900)


def variants(photo):
    face = np.ascontiguousarray(photo[:300, 70:370])
    crop = align(photo, ASTRONAUT)
    for kind in KINDS:
        for severity in (0.4, 1.0):
            yield apply_change(face, kind, severity, 1)
            yield apply_change(crop, kind, severity, 1)
    for width, height in SIZES:
        yield cv2.resize(photo, (width, height), interpolation=cv2.INTER_AREA)
    for turns in range(4):
        yield np.ascontiguousarray(np.rot90(photo, turns))
    yield np.ascontiguousarray(photo[:, 215:])
    yield np.hstack([face, face[:, ::-1]])
    yield np.full((200, 300, 3), 90, np.uint8)
    yield draw_face(0, 0)
    yield cv2.resize(draw_face(1, 0), (64, 64))
    # Three faces, of which one is tiny, in a photo that is searched in tiles.
    large = np.full((2400, 3600, 3), 120, np.uint8)
    large[:300, :300] = face
    large[900:2300, 1500:2900] = cv2.resize(face, (1400, 1400))
    large[2200:2280, 100:180] = cv2.resize(face, (80, 80), interpolation=cv2.INTER_AREA)
    yield large


def encoded(image, kind, orientation=0, **options):
    exif = PIL.Image.Exif()
    if orientation:
        exif[0x0112] = orientation
    file = io.BytesIO()
    PIL.Image.fromarray(image).save(file, kind, exif=exif, **options)
    return file.getvalue()


def test_photos_have_the_numbers_of_python(reading, scorer, astronaut):
    verdicts, reasons = set(), set()
    for number, image in enumerate(variants(astronaut)):
        answer = reading(encode_png(image), f"{number}.png")
        assert (answer["height"], answer["width"]) == image.shape[:2]
        assert differences(scorer.score(image), answer) == [], number
        verdicts |= {face["verdict"] for face in answer["faces"]}
        reasons |= {reason for face in answer["faces"] for reason in face["reasons"]}
    assert verdicts == {"good", "usable", "poor", "not a face"}
    assert reasons >= {"blurred", "too_small", "under_exposed", "noisy", "cut_off", "covered"}


def test_two_hundred_photos_of_people_have_the_numbers_of_python(reading, scorer, facerts_data):
    photos = sorted((facerts_data / "photos" / "lfw").iterdir())[:200]
    assert len(photos) == 200
    wrong = {
        photo.name: found
        for photo in photos
        if (found := differences(scorer.score(photo), reading(photo.read_bytes(), photo.name)))
    }
    assert wrong == {}


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_an_image_is_turned_as_its_exif_says(reading, scorer, astronaut, kind):
    boxes = set()
    for orientation in range(1, 9):
        content = encoded(astronaut[:300], kind, orientation)
        answer = reading(content)
        assert (answer["width"] > answer["height"]) == (orientation < 5)
        assert differences(scorer.score(content), answer) == [], orientation
        boxes.add(tuple(answer["faces"][0]["box"]))
    assert len(boxes) > 4


@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_colors_under_transparency_are_those_that_are_stored(reading, scorer, astronaut, kind):
    alpha = np.random.default_rng(0).integers(0, 256, astronaut.shape[:2], dtype=np.uint8)
    alpha[:250, :300] = 0
    content = encoded(
        np.dstack([astronaut, alpha]), kind, **({"lossless": True, "exact": True} if kind == "WEBP" else {})
    )
    answer = reading(content)
    assert len(answer["faces"]) == 1
    assert differences(scorer.score(content), answer) == []


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("JPEG", {"progressive": True}),
        ("JPEG", {"subsampling": 0, "quality": 30}),
        ("WEBP", {"quality": 60}),
        ("BMP", {}),
    ],
)
def test_formats_are_decoded_to_the_same_pixels(reading, scorer, astronaut, kind, options):
    content = encoded(astronaut, kind, **options)
    answer, (row,) = reading(content), scorer.score(content)
    assert answer["faces"][0]["quality"] == pytest.approx(row.quality, abs=2e-4)
    assert differences([row], answer) == []
    if options.get("progressive"):  # also of twelve megapixels
        content = encoded(cv2.resize(astronaut, (4000, 3000), interpolation=cv2.INTER_CUBIC), kind)
        assert differences(scorer.score(content), reading(content)) == []


def test_a_file_that_cannot_be_read_says_why(reading, astronaut):
    png = bytearray(encode_png(astronaut))
    png[16:24] = (60_000).to_bytes(4, "big") * 2
    files = {
        "is empty": b"",
        "not a JPEG, PNG": b"no image",
        "JPEG is truncated": encoded(astronaut, "JPEG")[:20_000],
        "PNG is truncated": encode_png(astronaut)[:20_000],
        "WebP is truncated": encoded(astronaut, "WEBP")[:9_000],
        "header is cut off": b"\xff\xd8\xff\xe0",
        "3600000000": bytes(png),
        "HEIC is not read by this browser": b"\0\0\0\x18ftypheic" + bytes(50),
        "cannot be decoded": b"BM" + bytes(60),
    }
    for words, content in files.items():
        answer = reading(content, "a.jpg")
        assert answer["faces"] == []
        assert answer["name"] == "a.jpg"
        assert words.replace("3600000000", "60000 x 60000 pixels are more than") in answer["error"]


def test_options_are_those_of_python(reading, scorer, astronaut):
    image = np.hstack([astronaut, cv2.GaussianBlur(astronaut, (0, 0), 5)])
    content = encode_png(image)
    for options in ({"keep": 0.8}, {"keep": 0.93}, {"keep": "none"}, {"min_quality": 0.7}, {"largest": True}):
        assert differences(scorer.score(content, **options), reading(content, **options)) == [], options
    crops = facerts.load(detector="none", threads=1)
    square = encode_png(astronaut[:300, 80:380])
    assert differences(crops.score(square), reading(square, aligned=True)) == []
    assert "must be square" in reading(content, aligned=True)["error"]
    with pytest.raises(Exception, match="give only one"):
        reading(content, keep=0.9, min_quality=0.5)
    # A frame of a video is searched once, and not turned.
    turned = encode_png(np.ascontiguousarray(np.rot90(astronaut)))
    assert [face["rotation"] for face in reading(turned)["faces"]] == [90]
    assert [face["rotation"] for face in reading(turned, frame=True)["faces"]] != [90]


@pytest.mark.parametrize("fmr", [None, 0.01])
def test_two_photos_are_compared_as_in_python(page, served, scorer, astronaut, fmr):
    open_module(page, served)
    blurred = [cv2.GaussianBlur(astronaut, (0, 0), sigma) for sigma in (5, 12)]
    said = []
    for second in (astronaut, astronaut[:, ::-1], *blurred):
        served.photos.update(first=encode_png(astronaut), second=encode_png(second))
        found = page.evaluate(
            """async (fmr) => {
              const read = async (name) => (await fetch(`photos/${name}`)).blob();
              return window.facerts.verify(await read("first"), await read("second"), fmr === null ? {} : { fmr });
            }""",
            fmr,
        )
        expected = scorer.verify(astronaut, np.ascontiguousarray(second), fmr=fmr)
        assert found["similarity"] == pytest.approx(expected.similarity, abs=1e-3)
        for name in ("decision", "fmr", "threshold", "note"):
            assert found[name] == pytest.approx(getattr(expected, name)), name
        # Arrays have other names than files.
        reasons = [(reason or "").partition(": ")[2] for reason in (found["reason"], expected.reason)]
        assert reasons[0] == reasons[1]
        said.append(reasons[0])
    assert said[:2] == ["", ""]
    assert "is below the minimum of 0.513" in said[2]
    assert said[3] == "not a face"


@pytest.mark.parametrize("foreign", ["NHWC, BGR, four at a time", "listed"])
def test_a_recognizer_is_run_as_its_description_says(page, tmp_path, foreign):
    path = tmp_path / "other.onnx"
    if foreign == "listed":
        write_matcher(path)
    else:
        write_embedder(path, layout="NHWC", batch=4)
        spec = {"layout": "NHWC", "color": "BGR", "batch": 4, "mean": [120, 110, 100], "std": [60, 128, 1]}
        write_description(
            path, input=spec | {"name": "face"}, outputs={"embedding": "vector"}, normalize_embedding=True
        )
    write_site(tmp_path / "site", path)
    crop, recognizer = blocks(3), facerts.Recognizer(path)
    with serving(tmp_path / "site") as server:
        server.photos["crop"] = encode_png(crop)
        open_module(page, server)
        (face,) = page.evaluate(READ, ["crop", {"embeddings": True, "keep": "none"}])["faces"]
    np.testing.assert_allclose(face["embedding"], recognizer(crop[None])[0], rtol=0, atol=1e-5)


def test_the_quality_in_eight_bits_is_another_that_can_be_chosen(page, served, astronaut):
    open_module(page, served, quality="facerts-quality-int8")
    served.photos["photo"] = encode_png(astronaut)
    answer = page.evaluate(READ, ["photo", {}])
    rows = facerts.load(quality="facerts-quality-int8", threads=1).score(astronaut)
    # Kernels round differently in 8 bits.
    assert answer["faces"][0]["quality"] == pytest.approx(rows[0].quality, abs=0.01)
    assert page.evaluate("window.facerts.model.quality.name") == "facerts-quality-int8"
    with pytest.raises(Exception, match="no quality other; there are facerts-quality, facerts-quality-int8"):
        open_module(page, served, quality="other")


def test_threads_give_the_same_numbers(page, site, scorer, astronaut):
    with serving(site, isolated=True) as server:
        open_module(page, server, threads=2)
        assert page.evaluate("crossOriginIsolated")
        server.photos["photo"] = encode_png(astronaut)
        assert differences(scorer.score(astronaut), page.evaluate(READ, ["photo", {}])) == []


def test_what_is_cancelled_is_not_read_and_the_next_is(page, served, astronaut):
    open_module(page, served)
    served.photos["photo"] = encode_png(astronaut)
    outcome = page.evaluate(
        """async () => {
          const photo = await (await fetch("photos/photo")).blob(), control = new AbortController();
          const running = Array.from({ length: 20 }, () => window.facerts.read(photo, { signal: control.signal }));
          const first = await running[0];
          control.abort();
          const ends = (await Promise.allSettled(running)).map((end) => end.reason?.name ?? "read");
          return { first: first.faces.length, ends, after: (await window.facerts.read(photo)).faces.length };
        }"""
    )
    assert (outcome["first"], outcome["after"]) == (1, 1)
    assert outcome["ends"][0] == "read"
    assert outcome["ends"][-1] == "AbortError"
    assert outcome["ends"].count("AbortError") > 10


def test_pixels_and_bitmaps_are_read_as_files_are(page, served, scorer, astronaut):
    open_module(page, served)
    served.photos["photo"] = encode_png(astronaut)
    faces = page.evaluate(
        """async () => {
          const photo = await (await fetch("photos/photo")).blob(), bitmap = await createImageBitmap(photo);
          const context = new OffscreenCanvas(bitmap.width, bitmap.height).getContext("2d");
          context.drawImage(bitmap, 0, 0);
          const pixels = context.getImageData(0, 0, bitmap.width, bitmap.height);
          return Promise.all([photo, bitmap, pixels].map((source) => window.facerts.score(source)));
        }"""
    )
    assert faces[0] == faces[1] == faces[2]
    assert differences(scorer.score(astronaut), {"error": None, "faces": faces[0]}) == []


def test_a_folder_that_lacks_a_file_says_which(page, tmp_path, site):
    for path in site.iterdir():
        if path.name != "facerts-quality.onnx":
            (tmp_path / path.name).write_bytes(path.read_bytes())
    with serving(tmp_path) as server, pytest.raises(Exception, match=r"facerts-quality\.onnx: 404"):
        open_module(page, server)


def test_thresholds_of_a_recognizer_without_them_are_missing(page, tmp_path):
    write_site(tmp_path / "site", write_matcher(tmp_path / "matcher.onnx"))
    first, second = blocks(1), blocks(2)
    with serving(tmp_path / "site") as server:
        server.photos.update(first=encode_png(first), second=encode_png(second))
        open_module(page, server)
        verify = """async (options) => {
          const read = async (name) => (await fetch(`photos/${name}`)).blob();
          return window.facerts.verify(await read("first"), await read("second"), options);
        }"""
        rates = list(matching()["thresholds"])
        with pytest.raises(Exception, match=f"false match rate of 0.5; it has {', '.join(rates)}"):
            page.evaluate(verify, {"fmr": 0.5})
        found = page.evaluate(verify, {"threshold": 0.99, "keep": "none"})
    # Blocks of colors are no faces, which are not compared.
    assert found["decision"] == "inconclusive"
    assert "not a face" in found["reason"]
