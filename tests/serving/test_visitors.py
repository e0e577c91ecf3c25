"""Pages of other sites: those whose names resolve to this machine, and those that post without reading the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from facerts.scoring import Scorer
from facerts.serving import Settings, build
from tests.command import run
from tests.serving.conftest import Serve, address, crop, talk
from tests.serving.test_command import served

OWN = ("127.0.0.1", "localhost", "LOCALHOST", "localhost.", "127.8.9.10", "[::1]", "[::ffff:127.0.0.1]")
FOREIGN = (
    "evil.example",
    "127.0.0.1.evil.example",
    "localhost.evil.example",
    "10.0.0.5",
    "[2001:db8::1]",
    "0.0.0.0",
)
BROKEN = (
    "",
    ":80",
    "localhost@evil.example",
    "localhost/evil",
    "localhost evil",
    "[::1",
    "::1",
    "localhost:port",
)


def get(client: httpx.Client, host: str, path: str = "/healthz") -> httpx.Response:
    return client.get(path, headers={"host": host})


def post(client: httpx.Client, *origins: str, host: str | None = None) -> httpx.Response:
    headers = [("content-type", "image/png"), *(("origin", origin) for origin in origins)]
    if host is not None:
        headers.append(("host", host))
    return client.post("/v1/score", content=crop(9), headers=headers)


def refused(response: httpx.Response) -> str:
    return f"{response.status_code} {response.json()['code']}"


@pytest.mark.parametrize("host", OWN)
@pytest.mark.parametrize("port", ["", ":8000"])
def test_a_service_answers_to_its_own_names(client: httpx.Client, host: str, port: str) -> None:
    assert get(client, host + port).status_code == 200
    assert post(client, f"http://{host}{port}", host=host + port).status_code == 200


@pytest.mark.parametrize("host", [*FOREIGN, *BROKEN])
@pytest.mark.parametrize("path", ["/", "/healthz", "/metrics", "/v1/model", "/openapi.json", "/nowhere"])
def test_a_name_that_was_made_to_resolve_here_gets_nothing(
    client: httpx.Client, host: str, path: str
) -> None:
    assert refused(get(client, host, path)) == "421 wrong_host"


def test_who_is_not_let_in_is_answered_and_told_what_to_do(client: httpx.Client) -> None:
    response = post(client, "http://evil.example:8000", host="evil.example:8000")
    assert refused(response) == "421 wrong_host"
    assert "--allowed-host NAME" in response.json()["error"]
    # The connection is of use for the next request.
    assert client.get("/healthz").status_code == 200
    # HTTP/1.0 needs no host, and says none.
    assert talk(client, b"GET /healthz HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 421 ")


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "null",
        "",
        "http://localhost.evil.example:{port}",
        "http://localhost",
        "http://localhost:1",
        "https://localhost",
        "http://127.0.0.1:{port}",
        "localhost:{port}",
        "http://localhost:{port}/",
        "http://evil@localhost:{port}",
    ],
)
def test_pages_of_other_origins_may_not_post(client: httpx.Client, origin: str) -> None:
    port = address(client)[1]
    response = post(client, origin.format(port=port), host=f"localhost:{port}")
    assert refused(response) == "403 foreign_origin"
    assert "--allowed-origin ORIGIN" in response.json()["error"]


def test_what_is_no_browsers_post_needs_no_origin(client: httpx.Client) -> None:
    assert post(client).status_code == 200
    # Who only reads is kept from the answer by the browser.
    read = client.get("/v1/model", headers={"origin": "http://evil.example"})
    assert read.status_code == 200
    assert "access-control-allow-origin" not in read.headers
    own = f"http://127.0.0.1:{address(client)[1]}"
    assert post(client, own).status_code == 200
    assert refused(post(client, own, "http://evil.example")) == "403 foreign_origin"


@pytest.fixture(scope="module")
def proxied(scorer: Scorer, serve: Serve) -> Iterator[httpx.Client]:
    """Of a service that other names and pages are known for."""
    settings = Settings(
        allowed_hosts=("Faces.Example", "192.0.2.7", "[2001:db8::7]"),
        allowed_origins=("https://App.example:8443", "https://outside.example"),
    )
    with serve(scorer, settings) as client:
        yield client


def test_names_and_origins_may_be_added(proxied: httpx.Client) -> None:
    for host in (*OWN, "faces.example", "FACES.example:443", "192.0.2.7:80", "[2001:DB8:0::7]:1"):
        assert get(proxied, host).status_code == 200, host
    for host in (*FOREIGN, *BROKEN, "www.faces.example", "192.0.2.8"):
        assert refused(get(proxied, host)) == "421 wrong_host", host
    # A proxy that passes the host on, and one that does not.
    for origin, host in (
        ("https://faces.example", "faces.example"),
        ("https://faces.example", "faces.example:443"),
        ("http://faces.example", "faces.example:80"),
        ("https://faces.example:8443", "faces.example:8443"),
        ("https://outside.example", "127.0.0.1:8000"),
        ("https://app.example:8443", "localhost"),
    ):
        assert post(proxied, origin, host=host).status_code == 200, origin
    for origin, host in (
        ("http://outside.example", "localhost"),
        ("https://app.example", "localhost"),
        ("https://faces.example", "faces.example:80"),
        ("https://faces.example", "localhost"),
    ):
        assert refused(post(proxied, origin, host=host)) == "403 foreign_origin", origin


def test_each_check_can_be_switched_off(scorer: Scorer, serve: Serve) -> None:
    with serve(scorer, Settings(allowed_hosts=("*",))) as client:
        assert all(get(client, host).status_code == 200 for host in (*FOREIGN, "anything"))
        assert refused(post(client, "http://evil.example")) == "403 foreign_origin"
    with serve(scorer, Settings(allowed_origins=("*",))) as client:
        assert post(client, "http://evil.example").status_code == 200
        assert post(client, "null").status_code == 200
        assert refused(get(client, "evil.example")) == "421 wrong_host"


def test_the_address_that_a_request_came_in_on_is_a_name_of_the_service(scorer: Scorer) -> None:
    """As where it listens on all addresses, 0.0.0.0."""
    app = build(scorer, Settings())

    async def status(host: str, server: tuple[str, int | None] | None) -> int:
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        scope: dict[str, Any] = {
            "type": "http",
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "root_path": "",
        }
        scope |= {
            "path": "/healthz",
            "query_string": b"",
            "headers": [(b"host", host.encode())],
            "server": server,
        }
        await app(scope, receive, send)
        return int(sent[0]["status"])

    def answered(host: str, server: tuple[str, int | None] | None) -> int:
        return asyncio.run(status(host, server))

    assert answered("192.0.2.7:8000", ("192.0.2.7", 8000)) == 200
    assert answered("192.0.2.7:8000", ("::ffff:192.0.2.7", 8000)) == 200
    assert answered("[2001:db8::7]:8000", ("2001:db8::7", 8000)) == 200
    assert answered("192.0.2.8:8000", ("192.0.2.7", 8000)) == 421
    assert answered("192.0.2.7:8000", None) == 421
    assert answered("socket", ("/run/socket", None)) == 421


def test_the_command_takes_both_options(model_file: Path) -> None:
    options = (
        "--allowed-host",
        "faces.example",
        "--allowed-host",
        "a.example",
        "--allowed-origin",
        "https://b.example",
    )
    with served("--model", model_file, "--host", "localhost", *options) as (_, client):
        assert client.get("/healthz").status_code == 200
        assert [get(client, host).status_code for host in ("faces.example", "a.example", "b.example")] == [
            200,
            200,
            421,
        ]
        assert post(client, "https://b.example").status_code == 200
        assert post(client, "https://evil.example").status_code == 403


def test_the_name_to_listen_on_is_one_of_the_service(
    model_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given: list[Settings] = []
    monkeypatch.setattr("facerts.serving.build", lambda scorer, settings: given.append(settings))
    # Nobody has this name, so nothing is opened.
    host = ("--host", "faces.invalid", "--token", "a")
    assert run("serve", "--model", model_file, *host, "--allowed-host", "other.invalid") == 2
    assert "cannot listen on faces.invalid" in capsys.readouterr().err
    assert given[0].allowed_hosts == ("other.invalid", "faces.invalid")
