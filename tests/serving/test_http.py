from __future__ import annotations

import re
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from facerts.scoring import Scorer
from facerts.serving import Settings
from tests.serving.conftest import Serve, crop

TOKEN = "correct-horse-battery-staple"
GUARDED = (
    ("GET", "/v1/model"),
    ("GET", "/metrics"),
    ("POST", "/v1/score"),
    ("POST", "/v1/search"),
    ("POST", "/v1/verify"),
)
OPEN = ("/", "/docs", "/openapi.json", "/healthz", "/readyz")


def post(client: httpx.Client, *images: bytes, name: str = "a.png", **more: Any) -> httpx.Response:
    return client.post("/v1/score", files=[("images", (name, data)) for data in images], **more)


def numbers(client: httpx.Client) -> dict[tuple[str, frozenset[str]], float]:
    """Everything that /metrics tells, read by Prometheus' own parser."""
    return {
        (sample.name, frozenset(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(client.get("/metrics").text)
        for sample in family.samples
    }


def test_a_token_opens_what_it_guards_and_nothing_else_does(scorer: Scorer, serve: Serve) -> None:
    with serve(scorer, Settings(token=TOKEN)) as client:
        for method, path in GUARDED:
            for given in (
                None,
                "",
                "Bearer",
                f"Bearer {TOKEN}x",
                f"Bearer {TOKEN[:-1]}",
                f"Basic {TOKEN}",
                TOKEN,
            ):
                headers = {} if given is None else {"authorization": given}
                response = client.request(method, path, headers=headers)
                assert response.status_code == 401, (path, given)
                assert response.json()["code"] == "unauthorized"
                assert response.headers["www-authenticate"] == "Bearer"
            odd = client.request(method, path, headers={"authorization": "Bearer \xfc".encode("latin-1")})
            assert odd.status_code == 401
        client.headers["authorization"] = f"Bearer {TOKEN}"
        assert client.get("/v1/model").status_code == 200
        assert client.get("/metrics").status_code == 200
        assert post(client, crop(9)).status_code == 200
        assert post(client, crop(9), headers={"authorization": f"bearer {TOKEN}"}).status_code == 200


def test_pages_and_health_need_no_token(scorer: Scorer, serve: Serve) -> None:
    with serve(scorer, Settings(token=TOKEN)) as client:
        for path in OPEN:
            assert client.get(path).status_code == 200
        # What a client may do is in the schema, and that it needs a token for it.
        schema = client.get("/openapi.json").json()
    assert schema["paths"]["/v1/score"]["post"]["security"] == [{"HTTPBearer": []}]
    assert "security" not in schema["paths"]["/healthz"]["get"]


def test_a_refused_body_is_not_read_into_memory(scorer: Scorer, serve: Serve) -> None:
    with serve(scorer, Settings(token=TOKEN, max_bytes=1000)) as client:
        assert client.post("/v1/score", content=bytes(100_000)).status_code == 401


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nothing", 404, "not_found"),
        ("GET", "/v1/score/", 404, "not_found"),
        ("GET", "/v1/score", 405, "method_not_allowed"),
        ("POST", "/healthz", 405, "method_not_allowed"),
    ],
)
def test_errors_of_http_have_the_same_form(
    client: httpx.Client, method: str, path: str, status: int, code: str
) -> None:
    response = client.request(method, path)
    assert response.status_code == status
    assert response.json()["code"] == code
    assert set(response.json()) == {"error", "code", "images"}
    if status == 405:
        assert response.headers["allow"]


@pytest.mark.parametrize(
    "path", ["/", "/docs", "/openapi.json", "/healthz", "/metrics", "/v1/model", "/nothing"]
)
def test_every_answer_has_the_headers_that_keep_browsers_from_mischief(
    client: httpx.Client, path: str
) -> None:
    response = client.get(path, headers={"origin": "https://elsewhere.example"})
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["referrer-policy"] == "no-referrer"
    assert "default-src 'none'" in response.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in response.headers["content-security-policy"]
    assert not [name for name in response.headers if name.startswith("access-control")]
    assert "server" not in response.headers


