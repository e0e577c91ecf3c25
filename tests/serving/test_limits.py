from __future__ import annotations

import asyncio
import json
import resource
import socket
import struct
import threading
import time
import zlib
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest

from facerts.errors import Error
from facerts.images import encode_png
from facerts.scoring import Scorer
from facerts.serving import Settings, listen
from facerts.serving.body_limits import BodyLimits
from facerts.serving.error_responses import RequestError
from tests.serving.conftest import Serve, Wrapped, address, crop, running, talk

SMALL = Settings(max_bytes=50_000, max_pixels=40_000, max_images=3, queue=10)


@pytest.fixture(scope="module")
def small(scorer: Scorer) -> Iterator[httpx.Client]:
    """A client of a service that takes little."""
    with running(scorer, SMALL) as client:
        yield client


@pytest.fixture(scope="module")
def impatient(scorer: Scorer) -> Iterator[httpx.Client]:
    """A client of a service that does not wait long."""
    with running(scorer, Settings(timeout=0.5)) as client:
        yield client


def post(client: httpx.Client, *images: bytes) -> httpx.Response:
    return client.post("/v1/score", files=[("images", ("a.png", data)) for data in images])


def head(*lines: str, content_type: str = "image/png") -> bytes:
    """The head of a request."""
    return "\r\n".join(
        ["POST /v1/score HTTP/1.1", "Host: localhost", f"Content-Type: {content_type}", *lines, "", ""]
    ).encode()


def parse(answer: bytes) -> tuple[int, dict[str, str], dict[str, Any]]:
    """Status, headers and JSON."""
    top, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = top.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    return int(first.split()[1]), headers, json.loads(body)


def alive(client: httpx.Client) -> bool:
    """Whether it still scores; a service that does not wait long may need another try on a busy machine."""
    return client.get("/healthz").json() == {"status": "ok"} and until(
        lambda: post(client, crop(9)).status_code == 200
    )


def png(width: int, height: int, data: bytes) -> bytes:
    """A PNG of one bit for each pixel."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        check = zlib.crc32(kind + content)
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)

    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def too_large(answer: bytes) -> dict[str, Any]:
    status, _, problem = parse(answer)
    assert (status, problem["code"]) == (413, "too_large")
    assert "50,000 bytes" in problem["error"]
    return problem


def test_a_length_beyond_the_limit_is_refused_before_anything_is_sent(small: httpx.Client) -> None:
    # Who asks first is told at once, and not to go on.
    answer = talk(small, head("Content-Length: 50001", "Expect: 100-continue"))
    assert b"100 Continue" not in answer
    too_large(answer)
    assert parse(answer)[1]["connection"] == "close"
    assert alive(small)


@pytest.mark.parametrize("size", [60_000, 90_000])
def test_who_sends_too_much_without_asking_still_gets_the_answer(small: httpx.Client, size: int) -> None:
    response = small.post("/v1/score", content=bytes(size), headers={"content-type": "image/png"})
    assert response.status_code == 413
    assert post(small, bytes(size)).status_code == 413
    assert alive(small)


def test_a_body_without_a_length_is_counted_as_it_comes(small: httpx.Client) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(20):
            yield bytes(4096)

    response = small.post("/v1/score", content=pieces(), headers={"content-type": "image/png"})
    assert "transfer-encoding" in response.request.headers
    assert response.status_code == 413
    # And one that never ends, whose sender does not read either.
    endless = (b"1000\r\n" + bytes(4096) + b"\r\n" for _ in range(40))
    too_large(talk(small, head("Transfer-Encoding: chunked"), *endless))
    assert alive(small)


def test_a_body_just_within_the_limit_is_taken(small: httpx.Client) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (112, 112, 3), dtype=np.uint8)
    data = encode_png(noise)
    assert 35_000 < len(data) < 50_000
    data += bytes(50_000 - len(data))
    headers = {"content-type": "image/png"}
    assert small.post("/v1/score", content=data, headers=headers).status_code == 200
    assert small.post("/v1/score", content=data + b"\0", headers=headers).status_code == 413


def test_a_length_that_is_longer_than_the_body(impatient: httpx.Client) -> None:
    data = crop(9)
    answer = talk(impatient, head(f"Content-Length: {len(data) + 5}") + data)
    status, headers, problem = parse(answer)
    assert (status, problem["code"], headers["connection"]) == (408, "too_slow", "close")
    assert alive(impatient)


def test_lengths_that_are_too_short_or_no_numbers(small: httpx.Client) -> None:
    data = crop(9)
    # What is left of the body is no request.
    answer = talk(small, head(f"Content-Length: {len(data) - 5}") + data)
    assert parse(answer)[0] == 422
    assert talk(small, head("Content-Length: -1")).startswith(b"HTTP/1.1 400 ")
    assert talk(small, head("Content-Length: many")).startswith(b"HTTP/1.1 400 ")
    assert alive(small)


def test_a_body_that_drips_is_given_up(impatient: httpx.Client) -> None:
    drops = [b"\0" for _ in range(8)]
    status, headers, problem = parse(talk(impatient, head("Content-Length: 5000"), *drops, pause=0.1))
    assert (status, problem["code"], headers["connection"]) == (408, "too_slow", "close")
    form = head("Transfer-Encoding: chunked", content_type="multipart/form-data; boundary=X")
    assert parse(talk(impatient, form, b"5\r\n--X\r\n\r\n"))[0] == 408
    assert alive(impatient)


def test_a_client_that_goes_away_while_it_sends_leaves_nothing(small: httpx.Client) -> None:
    for _ in range(3):
        with socket.create_connection(address(small)) as connection:
            connection.sendall(head("Content-Length: 5000") + bytes(100))
    assert until(lambda: number(small, 'facerts_requests_total{route="/v1/score",status="499"}') >= 3)
    assert number(small, "facerts_requests_in_work") == number(small, "facerts_held_bytes") == 0
    assert alive(small)


def test_images_are_counted(small: httpx.Client) -> None:
    assert post(small, *[crop(9)] * 3).status_code == 200
    for count in (4, 40):
        response = post(small, *[crop(9)] * count)
        assert (response.status_code, response.json()["code"]) == (422, "invalid")
        assert "more than 3 images" in response.json()["error"]


def test_images_with_too_many_pixels_are_refused_by_their_header(small: httpx.Client) -> None:
    for data in (
        png(30_000, 30_000, b""),
        png(2**31 - 1, 2**31 - 1, b""),
        png(201, 200, zlib.compress(bytes(26 * 200))),
        b"BM" + struct.pack("<IHHIIii", 54, 0, 0, 54, 40, 10**6, -(10**6)) + bytes(40),
    ):
        response = post(small, data)
        assert response.status_code == 422
        assert "more than the limit of 40,000" in response.json()["error"]
    assert alive(small)


def test_a_bomb_does_not_go_off(client: httpx.Client) -> None:
    bomb = png(30_000, 30_000, zlib.compress(bytes(3751 * 30_000), 1))
    assert len(bomb) < 2_000_000, "it is small, and 2.7 GB of pixels"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(5):
        assert post(client, *[bomb] * 4).status_code == 422
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown * 1024 < 200_000_000
    assert alive(client)


def number(client: httpx.Client, name: str) -> float:
    """One of the service's own numbers; 0 for one that it has never counted."""
    for line in client.get("/metrics").text.splitlines():
        if line.startswith(name + " "):
            return float(line.rpartition(" ")[2])
    return 0.0


