import hashlib
import http.client
import json
import re
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import NamedTuple

import numpy as np
import pytest

from facerts.errors import ModelError
from facerts.hub import catalog, fetch
from facerts.hub.catalog import catalog_models, in_catalog
from facerts.hub.fetch import find_file, locate, remove
from facerts.io.cache import cache_folder
from facerts.io.files import locked
from tests.command import printed_json, refused, run

CONTENT = np.random.default_rng(0).bytes(200_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
FILE = "tiny.onnx"


class Response(NamedTuple):
    """A response of the server.

    Attributes:
        length: the Content-Length header, if it differs from the body's.
        ranges: whether only the part that was asked for is sent.
        first: the first byte that the Content-Range header names, if it is not the one that was asked for.
        pause: seconds without a byte, in the middle of the body.
    """

    status: int = 200
    body: bytes = CONTENT
    length: int | None = None
    ranges: bool = False
    first: int | None = None
    pause: float = 0.0


class Server:
    """Gives each path its responses in turn, repeating the last one, and counts the requests."""

    def __init__(self):
        self.responses = {}
        self.requests = Counter()
        self.ranges = []
        self.closing = Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                responses = server.responses[self.path]
                response = responses[min(server.requests[self.path], len(responses) - 1)]
                server.requests[self.path] += 1
                asked = self.headers.get("Range")
                server.ranges.append(asked)
                if response.ranges and asked is not None:
                    start = int(asked.removeprefix("bytes=").removesuffix("-"))
                    if start >= len(response.body):
                        response = Response(416, b"")
                    else:
                        response = response._replace(status=206, body=response.body[start:])
                        shown = start if response.first is None else response.first
                self.send_response(response.status)
                if response.status == 206:
                    self.send_header("Content-Range", f"bytes {shown}-{len(CONTENT) - 1}/{len(CONTENT)}")
                if response.status in {301, 302, 303, 307}:
                    self.send_header("Location", response.body.decode())
                self.send_header("Content-Length", str(response.length or len(response.body)))
                self.end_headers()
                half = len(response.body) // 2
                self.wfile.write(response.body[:half])
                if server.closing.wait(response.pause):
                    return
                with suppress(OSError):  # the client may be gone
                    self.wfile.write(response.body[half:])

            def log_message(self, *_): ...

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=self.http.serve_forever, daemon=True).start()

    def close(self):
        self.closing.set()
        self.http.shutdown()
        self.http.server_close()

    def url(self, path, scheme="https"):
        return f"{scheme}://127.0.0.1:{self.http.server_port}{path}"


class Unencrypted(http.client.HTTPConnection):
    """Replaces https connections: a real https server would need a trusted certificate."""

    def __init__(self, host, *, context=None, check_hostname=None, **options):
        super().__init__(host, **options)


@pytest.fixture(scope="module")
def running():
    server = Server()
    yield server
    server.close()


@pytest.fixture
def server(running, tmp_path, monkeypatch):
    """A server with the file at two URLs, a list of downloads that names them, and an empty cache."""
    running.responses = {"/first": [Response()], "/second": [Response()]}
    running.requests.clear()
    running.ranges.clear()
    write_downloads(tmp_path / "catalog.json", [running.url("/first"), running.url("/second")])
    monkeypatch.setattr(catalog, "CATALOG", tmp_path / "catalog.json")
    monkeypatch.setattr(fetch, "PAUSE_S", 0.0)
    monkeypatch.setattr(http.client, "HTTPSConnection", Unencrypted)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("FACERTS_OFFLINE")
    monkeypatch.setenv("FACERTS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FACERTS_MODELS", str(tmp_path / "elsewhere"))
    return running


def write_downloads(path, urls, **changes):
    entry = {
        "name": "tiny",
        "file": FILE,
        "urls": urls,
        "sha256": SHA256,
        "bytes": len(CONTENT),
        "kind": "detector",
        "summary": "for tests",
        "terms": "none",
        "commercial": "yes",
        "source": "this test",
    }
    path.write_text(json.dumps({"schema": "facerts.catalog/1", "models": [entry | changes]}))


