"""Clients on real sockets that are slow on purpose."""

import socket
import time
from contextlib import suppress

import pytest

from facerts.serving import Settings
from tests.serving.conftest import address, alive, crop, head, running, started, until

HEADERS, TIMEOUT = 1.0, 3.0
# Seconds after which a slow machine, too, would have closed a connection; without a limit it stays for ever.
PATIENCE = 30.0


@pytest.fixture(scope="module")
def client(scorer):
    with running(scorer, Settings(header_timeout=HEADERS, timeout=TIMEOUT)) as client:
        yield client


def closed_after(connection, drip=b""):
    """Seconds until the service closes a connection on which a byte is sent now and then, without a response."""
    began = time.monotonic()
    connection.settimeout(0.05)
    drops = iter(drip)
    try:
        while (past := time.monotonic() - began) < PATIENCE:
            with suppress(TimeoutError):
                assert connection.recv(1000) == b""
                return past
            if (drop := next(drops, None)) is not None:
                connection.send(bytes([drop]))
    except ConnectionError:
        return past
    raise AssertionError(f"the connection is still open after {PATIENCE} seconds")


def connect(client):
    return socket.create_connection(address(client), timeout=10)


ENDLESS = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + b"X-More: 1\r\n" * 1000


SLOW = pytest.mark.slow


@pytest.mark.parametrize("drip", [ENDLESS, pytest.param(b"G", marks=SLOW), pytest.param(b"", marks=SLOW)])
def test_headers_that_do_not_end_are_not_waited_for(client, drip):
    with connect(client) as connection:
        assert closed_after(connection, drip) >= HEADERS - 0.1
    assert alive(client)


@SLOW
def test_the_next_request_of_a_connection_is_not_waited_for_either(client):
    with connect(client) as connection:
        for _ in range(3):
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answer = b""
            while b'{"status":"ok"}' not in answer:
                answer += (more := connection.recv(1000))
                assert more, "the connection was closed"
            # Within the time all is well, again and again.
            time.sleep(HEADERS / 2)
        closed_after(connection, ENDLESS)
    assert alive(client)


@SLOW
def test_headers_that_come_with_the_body_before_are_not_waited_for(client):
    body = crop(9)
    with connect(client) as connection:
        connection.sendall(head(f"Content-Length: {len(body)}") + body + b"GET /healthz HTTP/1.1\r\nHo")
        while b"model_sha256" not in (more := connection.recv(100_000)):
            assert more, "the connection was closed"
        closed_after(connection)
    assert alive(client)


@SLOW
def test_a_slow_body_has_its_own_time(client):
    """Longer than headers may take, and no longer than bodies may."""
    body = crop(9)
    with connect(client) as connection:
        connection.sendall(head(f"Content-Length: {len(body)}", "Connection: close"))
        time.sleep(HEADERS * 1.5)
        connection.sendall(body)
        assert connection.recv(100).startswith(b"HTTP/1.1 200 ")


@SLOW
def test_a_response_that_is_not_read_is_not_kept(scorer):
    with started(scorer, Settings(header_timeout=HEADERS, timeout=TIMEOUT)) as (server, client):
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            connection.settimeout(10)
            connection.connect(address(client))
            # Their responses are more than the system keeps for a client, so the service has to wait for it.
            connection.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1000)
            unread = 0

            def given_up():
                nonlocal unread
                connections = server.server_state.connections
                unread = max([unread, *(each.transport.get_write_buffer_size() for each in connections)])
                return unread > 0 and not connections

            assert until(given_up), "the service still keeps the responses"
        assert alive(client)
