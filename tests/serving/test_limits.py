import asyncio
import json
import socket
import struct
import threading
import zlib

import numpy as np
import pytest

import facerts
from facerts.errors import Error
from facerts.images import encode_png
from facerts.scoring import Scorer
from facerts.serving import Settings, listen
from facerts.serving.body_limits import BodyLimits
from facerts.serving.error_responses import RequestError
from tests.hostile.images import GRAY, chunk, png, png_header
from tests.matching import write_matcher
from tests.serving.conftest import (
    Wrapped,
    address,
    alive,
    complete,
    crop,
    head,
    in_loop,
    metric,
    post,
    problem,
    refused,
    running,
    talk,
    unfinished,
    until,
)

SMALL = Settings(max_bytes=50_000, max_pixels=40_000, max_images=3, queue=10)


@pytest.fixture(scope="module")
def small(scorer):
    """A client of a service that takes little."""
    with running(scorer, SMALL) as client:
        yield client


def parse(response):
    """Status, headers and JSON."""
    top, _, body = response.partition(b"\r\n\r\n")
    first, *lines = top.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    return int(first.split()[1]), headers, json.loads(body)


def bits(width, height, data):
    """A PNG of one bit for each pixel."""
    return png(png_header(width, height, depth=1, color=GRAY), chunk(b"IDAT", data))


def too_large(response):
    status, _, error = parse(response)
    assert (status, error["code"]) == (413, "too_large")
    assert "50,000 bytes" in error["error"]


def test_a_body_beyond_the_limit_is_refused_however_it_comes(small):
    # Who asks first is refused at once, and does not send.
    response = talk(small, head("Content-Length: 50001", "Expect: 100-continue"))
    assert b"100 Continue" not in response
    too_large(response)
    assert parse(response)[1]["connection"] == "close"
    # Who sends without asking still gets the response.
    headers = {"content-type": "image/png"}
    assert small.post("/v1/score", content=bytes(90_000), headers=headers).status_code == 413
    assert problem(post(small, bytes(60_000))) == (413, "too_large")
    # Without a length, and one that never ends and whose sender does not read either.
    pieces = small.post("/v1/score", content=(bytes(4096) for _ in range(20)), headers=headers)
    assert "transfer-encoding" in pieces.request.headers
    assert pieces.status_code == 413
    endless = (b"1000\r\n" + bytes(4096) + b"\r\n" for _ in range(40))
    too_large(talk(small, head("Transfer-Encoding: chunked"), *endless))
    # The limit itself is allowed.
    data = encode_png(np.random.default_rng(0).integers(0, 256, (112, 112, 3), dtype=np.uint8))
    data += bytes(50_000 - len(data))
    assert small.post("/v1/score", content=data, headers=headers).status_code == 200
    assert small.post("/v1/score", content=data + b"\0", headers=headers).status_code == 413
    assert alive(small)


def test_lengths_that_are_too_short_or_no_numbers(small):
    data = crop(9)
    # What is left of the body is no request.
    answer = talk(small, head(f"Content-Length: {len(data) - 5}") + data)
    assert parse(answer)[0] == 422
    assert talk(small, head("Content-Length: -1")).startswith(b"HTTP/1.1 400 ")
    assert talk(small, head("Content-Length: many")).startswith(b"HTTP/1.1 400 ")
    assert alive(small)


def test_a_body_that_does_not_arrive_is_given_up(scorer):
    data = crop(9)
    form = head("Transfer-Encoding: chunked", content_type="multipart/form-data; boundary=X")
    with running(scorer, Settings(timeout=0.4)) as client:
        for pieces in (
            [head(f"Content-Length: {len(data) + 5}") + data],
            [head("Content-Length: 5000"), *[b"\0"] * 6],
            [form, b"5\r\n--X\r\n\r\n"],
        ):
            status, headers, error = parse(talk(client, *pieces, pause=0.1))
            assert (status, error["code"], headers["connection"]) == (408, "too_slow", "close")
        assert alive(client)


