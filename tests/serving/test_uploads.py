"""The ways in which images come: forms, JSON with base64, and bodies that are one image."""

import base64
import json
import tracemalloc

import pytest

import facerts
from facerts.galleries import Gallery
from facerts.images import encode_png
from facerts.serving import Settings
from facerts.serving.error_responses import RequestError
from facerts.serving.uploads import Expected, read_json
from tests.matching import write_matcher
from tests.serving.conftest import crop, head, metric, problem, running, talk, unfinished, until, variant

EXPECTED = Expected("image", 2, ("keep", "largest"))
BOTH = encode_png(variant(0, 0)), encode_png(variant(1, 0))


def text(data):
    return base64.b64encode(data).decode()


URL = f"data:image/png;base64,{text(BOTH[1])}"
OF_TWO = (
    {"files": [("images", BOTH[0]), ("images", BOTH[1])]},
    {"files": [("b", BOTH[0]), ("a", BOTH[1])]},
    # Names of options, too; and a part that says its type and no name is a file.
    {"files": [("keep", ("keep", BOTH[0])), ("keep", (None, BOTH[1], "image/png"))]},
    {"json": {"images": [text(BOTH[0]), URL]}},
    {"json": {"images": [text(BOTH[0]), URL.replace("data", "DATA")], "aligned": None, "keep": None}},
)
OF_ONE = (
    {"files": {"photo": BOTH[0]}, "data": {"keep": "0.95"}},
    {"files": {"photo": BOTH[0]}, "params": {"keep": "0.95"}},
    {"json": {"image": text(BOTH[0]), "keep": 0.95}},
    {"json": {"images": [text(BOTH[0])]}, "params": {"keep": "0.95"}},
    # Some clients escape what is special in HTML, and some forget to say that it is JSON.
    {
        "content": b' {"keep": 0.95, "image":"'
        + text(BOTH[0]).replace("/", "\\/").replace("+", "\\u002B").encode()
        + b'"}',
        "headers": {"content-type": "application/x-www-form-urlencoded"},
    },
    *(
        {"content": BOTH[0], "params": {"keep": "0.95"}, "headers": {"content-type": kind} if kind else {}}
        # What curl --data-binary says of an image comes first.
        for kind in (
            *("application/x-www-form-urlencoded", None, "image/png", "text/plain", "image/x; charset=9"),
            "a",
        )
    ),
)


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """A client of a service that scores, verifies and searches."""
    folder = tmp_path_factory.mktemp("everything")
    scorer = facerts.load(write_matcher(folder / "matcher.onnx"), detector="none", threads=1)
    for person in range(3):
        (folder / "people" / f"{person}").mkdir(parents=True)
        (folder / "people" / f"{person}" / "a.png").write_bytes(encode_png(variant(person, 0)))
    Gallery.create(folder / "g.npz", scorer, folder / "people", min_quality=-9)
    with running(scorer, Settings(gallery=folder / "g.npz")) as client:
        yield client


@pytest.mark.parametrize(
    ("path", "requests"),
    [("score", OF_ONE), ("search", OF_ONE), ("score", OF_TWO), ("search", OF_TWO), ("verify", OF_TWO)],
)
def test_each_way_gives_the_same_answer(everything, path, requests):
    answers = []
    for request in requests:
        response = everything.post(f"/v1/{path}", **request)
        assert response.status_code == 200, (response.text, request)
        answer = response.json()
        for image in answer["images"]:
            del image["name"]
        answers.append(answer)
    assert len(answers[0]["images"]) == (1 if requests is OF_ONE else 2)
    assert len({json.dumps(answer) for answer in answers}) == 1


def test_two_images_are_compared_in_their_order_and_no_other_number(everything):
    files = [("second", ("b.png", crop(200))), ("first", ("a.png", crop(20)))]
    answer = everything.post("/v1/verify", files=files).json()
    assert [image["name"] for image in answer["images"]] == ["b.png", "a.png"]
    for request in ({"content": BOTH[0]}, {"json": {"image": text(BOTH[0])}}, {"json": {"images": [URL]}}):
        response = everything.post("/v1/verify", **request)
        assert problem(response) == (422, "invalid")
        assert "two images are compared, and this request has 1" in response.json()["error"]
    response = everything.post("/v1/verify", json={"images": [URL] * 3})
    assert "more than 2 images" in response.json()["error"]


