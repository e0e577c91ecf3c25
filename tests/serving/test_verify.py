"""``/v1/verify``: what the scorer says, over HTTP."""

import pytest

import facerts
from facerts.errors import ModelError
from facerts.images import encode_png
from facerts.scoring import Scorer
from facerts.serving import Settings, build
from tests.matching import blocks, write_matcher
from tests.serving.conftest import bright_squares, crop, metric, photo, post, problem, refused, running


@pytest.fixture(scope="module")
def matcher(tmp_path_factory):
    path = write_matcher(tmp_path_factory.mktemp("matcher") / "matcher.onnx")
    return facerts.load(path, detector="none", threads=1, batch_size=8)


@pytest.fixture(scope="module")
def client(matcher):
    with running(matcher, Settings()) as client:
        yield client


def verify(client, *images, **options):
    return post(client, *images, to="verify", **options)


def test_the_response_is_that_of_the_scorer(client, matcher):
    decisions = set()
    for seed in range(9):
        poor = seed == 8
        images = encode_png(blocks(seed)), encode_png(blocks(seed + 1) // (8 if poor else 1))
        response = verify(client, *images, fmr=0.01)
        assert response.status_code == 200, response.text
        answer = response.json()
        decisions.add(answer["decision"])
        expected = matcher.verify(*images, fmr=0.01)
        assert answer["similarity"] == pytest.approx(expected.similarity, abs=1e-5)
        for name in ("decision", "fmr", "threshold", "fnmr", "fnmr_ci95", "min_quality", "reason", "note"):
            assert answer[name] == getattr(expected, name), name
        qualities = [image["faces"][0]["quality"] for image in answer["images"]]
        # Batches of another size are rounded differently.
        assert qualities == pytest.approx([expected.first_quality, expected.second_quality], abs=1e-6)
        assert [image["name"] for image in answer["images"]] == ["0.png", "1.png"]
        assert [image["faces"][0]["accepted"] for image in answer["images"]] == [True, not poor]
    assert decisions == {"same", "different", "inconclusive"}
    answer = verify(client, *images, min_quality=-1).json()
    assert answer["fmr"] == 0.001
    assert answer["decision"] != "inconclusive"


def test_the_service_s_own_rate_and_quality_decide_where_a_request_sets_none(matcher):
    with running(matcher, Settings(fmr=0.01, min_quality=0.3)) as client:
        assert client.get("/v1/model").json()["fmr"] == 0.01
        answer = verify(client, crop(200), crop(150)).json()
        assert (answer["fmr"], answer["threshold"], answer["min_quality"]) == (0.01, 0.2, 0.3)
        assert answer["decision"] == "inconclusive"
        answer = verify(client, crop(200), crop(150), fmr=0.001, keep=0.95).json()
        assert (answer["threshold"], answer["min_quality"], answer["decision"]) == (0.5, -0.5, "same")


def test_what_the_model_lacks(client, matcher, scorer):
    refused(verify(client, crop(200), crop(200), fmr=1e-5), (422, "invalid"), "only for 0.01, 0.001")
    assert verify(client, crop(200), crop(200), keep=1.3).status_code == 422
    for count in (1, 3):
        assert problem(verify(client, *[crop(200)] * count)) == (422, "invalid")
    with pytest.raises(ModelError, match="no match threshold"):
        build(matcher, Settings(fmr=1e-5))
    # A model without match thresholds still scores.
    with running(scorer, Settings()) as unmatched:
        assert unmatched.get("/v1/model").json()["fmr"] is None
        response = verify(unmatched, crop(200), crop(200))
        assert response.status_code == 422
        assert "calibrate it on your own faces, a folder for each person: facerts calibrate" in response.json()["error"]
        assert post(unmatched, crop(200)).status_code == 200
        # It decides by a threshold that comes with the request.
        answer = verify(unmatched, crop(200), crop(200), threshold=0.9).json()
        assert (answer["decision"], answer["threshold"], answer["fmr"], answer["fnmr"]) == (
            "same",
            0.9,
            None,
            None,
        )
    assert problem(verify(client, crop(200), crop(200), threshold=0.9, fmr=0.01)) == (422, "invalid")
    assert problem(verify(client, crop(200), crop(200), threshold=9)) == (422, "invalid")


def test_images_that_cannot_be_compared_are_named(matcher):
    photos = Scorer(matcher.quality, matcher.recognizer, bright_squares())
    with running(photos, Settings(max_faces=2)) as client:
        response = verify(client, b"no image", encode_png(photo([])))
        assert problem(response) == (422, "unusable_images")
        assert response.json()["error"].startswith("the first image: not ")
        assert response.json()["error"].endswith("; the second image: no face found")
        assert [image["error"] is None for image in response.json()["images"]] == [False, True]
        answer = verify(client, encode_png(photo([200])), encode_png(photo([220, 230, 240]))).json()
        assert answer["decision"] == "same"
        assert "the second image: 3 faces, of which the largest is compared" in answer["note"]
        assert [len(image["faces"]) for image in answer["images"]] == [1, 1]
        assert verify(client, crop(200), crop(210), aligned=True).json()["decision"] == "same"
        assert metric(client, 'facerts_verifications_total{decision="same"}') == 2
        assert metric(client, 'facerts_images_total{outcome="failed"}') == 1
        assert metric(client, 'facerts_requests_total{route="/v1/verify",status="200"}') == 2