def pull(name, source=None, mirror=None):
    return fetch.fetch(in_catalog(name), source, mirror)


def assert_nothing_was_stored():
    assert not cache_folder().exists() or list(cache_folder().iterdir()) == []
    assert locate(catalog_models()[0]) is None


@pytest.mark.parametrize("setting", ["1", "yes"])
def test_nothing_is_downloaded_offline(server, setting, tmp_path, monkeypatch):
    monkeypatch.setenv("FACERTS_OFFLINE", setting)
    with pytest.raises(ModelError, match="tiny is not on this machine, and FACERTS_OFFLINE forbids"):
        pull("tiny")
    (tmp_path / "copied").write_bytes(CONTENT)
    assert pull("tiny", tmp_path / "copied") == find_file("tiny") == pull("tiny")
    assert server.requests == {}
    (cache_folder() / FILE).unlink()
    monkeypatch.setenv("FACERTS_OFFLINE", "0")
    assert pull("tiny").exists()


def test_redirects_are_followed(server):
    server.responses["/first"] = [Response(302, server.url("/second").encode())]
    assert pull("tiny").read_bytes() == CONTENT


@pytest.mark.parametrize("code", [301, 302, 303, 307])
def test_redirects_to_http_are_refused(server, code):
    server.responses["/first"] = [Response(code, server.url("/second", "http").encode())]
    server.responses["/second"] = [Response(404, b"no")]
    with pytest.raises(ModelError, match=r"/first: redirects to http://127\S+/second, which is not https"):
        pull("tiny")
    # Only the model's second URL is tried then, by https.
    assert server.requests == {"/first": 1, "/second": 1}
    assert_nothing_was_stored()


def test_an_http_url_is_refused(server, tmp_path):
    write_downloads(tmp_path / "catalog.json", [server.url("/first", "http")])
    with pytest.raises(ModelError, match=r"catalog\.json: models\.0\.urls\.0: String should match pattern .*https"):
        pull("tiny")
    assert server.requests == {}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (Response(body=CONTENT[:-1] + b"x"), "its SHA-256 is [0-9a-f]{64}, but that of tiny is " + SHA256),
        (Response(body=CONTENT + b"x"), "more than 200,000 bytes; tiny has 200,000 bytes"),
        (Response(404, b"no"), "HTTP Error 404"),
    ],
    ids=["other", "longer", "gone"],
)
def test_a_permanent_failure_moves_on_to_the_next_url(server, wrong, words):
    server.responses["/first"] = [wrong]
    assert pull("tiny").read_bytes() == CONTENT
    assert server.requests == {"/first": 1, "/second": 1}
    (cache_folder() / FILE).unlink()
    server.responses["/second"] = [wrong]
    with pytest.raises(ModelError, match=rf"(?s)/first: .*{words}.*/second: .*{words}"):
        pull("tiny")
    assert_nothing_was_stored()


@pytest.mark.parametrize(
    "temporary",
    [Response(503, b""), Response(429, b""), Response(body=CONTENT[:70_000], length=len(CONTENT))],
)
def test_a_temporary_failure_is_retried(server, temporary):
    server.responses["/first"] = [temporary, temporary, Response()]
    assert pull("tiny").read_bytes() == CONTENT
    assert server.requests == {"/first": 3}


def test_a_slow_server_is_waited_for_up_to_a_limit(server, monkeypatch):
    server.responses["/first"] = [Response(pause=0.3)]
    assert pull("tiny").read_bytes() == CONTENT
    remove(in_catalog("tiny"))
    # One that stops sending is given up, and asked again for the rest.
    monkeypatch.setattr(fetch, "TIMEOUT_S", 2.0)
    server.responses["/first"] = [Response(pause=60), Response(ranges=True)]
    server.requests.clear()
    server.ranges.clear()
    assert pull("tiny").read_bytes() == CONTENT
    assert server.ranges == [None, f"bytes={fetch.BLOCK}-"]


CUT = Response(body=CONTENT[:70_000], length=len(CONTENT))