WRONG = {
    "{": ("not valid JSON", 400),
    '{"image": "AAAA"} x': ("not valid JSON", 400),
    '{"image": "AAAA", "keep": ' + 5000 * "9" + "}": ("not valid JSON", 400),
    '{"images": ' + 20 * "[" + 20 * "]" + "}": ("far more values than 2 images", 400),
    "[" * 100_000: ("far more values than 2 images", 400),
    "[]": ("not an object", 400),
    '"AAAA"': ("not an object", 400),
    "{}": ("no list of images", 400),
    '{"images": null, "keep": 1}': ("no list of images", 400),
    '{"images": "AAAA"}': ("no list of images", 400),
    '{"images": {"0": "AAAA"}}': ("no list of images", 400),
    '{"img": "AAAA"}': ("no list of images", 400),
    '{"image": "AAAA", "images": ["AAAA"]}': ("both 'image' and 'images'", 400),
    '{"image": "AAAA", "image": "AAAA"}': ("there twice", 400),
    '{"image": "AAAA", "keep": {"a": 1, "a": 2}}': ("there twice", 400),
    '{"image": ["AAAA"]}': ("image 0 is not a string", 400),
    '{"images": ["AAAA", 7]}': ("image 1 is not a string", 400),
    '{"images": ["AAAA", "AAA"]}': ("image 1 is not base64", 400),
    '{"image": "AA AA"}': ("image 0 is not base64", 400),
    '{"image": "AA\\nAA"}': ("image 0 is not base64", 400),
    '{"image": "AAAA=AAA"}': ("image 0 is not base64", 400),
    '{"image": "_-AA"}': ("image 0 is not base64", 400),
    '{"image": "data:image/png,AAAA"}': ("image 0 is not base64", 400),
    '{"image": "http://127.0.0.1/a.png"}': ("image 0 is not base64", 400),
    '{"image": "ü"}': ("outside of ASCII", 400),
    '{"image": "\\ud800"}': ("outside of ASCII", 400),
    '{"image": "AAAA", "' + 1001 * "k" + '": 1}': ("more than 1000 characters", 400),
    '{"image": "AAAA", "keep": "' + 1001 * "1" + '"}': ("more than 1000 characters", 400),
    '{"images": ["AAAA", "AAAA", "AAAA"]}': ("more than 2 images", 422),
    '{"image": "AAAA", "larges": true}': ("unknown option 'larges', did you mean 'largest'?", 422),
    '{"image": "AAAA", "x": 1}': ("unknown option 'x'; the options are keep, largest", 422),
}


def test_json_that_is_not_as_expected_is_refused_with_a_sentence_that_says_what_is():
    for body, (words, status) in WRONG.items():
        with pytest.raises(RequestError) as caught:
            read_json(body.encode(), EXPECTED)
        assert words in str(caught.value), body[:80]
        assert (caught.value.code == "bad_request") is (status == 400), body[:80]
        assert ('expected {"image": "BASE64"} or {"images":' in str(caught.value)) is (status == 400)
        assert len(str(caught.value)) < 300
    with pytest.raises(RequestError, match="too deep"):
        read_json(b'{"image": ' + b"[" * 50_000, Expected("image", 20_000, ()))


def test_json_is_refused_over_http_too(client):
    image = text(crop(9))
    for values, words in (
        ({"image": image, "keep": "0.95"}, "keep must be a number, not '0.95'"),
        ({"image": image, "keep": True}, "keep"),
        ({"image": image, "largest": 1}, "largest must be true or false, not 1"),
        ({"image": image, "largest": None}, "largest"),
        ({"image": image, "min_quality": float("nan")}, "min_quality"),
        ({"image": image, "min_quality": 10**400}, "min_quality"),
        ({"image": image, "min_quality": []}, "min_quality"),
        ({"image": image, "keep": 0.95, "min_quality": 0}, "give only one"),
    ):
        response = client.post("/v1/score", content=json.dumps(values), headers={"content-type": "application/json"})
        assert problem(response) == (422, "invalid"), values
        assert words in response.json()["error"]
    twice = client.post("/v1/score?largest=1", json={"image": image, "largest": True})
    assert "only once" in twice.json()["error"]
    for content in (b"{}", b"\xff", crop(9)):
        response = client.post("/v1/score", content=content, headers={"content-type": "application/json"})
        assert problem(response) == (400, "bad_request")
        assert "expected" in response.json()["error"]
    assert problem(client.post("/v1/score", json={"images": []})) == (400, "bad_request")
    assert problem(client.post("/v1/score", json={"image": ""})) == (422, "unusable_images")


@pytest.mark.parametrize(
    "body",
    [b'{"images": [' + b"[],", b'{"a": [' + b"0.5,", b"{" + b'"a":{', b'{"image": "' + b"\\ud83d\\ude00"],
)
def test_json_that_would_take_much_memory_is_not_parsed(body):
    body = body[:11] + body[11:] * 200_000
    tracemalloc.start()
    try:
        with pytest.raises(RequestError):
            read_json(body, EXPECTED)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000


def test_base64_counts_as_it_is_sent_and_decoded(scorer):
    with running(scorer, Settings(max_bytes=10_000)) as client:
        held = [unfinished(client, 9_500) for _ in range(8)]
        assert until(lambda: metric(client, "facerts_held_bytes") == 8 * 9_500)
        body = json.dumps({"image": text(bytes(2_100))})
        assert problem(client.post("/v1/score", content=bytes(len(body)))) == (422, "unusable_images")
        assert problem(client.post("/v1/score", content=body)) == (503, "busy")
        for other in held:
            other.close()
        assert until(lambda: metric(client, "facerts_held_bytes") == 0)
        assert problem(client.post("/v1/score", content=body)) == (422, "unusable_images")
        assert metric(client, "facerts_held_bytes") == 0
        # The limit of a body is that of what is sent.
        assert problem(client.post("/v1/score", json={"image": text(bytes(9_000))})) == (413, "too_large")