def until(condition: Any) -> bool:
    for _ in range(500):
        if condition():
            return True
        time.sleep(0.01)
    return False


def unfinished(client: httpx.Client, size: int) -> socket.socket:
    """A request whose body still lacks its last byte."""
    connection = socket.create_connection(address(client), timeout=10)
    connection.sendall(head(f"Content-Length: {size + 1}") + bytes(size))
    return connection


def complete(client: httpx.Client, body: bytes) -> socket.socket:
    """A request whose answer nobody has read yet."""
    connection = socket.create_connection(address(client), timeout=10)
    connection.sendall(head(f"Content-Length: {len(body)}") + body)
    return connection


def test_more_requests_than_places_are_turned_away_until_there_are_some(scorer: Scorer, serve: Serve) -> None:
    model = Wrapped(scorer)
    with serve(Scorer(model), Settings(queue=2)) as client:  # type: ignore[arg-type]
        assert client.get("/readyz").json() == {"status": "ready"}
        model.free.clear()
        others = [complete(client, crop(9)) for _ in range(2)]
        assert until(lambda: number(client, "facerts_requests_in_work") == 2)
        response = post(client, crop(9))
        assert (response.status_code, response.json()["code"]) == (503, "busy")
        assert int(response.headers["retry-after"]) >= 1
        assert client.get("/readyz").status_code == 503
        assert client.get("/healthz").status_code == 200
        for other in others:
            other.close()
        assert until(lambda: number(client, "facerts_requests_in_work") == 0)
        assert client.get("/readyz").status_code == 200
        model.free.set()
        assert alive(client)


def test_who_sends_slowly_keeps_no_place_from_others(scorer: Scorer, serve: Serve) -> None:
    with serve(scorer, Settings(queue=2)) as client:
        others = [unfinished(client, 10) for _ in range(20)]
        assert until(lambda: number(client, "facerts_held_bytes") == 200)
        assert client.get("/readyz").status_code == 200
        assert alive(client)
        for other in others:
            other.close()