def test_a_client_that_goes_away_while_it_sends_leaves_nothing(small):
    for _ in range(3):
        with socket.create_connection(address(small)) as connection:
            connection.sendall(head("Content-Length: 5000") + bytes(100))
    assert until(lambda: metric(small, 'facerts_requests_total{route="/v1/score",status="499"}') >= 3)
    assert metric(small, "facerts_requests_in_work") == metric(small, "facerts_held_bytes") == 0
    assert alive(small)


def test_images_are_counted(small):
    assert post(small, *[crop(9)] * 3).status_code == 200
    for count in (4, 40):
        refused(post(small, *[crop(9)] * count), (422, "invalid"), "more than 3 images")


def test_images_with_too_many_pixels_are_refused_by_their_header(small):
    for data in (
        bits(30_000, 30_000, b""),
        bits(2**31 - 1, 2**31 - 1, b""),
        bits(201, 200, zlib.compress(bytes(26 * 200))),
        b"BM" + struct.pack("<IHHIIii", 54, 0, 0, 54, 40, 10**6, -(10**6)) + bytes(40),
    ):
        response = post(small, data)
        assert response.status_code == 422
        assert "more than the limit of 40,000" in response.json()["error"]
    assert alive(small)


def test_more_requests_than_places_are_turned_away_until_there_are_some(scorer):
    model = Wrapped(scorer)
    with running(Scorer.of(model), Settings(queue=2)) as client:
        assert client.get("/readyz").json() == {"status": "ready"}
        model.free.clear()
        others = [complete(client, crop(9)) for _ in range(2)]
        assert until(lambda: metric(client, "facerts_requests_in_work") == 2)
        response = post(client, crop(9))
        assert problem(response) == (503, "busy")
        assert int(response.headers["retry-after"]) >= 1
        assert client.get("/readyz").status_code == 503
        assert client.get("/healthz").status_code == 200
        for other in others:
            other.close()
        assert until(lambda: metric(client, "facerts_requests_in_work") == 0)
        assert client.get("/readyz").status_code == 200
        model.free.set()
        assert alive(client)


def test_who_sends_slowly_keeps_no_place_from_others(scorer):
    with running(scorer, Settings(queue=2)) as client:
        others = [unfinished(client, 10) for _ in range(20)]
        assert until(lambda: metric(client, "facerts_held_bytes") == 200)
        assert client.get("/readyz").status_code == 200
        assert alive(client)
        for other in others:
            other.close()


def test_the_bodies_of_all_requests_together_have_a_limit(scorer):
    with running(scorer, Settings(max_bytes=10_000)) as client:
        others = [unfinished(client, 9_500) for _ in range(8)]
        assert until(lambda: metric(client, "facerts_held_bytes") == 8 * 9_500)
        response = client.post("/v1/score", content=bytes(9_000), headers={"content-type": "image/png"})
        assert problem(response) == (503, "busy")
        assert "retry-after" in response.headers
        for other in others:
            other.sendall(b"\0")
            assert other.recv(100).startswith(b"HTTP/1.1 422 ")
            other.close()
        assert until(lambda: metric(client, "facerts_held_bytes") == 0)
        assert alive(client)


@in_loop
async def test_a_refused_body_makes_room_while_the_rest_of_it_is_taken_in():
    draining, gone = asyncio.Event(), asyncio.Event()
    sent = []
    pieces = [{"type": "http.request", "body": bytes(6), "more_body": True} for _ in range(2)]

    async def receive():
        if pieces:
            return pieces.pop()
        draining.set()
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    async def app(scope, receive, send):
        await receive()
        with pytest.raises(RequestError, match="larger than 10 bytes"):
            await receive()
        assert limits.held == 12
        await send({"type": "http.response.start", "status": 413, "headers": []})

    limits = BodyLimits(app, Settings(max_bytes=10))
    scope = {"type": "http", "headers": [(b"transfer-encoding", b"chunked")]}
    answered = asyncio.ensure_future(limits(scope, receive, send))
    await draining.wait()
    assert limits.held == 0
    gone.set()
    await answered
    assert sent[0]["headers"] == [(b"connection", b"close")]


