"""Tokens, errors, headers, metrics and the schema, which all routes have in common."""

import re
from dataclasses import dataclass

import pytest
from prometheus_client.parser import text_string_to_metric_families

from facerts.scoring import Row
from facerts.serving import Settings
from facerts.serving.schemas import NOT_OF_A_FACE, FaceResult, fields_of
from tests.serving.conftest import crop, post, running

TOKEN = "correct-horse-battery-staple"
GUARDED = {
    "/v1/model": "GET",
    "/metrics": "GET",
    "/v1/score": "POST",
    "/v1/search": "POST",
    "/v1/verify": "POST",
}
WRONG = ("", "Bearer", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", f"Basic {TOKEN}", TOKEN, "Bearer \xfc")


def test_a_token_opens_what_it_guards_and_nothing_else_does(scorer):
    with running(scorer, Settings(token=TOKEN, max_bytes=1000)) as client:
        for path, method in GUARDED.items():
            for given in (None, *WRONG):
                headers = {} if given is None else {"authorization": given.encode("latin-1")}
                response = client.request(method, path, headers=headers)
                assert (response.status_code, response.json()["code"]) == (401, "unauthorized"), (path, given)
                assert response.headers["www-authenticate"] == "Bearer"
        # A body that is refused is not read into memory.
        assert client.post("/v1/score", content=bytes(100_000)).status_code == 401
        assert client.get("/healthz").json() == {"status": "ok"}
        for path in ("/", "/docs", "/openapi.json", "/healthz", "/readyz"):
            assert client.get(path).status_code == 200
        schema = client.get("/openapi.json").json()
        assert schema["paths"]["/v1/score"]["post"]["security"] == [{"HTTPBearer": []}]
        assert "security" not in schema["paths"]["/healthz"]["get"]
        for scheme in ("Bearer", "bearer"):
            client.headers["authorization"] = f"{scheme} {TOKEN}"
            assert client.get("/v1/model").status_code == client.get("/metrics").status_code == 200
            assert post(client, crop(9)).status_code == 200


def test_errors_of_http_have_the_same_form(client):
    for method, path, status, code in (
        ("GET", "/nothing", 404, "not_found"),
        ("GET", "/v1/score/", 404, "not_found"),
        ("POST", "/v1/video", 404, "not_found"),
        ("GET", "/v1/score", 405, "method_not_allowed"),
        ("POST", "/healthz", 405, "method_not_allowed"),
    ):
        response = client.request(method, path)
        assert (response.status_code, response.json()["code"]) == (status, code)
        assert set(response.json()) == {"error", "code", "images"}
        assert ("allow" in response.headers) == (status == 405)
        assert status != 404 or "POST /v1/score, POST /v1/verify" in response.json()["error"]
        assert ("facerts serve --video" in response.json()["error"]) == (path == "/v1/video")
        takes = f"{path} takes {'POST' if method == 'GET' else 'GET'}, not {method}"
        assert status != 405 or response.json()["error"] == takes


def test_every_response_has_the_headers_that_keep_browsers_from_mischief(client):
    elsewhere = {"origin": "https://elsewhere.example", "access-control-request-method": "POST"}
    responses = [
        client.get(path, headers=elsewhere)
        for path in ("/", "/docs", "/openapi.json", "/healthz", "/metrics", "/v1/model", "/nothing")
    ]
    asked = client.options("/v1/score", headers=elsewhere)
    assert asked.status_code == 405
    for response in (*responses, asked):
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["cache-control"] == "no-store"
        assert response.headers["referrer-policy"] == "no-referrer"
        assert "default-src 'none'" in response.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in response.headers["content-security-policy"]
        assert not [name for name in response.headers if name.startswith("access-control")]
        assert "server" not in response.headers


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_pages_need_nothing_from_anywhere(client, path):
    response = client.get(path)
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    policy = response.headers["content-security-policy"]
    assert "unsafe" not in policy
    assert not re.findall(r"https?:(?!//www\.w3\.org)", policy + response.text)
    assert not re.findall(r"<(?:link|img|iframe|script)\b[^>]*(?:src|href)=[\"'](?!data:|[\w.]+[\"'])", response.text)
    assert not re.findall(r"\sstyle=|\son\w+=", response.text), "the policy would not let them work"


def test_metrics_count_what_was_done(photo_scorer):
    with running(photo_scorer, Settings(min_quality=0.0)) as client:
        assert post(client, crop(9), crop(200), crop(210), aligned=1).status_code == 200
        assert post(client, crop(9), b"no").status_code == 200
        assert post(client, b"no").status_code == 422
        client.get("/../secret/path")
        # Read by Prometheus' own parser.
        values = {
            (sample.name, frozenset(sample.labels.values())): sample.value
            for family in text_string_to_metric_families(client.get("/metrics").text)
            for sample in family.samples
        }
    expected = {
        ("facerts_requests_total", "/v1/score", "200"): 2,
        ("facerts_requests_total", "/v1/score", "422"): 1,
        ("facerts_requests_total", "none", "404"): 1,
        ("facerts_request_seconds_count", "/v1/score"): 3,
        ("facerts_images_total", "scored"): 3,
        ("facerts_images_total", "no_face"): 1,
        ("facerts_images_total", "failed"): 2,
        ("facerts_faces_total", "accepted"): 2,
        ("facerts_faces_total", "rejected"): 1,
        ("facerts_batch_crops_sum",): 3,
        ("facerts_queue_crops",): 0,
        ("facerts_requests_in_work",): 0,
    }
    assert {key: values[key[0], frozenset(key[1:])] for key in expected} == expected
    assert values["process_resident_memory_bytes", frozenset()] > 0
    assert any(name == "facerts_info" and "bright" in labels for name, labels in values)
    assert not any("secret" in label for _, labels in values for label in labels)


COMMON = {"aligned", "keep", "min_quality"}
# The options of each route, and the least and the most images of a form.
ROUTES = {
    "/v1/score": (COMMON | {"embeddings", "largest"}, 1, 16, "Scores"),
    "/v1/search": (COMMON | {"embeddings", "largest", "fpir", "k"}, 1, 16, "Matches"),
    "/v1/verify": (COMMON | {"fmr", "threshold"}, 2, 2, "PairVerification"),
}


DESCRIBED = {
    *("FaceResult", "FaceMatch", "ImageResult", "PairVerification"),
    *("ModelInfo", "Problem", "GalleryInfo"),
}


def test_the_schema_describes_every_response(client):
    schema = client.get("/openapi.json").json()
    assert set(schema["paths"]) == {"/healthz", "/readyz", "/metrics", "/v1/model", *ROUTES}
    for path, (options, least, most, answer) in ROUTES.items():
        operation = schema["paths"][path]["post"]
        statuses = "200 400 401 403 408 413 415 421 422 431 500 503 504"
        assert set(operation["responses"]) == set(statuses.split())
        for status, response in operation["responses"].items():
            (content,) = response["content"].values()
            assert content["schema"]["$ref"].endswith(f"/{answer if status == '200' else 'Problem'}")
        assert {parameter["name"] for parameter in operation["parameters"]} == options
        content = operation["requestBody"]["content"]
        assert set(content) == {"multipart/form-data", "application/json"} | (
            {"application/octet-stream"} if least == 1 else set()
        )
        form = content["multipart/form-data"]["schema"]["properties"]
        keys = content["application/json"]["schema"]["properties"]
        assert set(form) == options | {"image"}
        assert set(keys) == options | {"images"} | ({"image"} if least == 1 else set())
        for files in (form["image"], keys["images"]):
            assert (files["minItems"], files["maxItems"]) == (least, most)
        described = [*form.values(), *keys.values(), *operation["parameters"]]
        assert all(field.get("description") for field in described), path
    for name, model in schema["components"]["schemas"].items():
        # The description of a model has a schema of its own.
        fields = model.get("properties", {}).items() if name in DESCRIBED else ()
        assert [field for field, said in fields if not said.get("description")] == [], name
    decision = schema["components"]["schemas"]["FaceMatch"]["properties"]["decision"]
    assert decision["enum"] == ["match", "unknown", "too poor to say"]
    assert "HTTPValidationError" not in str(schema)


@dataclass(frozen=True)
class WiderRow(Row):
    """A row with another column.

    Attributes:
        age: of the person, in years; None
            where it is not known.
    """

    age: float | None = None


def test_a_column_of_the_rows_reaches_the_answers_with_its_description():
    schema = fields_of(WiderRow, *NOT_OF_A_FACE)
    shown = schema.of(WiderRow("a.jpg", points=[*range(10)], age=30)).model_dump()
    assert shown["age"] == 30
    assert shown["points"] == [[x, x + 1] for x in range(0, 10, 2)]
    assert set(shown) - set(FaceResult.model_fields) == {"age"}
    described = schema.model_json_schema()["properties"]
    assert described["age"]["description"] == "Of the person, in years; null where it is not known."
    assert described["quality"]["description"] == "Higher is better; comparable only within one model."
