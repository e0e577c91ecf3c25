"""Pages of other sites: those whose names resolve to this machine, and those that post without reading the response."""

import pytest

from facerts.serving import Settings, build
from facerts.serving.access import AccessControl
from tests.command import run
from tests.serving.conftest import address, crop, in_loop, refused, running, talk

OWN = ("127.0.0.1", "localhost", "LOCALHOST", "localhost.", "127.8.9.10", "[::1]", "[::ffff:127.0.0.1]")
FOREIGN = (
    *("evil.example", "127.0.0.1.evil.example", "localhost.evil.example"),
    *("10.0.0.5", "[2001:db8::1]", "0.0.0.0"),
    # Broken ones.
    *("", ":80", "localhost@evil.example", "localhost/evil", "localhost evil"),
    *("[::1", "::1", "localhost:port"),
)
PATHS = ("/", "/healthz", "/metrics", "/v1/model", "/openapi.json", "/nowhere")


def get(client, host, path="/healthz"):
    return client.get(path, headers={"host": host}).status_code


def post(client, *origins, host=None):
    headers = [("content-type", "image/png"), *(("origin", origin) for origin in origins)]
    if host is not None:
        headers.append(("host", host))
    return client.post("/v1/score", content=crop(9), headers=headers)


def test_a_service_answers_to_its_own_names_and_to_no_others(client):
    for host in (*OWN, *(f"{host}:8000" for host in OWN)):
        assert get(client, host) == 200, host
        assert post(client, f"http://{host}", host=host).status_code == 200, host
    for host in FOREIGN:
        assert [get(client, host, path) for path in PATHS] == [421] * len(PATHS), host
    response = post(client, "http://evil.example:8000", host="evil.example:8000")
    refused(response, (421, "wrong_host"), "serve.allowed_hosts")
    # The connection is of use for the next request.
    assert client.get("/healthz").status_code == 200
    # HTTP/1.0 needs no host, and names none.
    assert talk(client, b"GET /healthz HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 421 ")


@pytest.mark.parametrize(
    "origin",
    [
        *("http://evil.example", "null", "", "http://localhost.evil.example:{port}", "http://localhost"),
        *("http://localhost:1", "https://localhost", "http://127.0.0.1:{port}", "localhost:{port}"),
        *("http://localhost:{port}/", "http://evil@localhost:{port}"),
    ],
)
def test_pages_of_other_origins_may_not_post(client, origin):
    port = address(client)[1]
    response = post(client, origin.format(port=port), host=f"localhost:{port}")
    refused(response, (403, "foreign_origin"), "serve.allowed_origins")


def test_what_is_no_browsers_post_needs_no_origin(client):
    assert post(client).status_code == 200
    # Who only reads is kept from the response by the browser.
    read = client.get("/v1/model", headers={"origin": "http://evil.example"})
    assert read.status_code == 200
    assert "access-control-allow-origin" not in read.headers
    own = f"http://127.0.0.1:{address(client)[1]}"
    assert post(client, own).status_code == 200
    assert post(client, own, "http://evil.example").status_code == 403


def test_names_and_origins_may_be_added(scorer):
    settings = Settings(
        allowed_hosts=("Faces.Example", "192.0.2.7", "[2001:db8::7]"),
        allowed_origins=("https://App.example:8443", "https://outside.example"),
    )
    with running(scorer, settings) as client:
        for host in (*OWN, "faces.example", "FACES.example:443", "192.0.2.7:80", "[2001:DB8:0::7]:1"):
            assert get(client, host) == 200, host
        for host in (*FOREIGN, "www.faces.example", "192.0.2.8"):
            assert get(client, host) == 421, host
        # A proxy that passes the host on, and one that does not.
        for origin, host, status in (
            ("https://faces.example", "faces.example", 200),
            ("https://faces.example", "faces.example:443", 200),
            ("http://faces.example", "faces.example:80", 200),
            ("https://faces.example:8443", "faces.example:8443", 200),
            ("https://outside.example", "127.0.0.1:8000", 200),
            ("https://app.example:8443", "localhost", 200),
            ("http://outside.example", "localhost", 403),
            ("https://app.example", "localhost", 403),
            ("https://faces.example", "faces.example:80", 403),
            ("https://faces.example", "localhost", 403),
        ):
            assert post(client, origin, host=host).status_code == status, (origin, host)


def test_each_check_can_be_switched_off(scorer):
    with running(scorer, Settings(allowed_hosts=("*",))) as client:
        assert {get(client, host) for host in (*FOREIGN, "anything")} == {200}
        assert post(client, "http://evil.example").status_code == 403
    with running(scorer, Settings(allowed_origins=("*",))) as client:
        assert post(client, "http://evil.example").status_code == post(client, "null").status_code == 200
        assert get(client, "evil.example") == 421


@in_loop
async def test_the_address_that_a_request_came_in_on_is_a_name_of_the_service(scorer):
    """As where it listens on all addresses, 0.0.0.0."""
    app = build(scorer, Settings())
    sent = []

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        sent.append(message)

    for host, server, expected in (
        ("192.0.2.7:8000", ("192.0.2.7", 8000), 200),
        ("192.0.2.7:8000", ("::ffff:192.0.2.7", 8000), 200),
        ("[2001:db8::7]:8000", ("2001:db8::7", 8000), 200),
        ("192.0.2.8:8000", ("192.0.2.7", 8000), 421),
        ("192.0.2.7:8000", None, 421),
        ("socket", ("/run/socket", None), 421),
    ):
        scope = {"type": "http", "http_version": "1.1", "method": "GET", "scheme": "http", "root_path": ""}
        request = {"path": "/healthz", "query_string": b"", "headers": [(b"host", host.encode())]}
        sent.clear()
        await app({**scope, **request, "server": server}, receive, send)
        assert sent[0]["status"] == expected, (host, server)


def test_the_command_passes_the_names_on_and_adds_the_one_to_listen_on(model_file, monkeypatch, capsys):
    given = []
    monkeypatch.setattr("facerts.serving.build", lambda scorer, settings: given.append(settings))
    # Nobody has this name, so nothing is opened.
    options = ("--host", "faces.invalid", "--token", "a", "--set", "serve.allowed_hosts=a.invalid,b.invalid")
    more = ("--set", "serve.allowed_origins=https://c.invalid")
    assert run("serve", "--model", model_file, *options, *more) == 2
    assert "cannot listen on faces.invalid" in capsys.readouterr().err
    assert given[0].allowed_hosts == ["a.invalid", "b.invalid", "faces.invalid"]
    assert given[0].allowed_origins == ["https://c.invalid"]


@in_loop
async def test_cookies_of_other_services_on_this_host_are_not_even_parsed():
    seen = []

    async def app(scope, receive, send):
        seen.extend(scope["headers"])

    headers = [(b"host", b"localhost"), (b"cookie", b'a="' + 5000 * b"\\1" + b'"'), (b"accept", b"*/*")]
    scope = {"type": "http", "method": "GET", "headers": headers}
    await AccessControl(app, Settings())(scope, None, None)
    assert seen == [(b"host", b"localhost"), (b"accept", b"*/*")]