def test_an_interrupted_download_continues_where_it_ended(server, monkeypatch):
    server.responses["/first"] = [CUT] * fetch.ATTEMPTS
    server.responses["/second"] = [Response(503, b"")]
    with pytest.raises(ModelError, match="ended 130,000 bytes too early"):
        pull("tiny")
    assert locate(in_catalog("tiny")) is None
    part = cache_folder() / f".{FILE}.part"
    assert part.read_bytes() == CONTENT[:70_000]
    # The next attempt, which may be at another address, asks for the rest only.
    server.responses = {"/first": [Response(404, b"")], "/second": [Response(ranges=True)]}
    server.ranges.clear()
    assert pull("tiny").read_bytes() == CONTENT
    assert server.ranges[-1] == "bytes=70000-"
    assert [file.name for file in cache_folder().iterdir()] == [FILE]


@pytest.mark.parametrize(
    ("answers", "ranges"),
    [
        ([Response()], ["bytes=70000-"]),
        ([Response(ranges=True, first=5), Response()], ["bytes=70000-", None]),
        ([Response(body=CONTENT[:70_000], ranges=True), Response()], ["bytes=70000-", None]),
    ],
    ids=["the server ignores it", "it sends another part", "it has nothing more"],
)
def test_a_download_that_cannot_continue_begins_anew(server, answers, ranges):
    cache_folder().mkdir()
    (cache_folder() / f".{FILE}.part").write_bytes(CONTENT[:70_000])
    server.responses["/first"] = answers
    assert pull("tiny").read_bytes() == CONTENT
    assert server.ranges == ranges
    assert server.requests == {"/first": len(answers)}


def test_a_spoilt_beginning_is_thrown_away(server):
    cache_folder().mkdir()
    (cache_folder() / f".{FILE}.part").write_bytes(b"x" * 70_000)
    server.responses["/first"] = [Response(ranges=True)]
    assert pull("tiny").read_bytes() == CONTENT
    assert server.ranges == ["bytes=70000-", None]


def test_a_link_in_the_place_of_an_unfinished_download_is_refused(server, tmp_path):
    mine = tmp_path / "mine"
    mine.write_bytes(b"mine")
    cache_folder().mkdir()
    (cache_folder() / f".{FILE}.part").symlink_to(mine)
    with pytest.raises(ModelError, match=r"\.part is a link"):
        pull("tiny")
    assert mine.read_bytes() == b"mine"


def test_a_mirror_comes_first_and_may_be_http(server):
    server.responses[f"/models/{FILE}"] = [Response()]
    assert pull("tiny", mirror=server.url("/models/", "http")).read_bytes() == CONTENT
    assert server.requests == {f"/models/{FILE}": 1}
    remove(in_catalog("tiny"))
    server.responses[f"/models/{FILE}"] = [Response(body=CONTENT[:-1] + b"x")]
    assert pull("tiny", mirror=server.url("/models")).read_bytes() == CONTENT
    assert server.requests["/first"] == 1
    remove(in_catalog("tiny"))
    with pytest.raises(ModelError, match="ftp://x: a mirror is an address that begins with http"):
        pull("tiny", mirror="ftp://x")


def test_a_file_of_about_a_size_is_known_by_its_hash(server, tmp_path):
    about = {"bytes": None, "about_bytes": 100_000}
    write_downloads(tmp_path / "catalog.json", [server.url("/first")], **about)
    server.responses["/first"] = [Response(body=CONTENT + bytes(200_000))]
    with pytest.raises(ModelError, match="more than 300,000 bytes; tiny has about 0 MB"):
        pull("tiny")
    assert_nothing_was_stored()
    server.responses["/first"] = [CUT, Response()]
    server.requests.clear()
    assert pull("tiny").read_bytes() == CONTENT


def test_a_file_without_an_address_is_installed_by_hand(server, tmp_path):
    write_downloads(tmp_path / "catalog.json", [])
    with pytest.raises(ModelError, match=rf"no address is known for {FILE} \(this test\).*{SHA256}.*--from FILE"):
        pull("tiny")
    (tmp_path / "copy").write_bytes(CONTENT)
    assert pull("tiny", tmp_path / "copy").read_bytes() == CONTENT


