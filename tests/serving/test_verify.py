"""``/v1/verify``: what the scorer says, over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import facerts
from facerts.errors import ModelError
from facerts.images import encode_png
from facerts.scoring import Scorer
from facerts.serving import Settings, build
from facerts.serving.schemas import PairVerification, Problem
from tests.foreign import slow_embedding
from tests.matching import write_matcher
from tests.serving.conftest import BrightSquares, Serve, Wrapped, crop, running
from tests.serving.test_score import photo


@pytest.fixture(scope="module")
def matcher(tmp_path_factory: pytest.TempPathFactory) -> Scorer:
    path = write_matcher(tmp_path_factory.mktemp("matcher") / "matcher.onnx")
    return facerts.load(path, detector="none", threads=1, batch_size=8)


@pytest.fixture(scope="module")
def client(matcher: Scorer) -> Iterator[httpx.Client]:
    with running(matcher, Settings()) as client:
        yield client


def blocks(seed: int) -> NDArray[np.uint8]:
    small = np.random.default_rng(seed).integers(60, 256, (7, 7, 3), dtype=np.uint8)
    return small.repeat(16, axis=0).repeat(16, axis=1)


def post(client: httpx.Client, *images: bytes, **options: Any) -> httpx.Response:
    files = [("images", (f"{number}.png", data)) for number, data in enumerate(images)]
    return client.post("/v1/verify", files=files, data={name: str(value) for name, value in options.items()})


def test_the_answer_is_that_of_the_scorer_and_of_numpy(client: httpx.Client, matcher: Scorer) -> None:
    decisions = set()
    for seed in range(8):
        images = encode_png(blocks(seed)), encode_png(blocks(seed + 1))
        response = post(client, *images, fmr=0.01)
        assert response.status_code == 200, response.text
        answer = response.json()
        one, other = slow_embedding(np.stack([blocks(seed), blocks(seed + 1)]))
        cosine = one @ other / np.linalg.norm(one) / np.linalg.norm(other)
        assert answer["similarity"] == pytest.approx(cosine, abs=1e-5)
        assert answer["decision"] == ("same" if cosine >= 0.2 else "different")
        decisions.add(answer["decision"])
        expected = matcher.verify(*images, fmr=0.01)
        for name in ("fmr", "threshold", "fnmr", "fnmr_ci95", "min_quality", "reason", "note"):
            assert answer[name] == getattr(expected, name), name
        qualities = [picture["faces"][0]["quality"] for picture in answer["images"]]
        # Batches of another size are rounded differently.
        assert qualities == pytest.approx([expected.first_quality, expected.second_quality], abs=1e-6)
        assert [picture["name"] for picture in answer["images"]] == ["0.png", "1.png"]
    assert decisions == {"same", "different"}


def test_poor_images_are_inconclusive(client: httpx.Client) -> None:
    answer = post(client, crop(200), crop(20)).json()
    assert (answer["decision"], answer["min_quality"], answer["fmr"]) == ("inconclusive", -0.5, 0.001)
    assert answer["reason"] == "the second image: quality -0.843 is below the minimum of -0.500"
    accepted = [picture["faces"][0]["accepted"] for picture in answer["images"]]
    assert accepted == [True, False]
    assert post(client, crop(200), crop(20), min_quality=-1).json()["decision"] == "different"


def test_the_service_s_own_rate_and_quality_decide_where_a_request_sets_none(
    matcher: Scorer, serve: Serve
) -> None:
    with serve(matcher, Settings(fmr=0.01, min_quality=0.3)) as client:
        assert client.get("/v1/model").json()["fmr"] == 0.01
        answer = post(client, crop(200), crop(150)).json()
        assert (answer["fmr"], answer["threshold"], answer["min_quality"]) == (0.01, 0.2, 0.3)
        assert answer["decision"] == "inconclusive"
        answer = post(client, crop(200), crop(150), fmr=0.001, keep=0.95).json()
        assert (answer["threshold"], answer["min_quality"], answer["decision"]) == (0.5, -0.5, "same")


def test_what_the_model_lacks(client: httpx.Client, matcher: Scorer, scorer: Scorer, serve: Serve) -> None:
    response = post(client, crop(200), crop(200), fmr=1e-5)
    assert (response.status_code, response.json()["code"]) == (422, "invalid")
    assert "only for 0.01, 0.001" in response.json()["error"]
    assert post(client, crop(200), crop(200), keep=0.3).status_code == 422
    with pytest.raises(ModelError, match="no match threshold"):
        build(matcher, Settings(fmr=1e-5))
    # A model without match thresholds still scores.
    with serve(scorer, Settings()) as unmatched:
        assert unmatched.get("/v1/model").json()["fmr"] is None
        response = post(unmatched, crop(200), crop(200))
        assert response.status_code == 422
        assert "calibrate it on your own faces with facerts calibrate" in response.json()["error"]
        files = [("images", ("a.png", crop(200)))]
        assert unmatched.post("/v1/score", files=files).status_code == 200


@pytest.mark.parametrize("count", [1, 3])
def test_two_images_are_compared_and_no_other_number(client: httpx.Client, count: int) -> None:
    response = post(client, *[crop(200)] * count)
    assert (response.status_code, response.json()["code"]) == (422, "invalid")


def test_images_that_cannot_be_compared_are_named(matcher: Scorer, serve: Serve) -> None:
    photos = Scorer(matcher.embedder, BrightSquares())
    with serve(photos, Settings(max_faces=2)) as client:
        response = post(client, b"no image", encode_png(photo([])))
        problem = response.json()
        assert (response.status_code, problem["code"]) == (422, "unusable_images")
        assert problem["error"].startswith("the first image: not ")
        assert problem["error"].endswith("; the second image: no face found")
        assert [picture["error"] is None for picture in problem["images"]] == [False, True]
        answer = post(client, encode_png(photo([200])), encode_png(photo([220, 230, 240]))).json()
        assert answer["decision"] == "same"
        assert "the second image: 3 faces, of which the largest is compared" in answer["note"]
        assert [len(picture["faces"]) for picture in answer["images"]] == [1, 1]
        assert post(client, crop(200), crop(210), aligned=True).json()["decision"] == "same"
        told = client.get("/metrics").text
        assert 'facerts_verifications_total{decision="same"} 2.0' in told
        assert 'facerts_images_total{outcome="failed"} 1.0' in told
        assert 'facerts_requests_total{route="/v1/verify",status="200"} 2.0' in told


def test_a_verification_that_takes_too_long_frees_its_place(matcher: Scorer, serve: Serve) -> None:
    wrapped = Wrapped(matcher)
    with serve(Scorer(wrapped), Settings(timeout=0.3)) as client:  # type: ignore[arg-type]
        wrapped.free.clear()
        response = post(client, crop(200), crop(200))
        assert (response.status_code, response.json()["code"]) == (504, "timeout")
        wrapped.free.set()
        assert post(client, crop(200), crop(200)).status_code == 200
        assert "facerts_requests_in_work 0.0" in client.get("/metrics").text


def test_the_schema_describes_it(client: httpx.Client) -> None:
    operation = client.get("/openapi.json").json()["paths"]["/v1/verify"]["post"]
    (form,) = operation["requestBody"]["content"].values()
    images = form["schema"]["properties"]["images"]
    assert (images["minItems"], images["maxItems"]) == (2, 2)
    options = {"aligned", "resize_crops", "keep", "min_quality", "fmr"}
    assert set(form["schema"]["properties"]) == {"images"} | options
    assert {parameter["name"] for parameter in operation["parameters"]} == options
    assert {"200", "400", "401", "413", "415", "422", "503", "504"} <= set(operation["responses"])


options = st.dictionaries(
    st.sampled_from(["aligned", "resize_crops", "keep", "min_quality", "fmr", "embeddings", "other"]),
    st.one_of(st.booleans().map(str), st.floats().map(str), st.text(max_size=6)),
    max_size=3,
)


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(
    query=options, form=options, images=st.lists(st.sampled_from([crop(200), b"", b"no image"]), max_size=3)
)
def test_whatever_is_sent_is_answered_within_the_schema(
    client: httpx.Client, query: dict[str, str], form: dict[str, str], images: list[bytes]
) -> None:
    files: Any = [("images", ("a.png", data)) for data in images]
    response = client.post("/v1/verify", params=query, data=form, files=files)
    assert response.status_code in {200, 400, 415, 422}, response.text
    kind = PairVerification if response.status_code == 200 else Problem
    kind.model_validate_json(response.content)
