"""The folder that ``facerts web`` writes, on a server of this machine, and the module in a page of it."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import skimage.data

import facerts
from facerts.web import write_site
from tests.browser import of_others

if TYPE_CHECKING:
    pass

# How far apart the numbers of Python and of the browser may be.
PIXELS, QUALITY = 1.0, 1e-3
READ = """async ([name, options]) => {
  const blob = await (await fetch(`photos/${name}`)).blob();
  return window.facerts.read(new File([blob], name), options);
}"""


@dataclass
class SiteServer:
    """A static server; ``photos`` are what it has besides the site."""

    address: str
    photos: dict[str, bytes] = field(default_factory=dict)


class _Handler(SimpleHTTPRequestHandler):
    server: Any

    def do_GET(self):
        name = self.path.rpartition("/photos/")[2]
        if self.path == "/empty.html":
            self._send(b"<!doctype html><title>empty</title>", "text/html")
        elif name in self.server.photos:
            self._send(self.server.photos[name], "application/octet-stream")
        else:
            super().do_GET()

    def end_headers(self):
        if self.server.isolated:
            self.send_header("Cross-Origin-Opener-Policy", "same-origin")
            self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        super().end_headers()

    def log_message(self, *_):
        pass

    def _send(self, content, kind):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def serving(folder, *, isolated=False):
    """The folder on a server; isolated, with the headers that let threads share memory."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, directory=str(folder)))
    served = SiteServer(f"http://127.0.0.1:{server.server_port}")
    server.photos, server.isolated = served.photos, isolated
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The folder with a recognizer."""
    folder = tmp_path_factory.mktemp("web") / "site"
    write_site(folder, "facerts-small")
    return folder


@pytest.fixture(scope="module")
def served(site):
    with serving(site) as server:
        yield server


@pytest.fixture(scope="session")
def scorer():
    return facerts.load(threads=1)


@pytest.fixture(scope="session")
def astronaut():
    """A photo of one face."""
    return np.ascontiguousarray(skimage.data.astronaut())


@pytest.fixture
def reading(page, served, requested):
    """What the module says of an encoded image, by name and content; it asks its own server alone."""
    open_module(page, served)

    def read(content, name="photo", **options):
        served.photos[name] = content
        return page.evaluate(READ, [name, options])

    yield read
    assert of_others(requested, served.address) == []


def open_module(page, served, **options):
    """Load the module in a page that has nothing else, as another application would."""
    page.goto(f"{served.address}/empty.html")
    page.evaluate("async (options) => { window.facerts = await (await import('/facerts.js')).load(options); }", options)


def differences(rows, answer):
    """Where an answer of the module differs from Python's rows of the image by more than it may."""
    if rows[0].error is not None or answer["error"] is not None:
        return [] if rows[0].error and answer["error"] else [f"{rows[0].error!r}, not {answer['error']!r}"]
    expected = [row for row in rows if row.face is not None]
    if len(expected) != len(answer["faces"]):
        return [f"{len(answer['faces'])} faces, not {len(expected)}"]
    found = []
    for row, face in zip(expected, answer["faces"], strict=True):
        points = None if face["points"] is None else np.ravel(face["points"])
        values = {
            "box": (row.box, face["box"], PIXELS),
            "points": (row.points, points, PIXELS),
            "det_score": (row.det_score, face["det_score"], QUALITY),
            "pose": (row.pose, face["pose"], 0.5),
            "quality": (row.quality, face["quality"], QUALITY),
            "uncertainty": (row.uncertainty, face["uncertainty"], 10 * QUALITY),
            "percentile": (row.percentile, face["percentile"], 1.0),
        }
        for name, (one, other, most) in values.items():
            if (one is None) != (other is None) or (one is not None and not np.allclose(one, other, 0, most)):
                found.append(f"face {row.face}: {name} {other}, not {one}")
        for name in ("rotation", "verdict", "accepted"):
            if getattr(row, name) != face[name]:
                found.append(f"face {row.face}: {name} {face[name]}, not {getattr(row, name)}")
        if list(row.reasons) != face["reasons"]:
            found.append(f"face {row.face}: {face['reasons']}, not {row.reasons}")
    return found