NAMED = b'Content-Disposition: form-data; name="a"; filename="a.png"'
OPTION = b'Content-Disposition: form-data; name="keep"'


def form(client, *lines, boundary="boundary=XX"):
    headers = {"content-type": f"multipart/form-data; {boundary}"}
    return client.post("/v1/score", content=b"\r\n".join(lines), headers=headers)


@pytest.mark.parametrize(
    ("written", "name"),
    [
        (b'"a \\"b\\".png"', 'a "b".png'),
        (b'"a %22b%22.png"', 'a "b".png'),
        (b"a.png", "a.png"),
        (b'""', ""),
        ('"ü ß.png"'.encode(), "ü ß.png"),
        (b'"a;b=c"', "a;b=c"),
        (b'"<script>"', "<script>"),
        (b'"../../etc/passwd"', "../../etc/passwd"),
        (b'"a\x07b"', "a\x07b"),
    ],
)
def test_names_of_files_come_back_as_clients_write_them(client, written, name):
    named = NAMED.replace(b'"a.png"', written)
    response = form(client, b"before", b"--XX", named, b"", crop(9), b"--XX--", b"after", b"--XX", b"")
    assert response.status_code == 200, response.text
    assert response.json()["images"][0]["name"] == name


BROKEN = (
    ((b"",), "broken or cut short"),
    ((b"--XX", NAMED, b"", b"data"), "Unexpected end"),
    ((b"--XX", NAMED, b"", b"data", b"--XX"), "Unexpected end"),
    ((b"--XX", NAMED, b"", b"data", b"--XY--"), "Unexpected end"),
    ((b"--XX", NAMED, b"", b"data", b"--XX", NAMED), "Unexpected end"),
    ((b"--XXY", NAMED, b"", b"data", b"--XX--"), "Unexpected byte"),
    ((b"--XX" + 100_000 * b" ", NAMED, b"", b"data", b"--XX--"), "Unexpected byte"),
    ((b"--XX", NAMED, b"--XX--", b""), "Malformed segment header"),
    ((b"--XX", NAMED, b"X: \xff", b"", b"data", b"--XX--"), "failed to decode"),
    ((b"--XX", b"X: " + b"y" * 5000, NAMED, b"", b"data", b"--XX--"), "Maximum segment header length"),
    ((b"--XX", *100 * [b"X: y"], NAMED, b"", b"data", b"--XX--"), "Maximum segment header count"),
    ((b"--XX", b"", b"data", b"--XX--"), "Missing Content-Disposition"),
    ((b"--XX", NAMED.replace(b"form-data", b"attachment"), b"", b"data", b"--XX--"), "Wrong type"),
    ((b"--XX", OPTION, b"", b"0.9", b"--XX--"), "the body has no image; with curl: -F image=@photo.jpg"),
    (50_000 * (b"--XX", b"", b""), "Missing Content-Disposition"),
    (300_000 * (b"--XX",), "Malformed segment header"),
)


@pytest.mark.parametrize(("lines", "words"), BROKEN)
def test_a_broken_form_is_an_error_that_says_what_is_broken(client, lines, words):
    response = form(client, *lines)
    assert problem(response) == (400, "bad_request")
    assert words in response.json()["error"]


@pytest.mark.parametrize(
    "boundary",
    [
        *("x=y", "boundary=", "boundary=" + 71 * "a", "boundary*=utf-8''XX", 'boundary="x' + 9000 * ";"),
        "boundary",
    ],
)
def test_a_form_needs_a_boundary(client, boundary):
    response = form(client, b"--XX", NAMED, b"", crop(9), b"--XX--", boundary=boundary)
    assert problem(response) == (400, "bad_request")
    assert "boundary" in response.json()["error"]


def test_a_form_of_almost_boundaries_is_read_in_linear_time(client):
    """Some parsers are busy for seconds with 32 MiB of it."""
    body = b"\r\n--X" * 3_000_000
    response = form(client, b"--XX", NAMED, b"", body, b"--XX--")
    assert problem(response) == (422, "unusable_images")
    assert response.elapsed.total_seconds() < 5


def test_a_form_arrives_in_any_pieces(client):
    body = b"\r\n".join((b"--XX", OPTION, b"", b"0.95", b"--XX", NAMED, b"", crop(9), b"--XX--", b""))
    for size in (1, 3, 100):
        pieces = [body[at : at + size] for at in range(0, len(body), size)]
        chunks = [b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces]
        begin = head("Transfer-Encoding: chunked", content_type="multipart/form-data; boundary=XX")
        answer = talk(client, begin + b"".join(chunks) + b"0\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200 "), answer
        assert b'"min_quality":-0.5' in answer
