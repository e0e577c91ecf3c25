import json
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields

import numpy as np
import pytest

import facerts
from facerts.detection import Detector
from facerts.errors import ModelError
from facerts.images import encode_png
from facerts.images.align import TEMPLATE
from facerts.scoring import Row, Scorer
from facerts.serving import Settings, build
from tests.foreign import slow_embedding, write_description, write_embedder
from tests.serving.conftest import Wrapped, crop, photo, post, problem, refused, running

INVALID, UNUSABLE, BAD = (422, "invalid"), (422, "unusable_images"), (400, "bad_request")


def quality(level):
    return (level - 127.5) / 127.5


def faces(response):
    assert response.status_code == 200, response.text
    return [image["faces"] for image in response.json()["images"]]


def test_one_image_as_the_body_gives_what_the_scorer_gives(client, scorer):
    pixels = np.random.default_rng(0).integers(0, 255, (112, 112, 3), dtype=np.uint8)
    data = encode_png(pixels)
    response = client.post("/v1/score?embeddings=true", content=data, headers={"content-type": "image/png"})
    (row,) = scorer.score(data)
    assert response.headers["content-type"] == "application/json"
    answer = response.json()
    image = answer["images"][0]
    embedding = image["faces"][0].pop("embedding")
    raw = slow_embedding(pixels[None])[0]
    assert embedding == pytest.approx(raw / np.linalg.norm(raw), abs=1e-5)
    scores = {name: getattr(row, name) for name in ("quality", "percentile", "uncertainty")}
    unknown = dict.fromkeys(("box", "points", "rotation", "det_score", "pose"))
    said = {"accepted": True, "verdict": "good", "reasons": ["noisy"]}
    assert image.pop("faces") == [{**unknown, **scores, **said}]
    assert image == {"name": None, "width": 112, "height": 112, "found": 1, "error": None}
    sha256 = scorer.recognizer.sha256
    assert answer == {"model": "bright", "model_sha256": sha256, "min_quality": -0.5, "images": [image]}
    assert faces(post(client, data))[0][0]["embedding"] is None


def test_faces_of_a_photo_have_boxes_points_and_decisions(photo_client):
    response = post(photo_client, encode_png(photo([200, 250])), min_quality=quality(230))
    image = response.json()["images"][0]
    assert (image["width"], image["height"], image["found"]) == (400, 60, 2)
    first, second = image["faces"]
    assert second["box"] == [40, 0, 80, 40]
    np.testing.assert_allclose(second["points"], TEMPLATE * 40 / 112 + np.array([40, 0]), atol=0.01)
    assert second["det_score"] == 0.9
    assert first["accepted"] is False
    assert first["reasons"][-1] == "below_threshold"
    assert second["accepted"] is True
    assert "below_threshold" not in second["reasons"]
    assert response.json()["min_quality"] == pytest.approx(quality(230))


def test_of_many_faces_the_first_are_scored_and_all_are_counted(photo_client):
    for levels, options, scored in (
        ([200, 210, 220, 230, 240], {}, 3),
        ([200, 210, 220], {"largest": True}, 1),
        ([], {"keep": 0.95}, 0),  # no error
    ):
        response = post(photo_client, encode_png(photo(levels)), **options)
        (image,) = response.json()["images"]
        assert (image["found"], len(faces(response)[0])) == (len(levels), scored)
        assert (image["width"], image["error"]) == (400, None)


def test_crops_are_not_searched_where_they_are_said_to_be_crops(photo_client):
    assert faces(post(photo_client, crop(60))) == [[]]
    (found,) = faces(post(photo_client, crop(60), aligned=True))
    assert found[0]["quality"] == pytest.approx(quality(60), abs=1e-4)
    assert found[0]["box"] is None


def test_a_service_without_a_detector_does_not_pretend(client):
    refused(post(client, crop(1), aligned=False), INVALID, "no detector")
    wide = post(client, encode_png(photo([])))
    assert wide.status_code == 422
    assert "photos need a detector (--set detector=yunet)" in wide.json()["error"]
    assert wide.json()["images"][0]["width"] == 400


def test_a_service_that_chooses_takes_crops_and_photos(photo_scorer, monkeypatch):
    monkeypatch.setattr("facerts.detection.open_detector", lambda *_: photo_scorer.detector)
    chooses = Scorer(photo_scorer.quality, photo_scorer.recognizer, Detector(crops=True))
    with running(chooses, Settings(max_faces=2)) as client:
        assert client.get("/v1/model").json()["detector"] == "auto"
        bright = crop(250)
        taken, searched = post(client, bright, encode_png(photo([250] * 3))).json()["images"]
        assert (taken["found"], [face["box"] for face in taken["faces"]]) == (1, [None])
        assert (searched["found"], len(searched["faces"])) == (3, 2)
        # Whoever says that an image is no crop has it searched, whatever its size.
        (photo_of_112,) = post(client, bright, aligned=False).json()["images"]
        assert all(face["box"] is not None for face in photo_of_112["faces"])
        assert photo_of_112["faces"]


def test_bad_images_have_errors_and_a_request_of_nothing_else_is_one(client):
    response = post(client, b"no", crop(200), crop(100)[:60])
    assert [bool(image) for image in faces(response)] == [False, True, False]
    errors = [image["error"] for image in response.json()["images"]]
    assert errors == [
        "not a JPEG, PNG, WebP or BMP image",
        None,
        "the PNG is truncated",
    ]
    response = post(client, b"no", b"", crop(3)[:60])
    assert problem(response) == (422, "unusable_images")
    body = response.json()
    assert body["error"].startswith("none of the 3 images could be scored; the first: ")
    assert [image["name"] for image in body["images"]] == ["0.png", "1.png", "2.png"]
    assert "empty" in body["images"][1]["error"]
    small = post(client, encode_png(np.zeros((1, 1, 3), dtype=np.uint8)))
    assert small.json()["images"][0]["error"].startswith("1 x 1 pixels are too few for a face")