def test_two_processes_download_a_file_once(server, capsys):
    with ThreadPoolExecutor(1) as pool, locked(cache_folder() / FILE):
        other = pool.submit(pull, "tiny")
        said = ""
        while "waiting for another process" not in said and not other.done():
            said += capsys.readouterr().err
            time.sleep(0.01)
        assert not other.done()
        (cache_folder() / FILE).write_bytes(CONTENT)
    assert other.result() == cache_folder() / FILE
    assert server.requests == {}


def test_a_file_downloaded_elsewhere_is_checked_too(server, tmp_path):
    copied = tmp_path / "download (1)"
    copied.write_bytes(CONTENT[:-1])
    with pytest.raises(ModelError, match=r"download \(1\): 199,999 bytes, but tiny has 200,000"):
        pull("tiny", copied)
    copied.write_bytes(CONTENT[:-1] + b"x")
    with pytest.raises(ModelError, match=r"download \(1\): its SHA-256 is"):
        pull("tiny", copied)
    with pytest.raises(ModelError, match=r"gone: cannot be read \(No such file"):
        pull("tiny", tmp_path / "gone")
    assert_nothing_was_stored()
    copied.write_bytes(CONTENT)
    assert pull("tiny", copied).read_bytes() == CONTENT
    assert server.requests == {}


def test_a_file_in_the_models_folder_is_found_if_its_hash_matches(server, tmp_path):
    elsewhere = tmp_path / "elsewhere" / FILE
    elsewhere.parent.mkdir()
    elsewhere.write_bytes(b"other")
    with pytest.raises(ModelError, match=rf"tiny is not on this machine.*; {elsewhere}: its SHA-256 is"):
        find_file("tiny")
    elsewhere.write_bytes(CONTENT)
    assert find_file("tiny") == elsewhere
    # The cache comes first; a broken file in it is ignored and replaced.
    cache_folder().mkdir()
    (cache_folder() / FILE).write_bytes(b"broken")
    assert find_file("tiny") == pull("tiny") == elsewhere
    elsewhere.unlink()
    assert pull("tiny").read_bytes() == CONTENT
    assert find_file("tiny") == cache_folder() / FILE


def test_a_cache_that_cannot_be_written_is_named(server, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FACERTS_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(ModelError, match=r"tiny\.onnx: cannot be written \(Not a directory\); set FACERTS_CACHE"):
        pull("tiny")


def test_the_cache_is_in_the_platforms_cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("FACERTS_CACHE", "here")
    assert cache_folder() == Path("here")
    monkeypatch.delenv("FACERTS_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    assert cache_folder() == tmp_path / ".cache" / "facerts"
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert cache_folder() == Path("/caches/facerts")
    monkeypatch.setattr("sys.platform", "darwin")
    assert cache_folder() == tmp_path / "Library" / "Caches" / "facerts"


def test_the_commands_download_list_and_find_models(server, tmp_path, capsys):
    assert run("models", "list") == 0
    assert re.search(r"tiny +detector +yes +0\.2 MB +not run +to pull", capsys.readouterr().out)
    assert run("models", "path", "tiny") == 2
    assert "the model tiny is not on this machine: run facerts models pull tiny" in capsys.readouterr().err
    assert "no model 'other' in the catalog" in refused(capsys, "models", "pull", "other")
    (tmp_path / "copied").write_bytes(CONTENT)
    assert run("models", "pull", "tiny", "--from", tmp_path / "copied") == 0
    assert server.requests == {}
    (cache_folder() / FILE).unlink()
    assert run("models", "pull", "tiny", "--json") == 0
    assert f'"file": "{cache_folder() / FILE}"' in capsys.readouterr().out
    assert server.requests == {"/first": 1}
    (tiny,) = [entry for entry in printed_json(capsys, "models", "list")["models"] if entry["name"] == "tiny"]
    assert tiny["path"] == str(cache_folder() / FILE)
    assert run("models", "path", "tiny") == 0
    assert capsys.readouterr().out == f"{cache_folder() / FILE}\n"
    assert run("models", "remove", "tiny") == 0
    assert_nothing_was_stored()
    assert "tiny is not on this machine" in refused(capsys, "models", "remove", "tiny")
