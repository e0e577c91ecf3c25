from __future__ import annotations

import hashlib
import http.client
import itertools
import json
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import numpy as np
import pytest

from facerts.errors import ModelError
from facerts.hub import fetch as pulling
from facerts.hub.fetch import cache_folder, downloadable_models, find_downloaded, locate, pull
from facerts.hub.registry import shipped_models
from tests.command import run

CONTENT = np.random.default_rng(0).bytes(200_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
FILE = "tiny.onnx"


class Answer(NamedTuple):
    """What the server says: a status, and the first bytes of a body that its header may make longer."""

    status: int = 200
    body: bytes = CONTENT
    length: int | None = None


class Server:
    """Gives each path its answers one after the other, the last one again and again, and counts them."""

    def __init__(self) -> None:
        self.answers: dict[str, list[Answer]] = {}
        self.asked: Counter[str] = Counter()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                answers = server.answers[self.path]
                answer = answers[min(server.asked[self.path], len(answers) - 1)]
                server.asked[self.path] += 1
                self.send_response(answer.status)
                if answer.status in {301, 302, 303, 307}:
                    self.send_header("Location", answer.body.decode())
                self.send_header("Content-Length", str(answer.length or len(answer.body)))
                self.end_headers()
                self.wfile.write(answer.body)

            def log_message(self, *_: Any) -> None: ...

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=self.http.serve_forever, daemon=True).start()

    def url(self, path: str, scheme: str = "https") -> str:
        return f"{scheme}://127.0.0.1:{self.http.server_port}{path}"


class Unencrypted(http.client.HTTPConnection):
    """Stands for a connection by https: a server of its own would need a certificate that everybody trusts."""

    def __init__(
        self, host: str, *, context: object = None, check_hostname: object = None, **options: Any
    ) -> None:
        super().__init__(host, **options)


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    server = Server()
    yield server
    server.http.shutdown()
    server.http.server_close()


@pytest.fixture
def server(running: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    """A server of two addresses that both have the file, a registry that names them, and an empty cache."""
    running.answers = {"/first": [Answer()], "/second": [Answer()]}
    running.asked.clear()
    write_registry(tmp_path / "pull.json", [running.url("/first"), running.url("/second")])
    monkeypatch.setattr(pulling, "REGISTRY", tmp_path / "pull.json")
    monkeypatch.setattr(pulling, "PAUSE_S", 0.0)
    monkeypatch.setattr(http.client, "HTTPSConnection", Unencrypted)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("FACERTS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FACERTS_MODELS", str(tmp_path / "elsewhere"))
    return running


def write_registry(path: Path, urls: list[str], **changes: Any) -> None:
    entry = {
        "name": "tiny",
        "file": FILE,
        "urls": urls,
        "sha256": SHA256,
        "bytes": len(CONTENT),
        "summary": "for tests",
        "terms": "none",
    }
    path.write_text(json.dumps({"schema": "facerts.pull/1", "models": [entry | changes]}))


def assert_nothing_was_kept() -> None:
    assert not cache_folder().exists() or list(cache_folder().iterdir()) == []
    assert locate(downloadable_models()[0]) is None


def test_a_model_is_fetched_once(server: Server) -> None:
    with pytest.raises(ModelError, match="the model tiny is not here: facerts models pull tiny fetches it"):
        find_downloaded("tiny")
    path = pull("tiny")
    assert path == cache_folder() / FILE
    assert path.read_bytes() == CONTENT
    assert [file.name for file in cache_folder().iterdir()] == [FILE]
    assert find_downloaded("tiny") == path
    assert pull("tiny") == path
    assert server.asked == {"/first": 1}


def test_redirections_are_followed(server: Server) -> None:
    server.answers["/first"] = [Answer(302, server.url("/second").encode())]
    assert pull("tiny").read_bytes() == CONTENT


@pytest.mark.parametrize("code", [301, 302, 303, 307])
def test_no_address_leads_on_to_one_that_others_can_read(server: Server, code: int) -> None:
    server.answers["/first"] = [Answer(code, server.url("/second", "http").encode())]
    server.answers["/second"] = [Answer(404, b"no")]
    with pytest.raises(ModelError, match=r"/first: leads on to http://127\S+/second, which is not https"):
        pull("tiny")
    # The other address of the model is asked, and that one alone, by https.
    assert server.asked == {"/first": 1, "/second": 1}
    assert_nothing_was_kept()


def test_an_address_that_others_can_read_is_refused(server: Server, tmp_path: Path) -> None:
    write_registry(tmp_path / "pull.json", [server.url("/first", "http")])
    with pytest.raises(
        ModelError, match=r"pull\.json: models\.0\.urls\.0: String should match pattern .*https"
    ):
        pull("tiny")
    assert server.asked == {}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (Answer(body=CONTENT[:-1] + b"x"), "its SHA-256 is [0-9a-f]{64}, and that of tiny is " + SHA256),
        (Answer(body=CONTENT + b"x"), "more than 200,000 bytes, and tiny has 200,000"),
        (Answer(404, b"no"), "HTTP Error 404"),
    ],
    ids=["other", "longer", "gone"],
)
def test_what_will_not_change_is_asked_for_once_and_then_elsewhere(
    server: Server, wrong: Answer, words: str
) -> None:
    server.answers["/first"] = [wrong]
    assert pull("tiny").read_bytes() == CONTENT
    assert server.asked == {"/first": 1, "/second": 1}
    (cache_folder() / FILE).unlink()
    server.answers["/second"] = [wrong]
    with pytest.raises(ModelError, match=rf"(?s)/first: .*{words}.*/second: .*{words}"):
        pull("tiny")
    assert_nothing_was_kept()