def test_the_bodies_of_all_requests_together_have_a_limit(scorer: Scorer, serve: Serve) -> None:
    with serve(scorer, Settings(max_bytes=10_000)) as client:
        others = [unfinished(client, 9_500) for _ in range(8)]
        assert until(lambda: number(client, "facerts_held_bytes") == 8 * 9_500)
        response = client.post("/v1/score", content=bytes(9_000), headers={"content-type": "image/png"})
        assert (response.status_code, response.json()["code"]) == (503, "busy")
        assert "retry-after" in response.headers
        for other in others:
            other.sendall(b"\0")
            assert other.recv(100).startswith(b"HTTP/1.1 422 ")
            other.close()
        assert until(lambda: number(client, "facerts_held_bytes") == 0)
        assert alive(client)


def test_a_refused_body_makes_room_while_the_rest_of_it_is_taken_in() -> None:
    async def work() -> None:
        draining, gone = asyncio.Event(), asyncio.Event()
        sent: list[Any] = []
        pieces = [{"type": "http.request", "body": bytes(6), "more_body": True} for _ in range(2)]

        async def receive() -> Any:
            if pieces:
                return pieces.pop()
            draining.set()
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        async def app(scope: Any, receive: Any, send: Any) -> None:
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

    asyncio.run(asyncio.wait_for(work(), 20))


def test_an_answer_that_takes_too_long_is_given_up(scorer: Scorer, serve: Serve) -> None:
    model = Wrapped(scorer)
    with serve(Scorer(model), Settings(timeout=0.3)) as client:  # type: ignore[arg-type]
        model.free.clear()
        response = post(client, crop(9))
        assert (response.status_code, response.json()["code"]) == (504, "timeout")
        assert "0.3 seconds" in response.json()["error"]
        assert number(client, "facerts_requests_in_work") == 0
        model.free.set()
        assert alive(client)


def test_what_nobody_waits_for_is_not_worked_on(scorer: Scorer, serve: Serve) -> None:
    model = Wrapped(scorer)
    model.batch_size = 1
    with serve(Scorer(model), Settings()) as client:  # type: ignore[arg-type]
        model.free.clear()
        runs = model.runs
        body = crop(9)
        # As many as run at once, and three that wait.
        connections = []
        for _ in range(Scorer(model).parallel_batches + 3):  # type: ignore[arg-type]
            connections.append(complete(client, body))
        assert until(lambda: number(client, "facerts_queue_crops") == 3)
        for connection in connections:
            connection.close()
        assert until(lambda: number(client, "facerts_requests_in_work") == 0)
        assert number(client, "facerts_queue_crops") == 0
        model.free.set()
        assert alive(client)
        assert model.runs == runs + Scorer(model).parallel_batches + 1  # type: ignore[arg-type]


def test_requests_in_flight_are_answered_when_the_service_ends(scorer: Scorer) -> None:
    model = Wrapped(scorer)
    answers: list[httpx.Response] = []
    with running(Scorer(model), Settings()) as client:  # type: ignore[arg-type]
        model.free.clear()
        threads = [threading.Thread(target=lambda: answers.append(post(client, crop(9)))) for _ in range(4)]
        for thread in threads:
            thread.start()
        assert until(lambda: number(client, "facerts_requests_in_work") == 4)
        threading.Timer(0.3, model.free.set).start()
    # The service was told to end while all four were waiting.
    for thread in threads:
        thread.join()
    assert [answer.status_code for answer in answers] == [200] * 4


@pytest.mark.parametrize(
    "wrong",
    [
        *({name: 0} for name in ("max_bytes", "max_pixels", "max_faces", "max_images", "queue", "timeout")),
        *(
            {name: value}
            for name in ("timeout", "header_timeout")
            for value in (float("nan"), float("inf"), 0)
        ),
        *(
            {"allowed_hosts": (value,)}
            for value in ("", "http://a", "a:80", "1.2.3.4:80", "a/b", "me@a", "[::1]:80")
        ),
        *({"allowed_origins": (value,)} for value in ("", "a", "a:80", "https://", "https://a/", "null")),
        {"batch_wait": -1.0},
        *({"token": value} for value in ("", "a b", "ü", "a\n")),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(Error, match=next(iter(wrong))):
        Settings(**wrong)


def test_answers_do_not_wait_for_more_to_send() -> None:
    with listen("127.0.0.1", 0) as listener:
        # What asyncio looks at before it turns Nagle's algorithm off.
        assert listener.proto == socket.IPPROTO_TCP


def test_a_port_that_is_taken_is_said_to_be() -> None:
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(Error, match=f"cannot listen on 127.0.0.1, port {port} .*in use"):
            listen("127.0.0.1", port)
