"""Whatever is sent, the answer is one that the schema knows, never a failure of the service."""

from __future__ import annotations

import base64
import socket
from collections.abc import Iterator
from typing import Any

import cv2
import httpx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from facerts.serving import Settings
from facerts.serving.schemas import Matches, PairVerification, Problem, Scores
from tests.fuzz.mutations import mutated_bytes
from tests.serving.conftest import address, crop, metric, post, running

IMAGES = [
    bytes(cv2.imencode(kind, np.random.default_rng(0).integers(0, 256, (24, 80, 3), dtype=np.uint8))[1])
    for kind in (".jpg", ".png", ".webp", ".bmp")
]
OPTIONS = (*("embeddings", "largest", "aligned", "keep"), *("min_quality", "fmr", "fpir", "k", "other"))
RESPONSES = {"score": Scores, "search": Matches, "verify": PairVerification}
TYPES = (
    *("image/png", "application/json", "multipart/form-data; boundary=X", "text/plain", "", "a"),
    *("multipart/form-data; boundary*" + "9" * 5000 + "=X", 'multipart/form-data; boundary="X;;;;'),
)
fuzzed = settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.too_slow])


@pytest.fixture(scope="module")
def client(photo_scorer) -> Iterator[httpx.Client]:
    with running(photo_scorer, Settings(max_bytes=200_000, max_pixels=1_000_000, timeout=5)) as client:
        yield client


def check(response: httpx.Response, to: str = "score") -> None:
    """The response is in the schema."""
    assert response.status_code in {200, 400, 413, 415, 422}, response.text
    kind = RESPONSES[to] if response.status_code == 200 else Problem
    kind.model_validate_json(response.content)


def mutated(*originals: bytes) -> st.SearchStrategy[bytes]:
    return st.sampled_from(originals).flatmap(mutated_bytes)


options = st.dictionaries(
    st.sampled_from(OPTIONS),
    st.one_of(st.booleans().map(str), st.floats().map(str), st.text(max_size=6)),
    max_size=3,
)


@fuzzed
@given(data=mutated(*IMAGES), aligned=st.booleans())
def test_broken_images(client, data, aligned):
    headers = {"content-type": "application/octet-stream"}
    check(client.post(f"/v1/score?aligned={aligned}", content=data, headers=headers))


@pytest.mark.parametrize("to", ["search", *(pytest.param(to, marks=pytest.mark.slow) for to in ("score", "verify"))])
@fuzzed
@given(query=options, form=options, names=st.lists(st.text(max_size=9), max_size=3), good=st.booleans())
def test_any_options_and_names(everything, to, query, form, names, good):
    files: Any = [("images", (name or "a", crop(200) if good else b"no image")) for name in names]
    check(everything.post(f"/v1/{to}", params=query, data=form, files=files), to)


FORM = (
    b'--X\r\nContent-Disposition: form-data; name="images"; filename="a.png"\r\n'
    b"Content-Type: image/png\r\n\r\n" + crop(200) + b"\r\n"
    b'--X\r\nContent-Disposition: form-data; name="keep"\r\n\r\n0.95\r\n--X--\r\n'
)


JSON = b'{"image": "' + base64.b64encode(crop(200)) + b'", "keep": 0.95, "aligned": true}'


@fuzzed
@given(body=mutated(FORM, JSON), content_type=st.sampled_from(TYPES))
def test_broken_forms_and_json(client, body, content_type):
    check(client.post("/v1/score", content=body, headers={"content-type": content_type}))


REQUEST = (
    b"POST /v1/score?aligned=true HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/png\r\n"
    b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(crop(200)) + crop(200)
)


@fuzzed
@given(request=mutated(REQUEST))
def test_broken_requests(client, request):
    with socket.create_connection(address(client), timeout=10) as connection:
        connection.sendall(request)
        # Who says no more gets no answer to what is not whole.
        connection.shutdown(socket.SHUT_WR)
        response = b"".join(iter(lambda: connection.recv(65536), b""))
    assert not response or response.startswith(b"HTTP/1.1 "), response
    assert b"HTTP/1.1 5" not in response


def test_it_is_still_there(client):
    assert post(client, crop(200), aligned=True).status_code == 200
    assert 'status="5' not in client.get("/metrics").text
    assert metric(client, "facerts_requests_in_work") == 0