@pytest.mark.parametrize(
    "passing", [Answer(503, b""), Answer(429, b""), Answer(body=CONTENT[:70_000], length=len(CONTENT))]
)
def test_what_may_change_is_asked_for_again(server: Server, passing: Answer) -> None:
    server.answers["/first"] = [passing, passing, Answer()]
    assert pull("tiny").read_bytes() == CONTENT
    assert server.asked == {"/first": 3}


def test_a_file_that_is_too_large_is_not_read_to_its_end(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def endless(path: Path) -> Iterator[bytes]:
        for number in itertools.count():
            assert number < 5
            yield CONTENT[:50_000]

    monkeypatch.setattr(pulling, "_read", endless)
    with pytest.raises(ModelError, match="endless: more than 200,000 bytes"):
        pull("tiny", "endless")
    assert_nothing_was_kept()


def test_without_a_network_the_way_is_told(server: Server, tmp_path: Path) -> None:
    # Nobody listens on port 9 here.
    write_registry(tmp_path / "pull.json", ["https://127.0.0.1:9/tiny.onnx"])
    with pytest.raises(ModelError) as error:
        pull("tiny")
    for told in (
        "https://127.0.0.1:9/tiny.onnx: ",
        "refused",
        "200,000 bytes",
        SHA256,
        "facerts models pull tiny --from FILE",
        str(cache_folder() / FILE),
    ):
        assert told in str(error.value)
    assert_nothing_was_kept()


def test_a_file_that_was_carried_over_is_checked_alike(server: Server, tmp_path: Path) -> None:
    carried = tmp_path / "download (1)"
    carried.write_bytes(CONTENT[:-1])
    with pytest.raises(ModelError, match=r"download \(1\): 199,999 bytes, and tiny has 200,000"):
        pull("tiny", carried)
    carried.write_bytes(CONTENT[:-1] + b"x")
    with pytest.raises(ModelError, match=r"download \(1\): its SHA-256 is"):
        pull("tiny", carried)
    with pytest.raises(ModelError, match=r"gone: cannot be read \(No such file"):
        pull("tiny", tmp_path / "gone")
    assert_nothing_was_kept()
    carried.write_bytes(CONTENT)
    assert pull("tiny", carried).read_bytes() == CONTENT
    assert server.asked == {}


def test_a_file_in_the_folder_of_models_is_found_if_it_is_the_right_one(
    server: Server, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere" / FILE
    elsewhere.parent.mkdir()
    elsewhere.write_bytes(b"other")
    with pytest.raises(ModelError, match=rf"tiny is not here.*; {elsewhere}: its SHA-256 is"):
        find_downloaded("tiny")
    elsewhere.write_bytes(CONTENT)
    assert find_downloaded("tiny") == elsewhere
    # The cache comes first, and a broken file in it is passed over and replaced.
    cache_folder().mkdir()
    (cache_folder() / FILE).write_bytes(b"broken")
    assert find_downloaded("tiny") == elsewhere
    assert pull("tiny").read_bytes() == CONTENT
    assert find_downloaded("tiny") == cache_folder() / FILE


def test_a_cache_that_cannot_be_written_is_named(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FACERTS_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(
        ModelError, match=r"tiny\.onnx: cannot be written \(Not a directory\); set FACERTS_CACHE"
    ):
        pull("tiny")


def test_the_cache_is_where_the_platform_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    monkeypatch.setattr("sys.platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert cache_folder() == tmp_path / "local" / "facerts" / "Cache"


def test_an_unknown_name_is_told_the_nearest_one(server: Server) -> None:
    with pytest.raises(ModelError, match=r"no model 'tini' to fetch, did you mean 'tiny'\?; there are tiny"):
        pull("tini")


def test_the_commands_fetch_list_and_find(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def listed() -> dict[str, Any]:
        assert run("models", "list", "--json") == 0
        (tiny,) = [entry for entry in json.loads(capsys.readouterr().out) if not entry["ships"]]
        assert isinstance(tiny, dict)
        return tiny

    assert listed()["path"] is None
    assert run("models", "list") == 0
    assert "facerts models pull tiny" in capsys.readouterr().out
    assert run("models", "path", "tiny") == 2
    assert run("models", "pull", "other") == 2
    assert "no model 'other' to fetch" in capsys.readouterr().err
    carried = tmp_path / "carried"
    carried.write_bytes(CONTENT)
    assert run("models", "pull", "tiny", "--from", carried) == 0
    assert server.asked == {}
    (cache_folder() / FILE).unlink()
    assert run("models", "pull", "tiny", "--json") == 0
    captured = capsys.readouterr()
    assert captured.out.endswith(
        json.dumps({"name": "tiny", "file": str(cache_folder() / FILE)}, indent=1) + "\n"
    )
    assert server.asked == {"/first": 1}
    assert listed()["path"] == str(cache_folder() / FILE)
    assert run("models", "path", "tiny") == 0
    assert capsys.readouterr().out == f"{cache_folder() / FILE}\n"


def test_what_can_be_fetched_is_pinned() -> None:
    models = downloadable_models()
    names = [model.name for model in models]
    assert "yunet" in names
    assert len(set(names)) == len(names)
    assert not set(names) & {model.name for model in shipped_models()}
    assert all(url.startswith("https://") for model in models for url in model.urls)


def test_the_pinned_detector_is_the_one_that_is_here(reference_models: Path) -> None:
    (yunet,) = [model for model in downloadable_models() if model.name == "yunet"]
    content = (reference_models / yunet.file).read_bytes()
    assert hashlib.sha256(content).hexdigest() == yunet.sha256
    assert len(content) == yunet.bytes
    assert all(url.endswith(f"/{yunet.file}") for url in yunet.urls)
