"""A service as it is really run: a model in ONNX Runtime behind uvicorn, on a port of this machine."""

import asyncio
import re
import socket
import threading
import time
from contextlib import contextmanager, suppress
from functools import wraps

import httpx
import numpy as np
import pytest

import facerts
from facerts.galleries import Gallery
from facerts.images import encode_png
from facerts.scoring import Scorer
from facerts.serving import Settings, build, listen
from facerts.serving.server import make_server
from tests.detectors import Tiles
from tests.shipped import write_model

# Of a gallery: its people, and the number of images of each.
NAMES = ["Anna", "Ben", "Carla", "Dora", "Emil", "<b>Frida"]
IMAGES = 3
QUANTILES = [float(quality) for quality in np.linspace(-1, 1, 101)]


def bright_squares():
    """A detector of the squares of 40 pixels that are brighter than the rest."""
    return Tiles(40, lit=lambda square: square.mean() > 128)


class Wrapped:
    """A model that can be kept busy, and can fail on bright crops."""

    def __init__(self, scorer, error=None):
        self._embedder = scorer.recognizer.opened
        self._error = error
        self.free = threading.Event()
        self.free.set()
        self.runs = 0

    def __getattr__(self, name):
        return getattr(self._embedder, name)

    def __call__(self, crops):
        self.runs += 1
        self.free.wait(10)
        if self._error is not None and crops.max() > 200:
            raise self._error
        return self._embedder(crops)


def write_bright(path, thresholds):
    """A model whose quality is the brightness of the crop, with thresholds by the share of faces that they keep."""
    data = {"data": "drawn", "data_sha256": "0" * 64, "faces": 1000, "identities": None}
    return write_model(
        path,
        thresholds={
            keep: {"quality": quality, "data_sha256": "0" * 64, "kept": float(keep)}
            for keep, quality in thresholds.items()
        },
        calibration={**data, "quantiles": QUANTILES},
        embedding_size=8,
    )


@pytest.fixture(scope="session")
def model_file(tmp_path_factory):
    """A model whose quality is the brightness of the crop, from -1 to 1, and thresholds that say so."""
    return write_bright(tmp_path_factory.mktemp("served") / "bright.onnx", {"0.95": -0.5})


@pytest.fixture(scope="session")
def scorer(model_file):
    return facerts.load(model_file, detector="none", threads=1, batch_size=8)


@pytest.fixture(scope="session")
def photo_scorer(scorer):
    return Scorer(scorer.quality, scorer.recognizer, bright_squares())


@pytest.fixture(scope="session")
def searcher(tmp_path_factory):
    """A model like that of ``model_file``, with a threshold for searches."""
    folder = tmp_path_factory.mktemp("searcher")
    path = write_bright(folder / "searcher.onnx", {"0.95": -0.5, "0.99": -0.85})
    return facerts.load(path, detector="none", threads=1, batch_size=8)


@pytest.fixture(scope="session")
def gallery_file(searcher, tmp_path_factory):
    """Images of six people, also dark ones."""
    folder = tmp_path_factory.mktemp("gallery")
    for person, name in enumerate(NAMES):
        (folder / "people" / name).mkdir(parents=True)
        for image in range(IMAGES):
            path = folder / "people" / name / f"{image}.png"
            path.write_bytes(encode_png(variant(person, image)))
    Gallery.create(folder / "people.npz", searcher, folder / "people", min_quality=-1)
    return folder / "people.npz"


@contextmanager
def started(scorer, settings):
    """A service that runs in a thread, and a client of it."""
    listener = listen("127.0.0.1", 0)
    port = listener.getsockname()[1]
    server = make_server(build(scorer, settings), settings)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    while not server.started and thread.is_alive():
        time.sleep(0.01)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=20) as client:
        try:
            yield server, client
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def running(scorer, settings):
    """The client alone."""
    with started(scorer, settings) as (_, client):
        yield client