def test_thresholds_come_from_the_request_or_else_from_the_service(scorer):
    with running(scorer, Settings(keep=0.95)) as client:
        assert post(client, crop(100)).json()["min_quality"] == -0.5
        assert [found[0]["accepted"] for found in faces(post(client, crop(20), crop(200)))] == [False, True]
        (found,) = faces(post(client, crop(200), min_quality=0.9))
        assert found[0]["accepted"] is False
        headers = {"content-type": "image/png"}
        response = client.post("/v1/score?min_quality=-2", content=crop(0), headers=headers)
        assert faces(response)[0][0]["accepted"] is True
        # Qualities of the calibration from -1 to 1 in a hundred equal steps.
        percentiles = [face["percentile"] for (face,) in faces(post(client, crop(0), crop(64), crop(255)))]
        expected = [50 * (quality(level) + 1) for level in (0, 64, 255)]
        assert percentiles == pytest.approx(expected, abs=0.02)


WRONG = (
    ({"keep": 2}, "keep"),
    ({"min_quality": "nan"}, "min_quality"),
    ({"min_quality": "much"}, "min_quality"),
    ({"keep": 0.95, "min_quality": 0}, "give only one"),
    ({"embeddings": "perhaps"}, "embeddings"),
    ({"embedings": "true"}, "embedings"),
    ({"largest": ""}, "largest"),
)


def test_wrong_options_are_named(client):
    files = [("images", ("a.png", crop(9)))]
    for options, words in WRONG:
        for place in ("data", "params"):
            refused(client.post("/v1/score", files=files, **{place: options}), INVALID, words)
    twice = client.post("/v1/score?largest=1", files=files, data={"largest": "1"})
    refused(twice, INVALID, "only once")


BROKEN = (
    ({"files": [("keep", (None, b"1"))]}, BAD, "-F image=@photo.jpg"),
    ({"files": [("images", (None, b"a.jpg"))]}, INVALID, "must be a file; with curl: -F image=@photo.jpg"),
    ({"files": [("keep", (None, b"1")), ("keep", (None, b"1"))]}, INVALID, "twice"),
    ({"files": [("x", (None, b"1"))]}, INVALID, "unknown option 'x'; the options are keep, min_quality"),
    ({"files": [("keep", (None, b"1" * 1001))]}, INVALID, "more than 1000 bytes"),
    ({"content": b"x"}, UNUSABLE, "not a JPEG, PNG, WebP or BMP image"),
    ({"data": {"a": "b"}}, UNUSABLE, "not a JPEG"),
    ({"content": b""}, BAD, "the body has no image"),
    ({"content": b"x", "headers": {"content-encoding": "gzip"}}, (415, "unsupported_type"), "Encoding: gzip"),
)


def test_what_is_no_image_or_no_form_is_an_error_that_says_what_it_should_be(client):
    for request, expected, words in BROKEN:
        refused(client.post("/v1/score", **request), expected, words)


def test_the_model_is_described_with_its_thresholds(photo_client, scorer):
    part = {
        "name": "bright",
        "sha256": scorer.recognizer.sha256,
        "description": json.loads(scorer.recognizer.opened.description.to_json()),
    }
    expected = {
        "quality": part,
        "recognizer": part,
        "detector": "Tiles",
        "min_quality": -0.5,
        "fmr": None,
        "gallery": None,
        "template": TEMPLATE.tolist(),
        "template_size": 112,
        "limits": {"bytes": 32 << 20, "pixels": 32_000_000, "images": 16, "faces": 3, "seconds": None},
        "columns": [field.name for field in fields(Row)],
    }
    assert photo_client.get("/v1/model").json() == expected


def test_a_model_without_quality_gives_embeddings_and_decides_nothing(tmp_path):
    model = write_description(write_embedder(tmp_path / "plain.onnx", batch=4), quality="none", input_batch=4)
    scorer = facerts.load(model, detector="none")
    with running(scorer, Settings()) as client:
        assert client.get("/v1/model").json()["quality"] is None
        (((face,),),) = [faces(post(client, crop(9), embeddings=True))]
        assert face["quality"] is None
        assert math.isclose(sum(value**2 for value in face["embedding"]), 1, abs_tol=1e-5)
        response = post(client, crop(9), min_quality=0)
        assert response.status_code == 422
        assert "plain has no quality" in response.json()["error"]
    with pytest.raises(ModelError, match="no quality"):
        build(scorer, Settings(min_quality=0.0))


@pytest.mark.parametrize(
    "error", [ModelError("/secret/place/model.onnx: not a finite number"), RuntimeError("/secret/place")]
)
def test_a_model_that_fails_is_said_to_without_its_path(scorer, error):
    with running(Scorer.of(Wrapped(scorer, error)), Settings()) as client:
        response = post(client, crop(100), crop(250))
        assert problem(response) == (500, "internal")
        assert "secret" not in response.text
        assert post(client, crop(100)).status_code == 200


def test_requests_at_the_same_time_do_not_mix_up_their_images(client):
    def ask(number: int):
        levels = np.random.default_rng(number).integers(0, 256, 1 + number % 6).tolist()
        response = post(client, *map(crop, levels))
        qualities = [face["quality"] for (face,) in faces(response)]
        assert qualities == pytest.approx([quality(level) for level in levels], abs=1e-4)
        names = [image["name"] for image in response.json()["images"]]
        assert names == [f"{place}.png" for place in range(len(levels))]

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(ask, range(24)))