def test_a_response_that_takes_too_long_is_given_up_and_frees_its_place(scorer, searcher, gallery_file, tmp_path):
    matcher = facerts.load(write_matcher(tmp_path / "matcher.onnx"), detector="none", threads=1)
    searching = Settings(timeout=0.3, gallery=gallery_file)
    for to, opened, settings, images in (
        ("score", scorer, Settings(timeout=0.3), [crop(200)]),
        ("search", searcher, searching, [crop(200)]),
        ("verify", matcher, Settings(timeout=0.3), [crop(200), crop(200)]),
    ):
        model = Wrapped(opened)
        with running(Scorer.of(model), settings) as client:
            model.free.clear()
            refused(post(client, *images, to=to), (504, "timeout"), "0.3 seconds")
            assert metric(client, "facerts_requests_in_work") == 0
            model.free.set()
            assert until(lambda: post(client, *images, to=to).status_code == 200)  # noqa: B023


def test_requests_in_flight_are_answered_when_the_service_ends(scorer):
    model = Wrapped(scorer)
    answers = []
    with running(Scorer.of(model), Settings()) as client:
        model.free.clear()
        threads = [threading.Thread(target=lambda: answers.append(post(client, crop(9)))) for _ in range(4)]
        for thread in threads:
            thread.start()
        assert until(lambda: metric(client, "facerts_requests_in_work") == 4)
        threading.Timer(0.3, model.free.set).start()
    # The service was told to end while all four were waiting.
    for thread in threads:
        thread.join()
    assert [answer.status_code for answer in answers] == [200] * 4


WRONG = {
    **dict.fromkeys(("max_bytes", "max_pixels", "max_faces", "max_images", "queue"), (0,)),
    **dict.fromkeys(("timeout", "header_timeout"), (float("nan"), float("inf"), 0)),
    "fpir": (0, -0.1, 1, 1e-20, float("nan")),
    "token": ("", "a b", "ü", "a\n"),
    "allowed_hosts": (("",), ("http://a",), ("a:80",), ("1.2.3.4:80",), ("a/b",), ("me@a",), ("[::1]:80",)),
    "allowed_origins": (("",), ("a",), ("a:80",), ("https://",), ("https://a/",), ("null",)),
}


def test_settings_that_make_no_sense_are_refused():
    for name, values in WRONG.items():
        for value in values:
            with pytest.raises(Error, match=name):
                Settings(**{name: value})


def test_a_port_that_is_taken_is_said_to_be():
    with listen("127.0.0.1", 0) as listener:
        # What asyncio looks at before it turns Nagle's algorithm off.
        assert listener.proto == socket.IPPROTO_TCP
        port = listener.getsockname()[1]
        with pytest.raises(Error, match=f"cannot listen on 127.0.0.1, port {port} .*in use"):
            listen("127.0.0.1", port)


def test_what_nobody_waits_for_is_not_worked_on(scorer):
    model = Wrapped(scorer)
    model.batch_size = 1
    with running(Scorer.of(model), Settings()) as client:
        model.free.clear()
        runs = model.runs
        body = crop(9)
        # As many as run at once, and three that wait.
        at_once = Scorer.of(model).model().parallel_batches
        connections = [complete(client, body) for _ in range(at_once + 3)]
        assert until(lambda: metric(client, "facerts_queue_crops") == 3)
        for connection in connections:
            connection.close()
        assert until(lambda: metric(client, "facerts_requests_in_work") == 0)
        assert metric(client, "facerts_queue_crops") == 0
        model.free.set()
        assert alive(client)
        assert model.runs == runs + at_once + 1