def test_other_sites_may_not_ask(client: httpx.Client) -> None:
    response = client.options(
        "/v1/score",
        headers={"origin": "https://elsewhere.example", "access-control-request-method": "POST"},
    )
    assert response.status_code == 405
    assert not [name for name in response.headers if name.startswith("access-control")]


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_pages_need_nothing_from_anywhere(client: httpx.Client, path: str) -> None:
    response = client.get(path)
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    policy = response.headers["content-security-policy"]
    assert "unsafe" not in policy
    assert not re.findall(r"https?:(?!//www\.w3\.org)", policy + response.text)
    assert not re.findall(r"<(?:link|img|iframe|script)\b[^>]*(?:src|href)=[\"'](?!data:)", response.text)
    assert not re.findall(r"\sstyle=|\son\w+=", response.text), "the policy would not let them work"


def test_metrics_count_what_was_done(photo_scorer: Scorer, serve: Serve) -> None:
    with serve(photo_scorer, Settings(min_quality=0.0)) as client:
        given = {"data": {"aligned": "1"}}
        assert post(client, crop(9), crop(200), crop(210), **given).status_code == 200
        assert post(client, crop(9), b"no").status_code == 200
        assert post(client, b"no").status_code == 422
        client.get("/../secret/path")
        found = numbers(client)
    total = "facerts_requests_total"
    assert found[total, frozenset({"/v1/score", "200"})] == 2
    assert found[total, frozenset({"/v1/score", "422"})] == 1
    assert found[total, frozenset({"none", "404"})] == 1
    assert found["facerts_request_seconds_count", frozenset({"/v1/score"})] == 3
    images = {
        kind: found["facerts_images_total", frozenset({kind})] for kind in ("scored", "no_face", "failed")
    }
    assert images == {"scored": 3, "no_face": 1, "failed": 2}
    assert found["facerts_faces_total", frozenset({"accepted"})] == 2
    assert found["facerts_faces_total", frozenset({"rejected"})] == 1
    assert found["facerts_batch_crops_sum", frozenset()] == 3
    assert found["facerts_queue_crops", frozenset()] == found["facerts_requests_in_work", frozenset()] == 0
    assert found["process_resident_memory_bytes", frozenset()] > 0
    assert any(name == "facerts_info" and "bright" in labels for name, labels in found)
    assert not any("secret" in label for _, labels in found for label in labels)


def test_the_schema_describes_every_answer(client: httpx.Client) -> None:
    schema = client.get("/openapi.json").json()
    api = {"/v1/model", "/v1/score", "/v1/search", "/v1/verify"}
    assert set(schema["paths"]) == {"/healthz", "/readyz", "/metrics"} | api
    score = schema["paths"]["/v1/score"]["post"]
    assert set(score["responses"]) == {
        "200",
        "400",
        "401",
        "403",
        "408",
        "413",
        "415",
        "421",
        "422",
        "500",
        "503",
        "504",
    }
    for status, response in score["responses"].items():
        (content,) = response["content"].values()
        assert content["schema"]["$ref"].endswith("/Scores" if status == "200" else "/Problem")
    assert set(score["requestBody"]["content"]) == {
        "multipart/form-data",
        *(f"image/{kind}" for kind in ("jpeg", "png", "webp", "bmp")),
        "application/octet-stream",
    }
    names = {"embeddings", "largest", "aligned", "resize_crops", "keep", "min_quality"}
    assert {parameter["name"] for parameter in score["parameters"]} == names
    form = score["requestBody"]["content"]["multipart/form-data"]["schema"]
    assert set(form["properties"]) == names | {"images"}
    assert "HTTPValidationError" not in str(schema)