@pytest.fixture(scope="session")
def client(scorer):
    """Of a service for aligned crops, with no options."""
    with running(scorer, Settings()) as client:
        yield client


@pytest.fixture(scope="session")
def photo_client(photo_scorer):
    """Of a service that finds faces in photos."""
    with running(photo_scorer, Settings(max_faces=3)) as client:
        yield client


def crop(level):
    """An aligned crop of one gray, whose quality is its brightness from -1 to 1."""
    return encode_png(np.full((112, 112, 3), level, dtype=np.uint8))


def variant(person, image):
    """An image of a person: blocks of colors, a little different in each, and dark in every third."""
    small = np.random.default_rng(person).integers(60, 256, (7, 7, 3))
    small += np.random.default_rng(100 + image).integers(-30, 31, (7, 7, 3))
    dark = 0.2 if image % IMAGES == 2 else 1.0
    return (dark * small.clip(0, 255)).astype(np.uint8).repeat(16, axis=0).repeat(16, axis=1)


def photo(levels, width=400):
    """A dark photo with bright squares, one for each level."""
    image = np.full((60, width, 3), 20, dtype=np.uint8)
    for place, level in enumerate(levels):
        image[:40, 40 * place : 40 * place + 40] = level
    return image


def post(client, *images, to="score", **options):
    """The response to images as files of a form, with the options as its fields."""
    files = [("images", (f"{number}.png", data)) for number, data in enumerate(images)]
    return client.post(f"/v1/{to}", files=files, data={name: str(value) for name, value in options.items()})


def problem(response):
    """Status and code of an error."""
    return response.status_code, response.json()["code"]


def refused(response, expected, words):
    """Check status and code of an error, and what its sentence says."""
    assert problem(response) == expected, response.text
    assert words in response.json()["error"]


def metric(client, name):
    """A metric of the service; 0 for one that it has never counted."""
    values = dict(line.rsplit(" ", 1) for line in client.get("/metrics").text.splitlines())
    return float(values.get(name, 0))


def until(condition):
    return any(condition() or time.sleep(0.01) for _ in range(3000))


def in_loop(work):
    """A coroutine as a test, or a function, which runs it in a loop."""

    @wraps(work)
    def run(*given, **named):
        return asyncio.run(asyncio.wait_for(work(*given, **named), 20))

    return run


def alive(client):
    """Whether it still scores; one with a short time limit may need another try on a busy machine."""
    healthy = client.get("/healthz").json() == {"status": "ok"}
    return healthy and until(lambda: post(client, crop(9)).status_code == 200)


def head(*lines, content_type="image/png"):
    """The head of a request."""
    first = ("POST /v1/score HTTP/1.1", "Host: localhost", f"Content-Type: {content_type}")
    return "\r\n".join([*first, *lines, "", ""]).encode()


def address(client):
    return client.base_url.host, client.base_url.port or 80


def talk(client, *pieces, seconds=10.0, pause=0.0):
    """The response to these bytes on one connection."""
    with socket.create_connection(address(client), timeout=seconds) as connection:
        # Who is refused may find the connection closed before everything is sent.
        with suppress(OSError):
            for piece in pieces:
                connection.sendall(piece)
                time.sleep(pause)
        response, length = b"", 0
        while b"\r\n\r\n" not in response or len(response) < length:
            more = connection.recv(65536)
            if not more:
                break
            response += more
            top, end, _ = response.partition(b"\r\n\r\n")
            if end and (declared := re.search(rb"content-length: (\d+)", top.lower())):
                length = len(top + end) + int(declared[1])
    return response


def complete(client, body, length=None):
    """A request whose response nobody has read yet."""
    connection = socket.create_connection(address(client), timeout=10)
    connection.sendall(head(f"Content-Length: {length or len(body)}") + body)
    return connection


def unfinished(client, size):
    """A request whose body still lacks its last byte."""
    return complete(client, bytes(size), size + 1)
