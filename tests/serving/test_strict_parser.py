"""What h11 would accept, or would take minutes to refuse."""

import json
import re
import socket
from unittest.mock import Mock

import h11
import pytest
from uvicorn.server import ServerState

from facerts.serving import Settings, server
from facerts.serving.strict_parser import MAX_CHUNK_LINE, MAX_HEAD, MAX_HEADERS, MIN_CHUNK, StrictParser
from tests.serving.conftest import address, alive, crop, head, in_loop, post, talk

HOST = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
NEXT = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
CHUNKED = head("Transfer-Encoding: chunked")
BODY = crop(9)
CHUNKS = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
SPACES = 20_000 * b" "


def events(*pieces):
    """What the pieces are parsed to, as they arrive."""
    parser = StrictParser()
    found = []
    for piece in pieces:
        parser.receive_data(piece)
        while (event := parser.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
            found.append(event)
    return found


def kinds(*pieces):
    return [type(event).__name__ for event in events(*pieces)]


def refuses(words, *pieces):
    with pytest.raises(h11.RemoteProtocolError, match=words):
        events(*pieces)


def test_heads_have_a_limit():
    full = HOST + b"X: " + b"y" * (MAX_HEAD - len(HOST) - 7) + b"\r\n\r\n"
    assert len(full) == MAX_HEAD
    assert kinds(full) == kinds(full[:-1], full[-1:]) == ["Request", "EndOfMessage"]
    refuses("16,384 bytes", full.replace(b"y", b"yy", 1))
    refuses("16,384 bytes", full.replace(b"y", b"yy", 2)[:-1])
    many = HOST + b"X: y\r\n" * (MAX_HEADERS - 1)
    assert kinds(many + b"\r\n") == ["Request", "EndOfMessage"]
    refuses("100 headers", many + b"X: y\r\n\r\n")


@pytest.mark.parametrize(
    "line",
    [
        *(b"X: a\n", b"X: a\rb\r\n", b"X: a\r\r\n", b"X: a\0\r\n", b"X: a\x0b\r\n", b"X:\x0ca\r\n"),
        *(b"X: a\r\n b\r\n", b"X:\r\n\ta\r\n", b"X:" + 15_000 * b" " + b"\0\r\n"),
    ],
)
def test_lines_that_servers_read_differently_are_refused_before_they_are_parsed(line):
    refuses("invalid characters", HOST + line + b"\r\n")
    refuses("invalid characters", HOST + line + b"\n")


def test_chunks_are_read_however_they_arrive():
    two = b"1;name=value\r\na\r\n00A\r\n0123456789\r\n000\r\n\r\n"
    for size in range(1, len(two)):
        pieces = [two[at : at + size] for at in range(0, len(two), size)]
        found = events(CHUNKED, *pieces)
        assert b"".join(event.data for event in found[1:-1]) == b"a0123456789"
        assert isinstance(found[-1], h11.EndOfMessage)
    # Some clients send the size of a chunk, and then its data, which may look like such a line.
    for data in (MIN_CHUNK * 10 * b"a", b"0\r\nX: a"):
        found = events(CHUNKED, b"%x\r\n" % len(data), data, b"\r\n", b"0\r\n", b"\r\n")
        assert [type(event) for event in found] == [h11.Request, h11.Data, h11.EndOfMessage]


def test_between_chunks_only_their_sizes_are_read():
    for lines in (b"5;" + SPACES + b"\n\r\n", b"5;" + (MAX_CHUNK_LINE - 1) * b" ", b"1\r\na\r\n5;" + SPACES):
        refuses("line before a chunk", CHUNKED + lines)
    for last in (b"0\r\n", b"000;a=b\r\n", b"0 \r\n"):
        for trailer in (b"X: a\r\n\r\n", b"X:" + SPACES + b"\0\r\n\r\n", b"\rX"):
            refuses("trailers", CHUNKED + b"1\r\na\r\n" + last + trailer)
            refuses("trailers", CHUNKED + b"1\r\na\r\n" + last, trailer)
    # What looks like such a line in the data is data.
    data = b"5;" + 300 * b" "
    assert kinds(CHUNKED + b"%x\r\n%b\r\n0\r\n\r\n" % (len(data), data))[-1] == "EndOfMessage"
    assert kinds(head(f"Content-Length: {len(data)}") + data) == ["Request", "Data", "EndOfMessage"]


def test_a_body_of_tiny_chunks_is_refused():
    tiny, lines = b"1\r\na\r\n", b"%x\r\n%b\r\n" % (MIN_CHUNK, MIN_CHUNK * b"a")
    assert len(events(CHUNKED + 1000 * tiny + b"0\r\n\r\n")) == 1002
    refuses("64 bytes on average", CHUNKED + 1100 * tiny)
    refuses("64 bytes on average", CHUNKED, *1100 * [tiny])
    refuses("64 bytes on average", CHUNKED, *1100 * [b"1\r\n", b"a\r\n"])
    assert len(events(CHUNKED, *20 * [500 * lines])) == 10_001
    # Each body has its own thousand.
    parser = StrictParser()
    for _ in range(3):
        parser.receive_data(CHUNKED + 900 * tiny + b"0\r\n\r\n")
        while not isinstance(parser.next_event(), h11.EndOfMessage):
            pass
        for event in (h11.Response(status_code=200, headers=[("content-length", "0")]), h11.EndOfMessage()):
            parser.send(event)
        parser.start_next_cycle()


AMBIGUOUS = {
    "both": head("Content-Length: 4", "Transfer-Encoding: chunked"),
    "both, in the other order": head("Transfer-Encoding: chunked", f"Content-Length: {len(CHUNKS)}"),
    "HTTP/1.0": CHUNKED.replace(b"1.1", b"1.0").replace(b"\r\n\r\n", b"\r\nConnection: keep-alive\r\n\r\n"),
    "two lengths": head("Content-Length: 4", "Content-Length: 5"),
    "a list of lengths": head("Content-Length: 4, 5"),
    **{length: head(f"Content-Length: {length}") for length in ("+4", "4_0", "0x4", "-1", "4.0", "")},
    **{
        coding: head(f"Transfer-Encoding: {coding}")
        for coding in (*("chunked, chunked", "gzip, chunked", "identity", "xchunked", "\x0bchunked", "\r\n chunked"),)
    },
    "twice": head("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"),
    "a space before the colon": head("Transfer-Encoding : chunked"),
    "bare line feeds": CHUNKED.replace(b"\r\n", b"\n"),
    "a bare line feed in a header": head("X: a\nTransfer-Encoding: chunked"),
    "a folded header": head("X: a\r\n Content-Length: 4", "Transfer-Encoding: chunked"),
    "two hosts": head("Host: localhost", "Transfer-Encoding: chunked"),
    "a trailer": CHUNKED + CHUNKS[:-2] + b"Content-Length: 5\r\n\r\n",
    "bare line feeds between chunks": CHUNKED + CHUNKS.replace(b"\r\n", b"\n"),
}


@pytest.mark.parametrize("start", AMBIGUOUS.values(), ids=AMBIGUOUS.keys())
def test_a_request_whose_end_is_ambiguous_is_refused_and_the_connection_closed(client, start):
    with socket.create_connection(address(client), timeout=10) as connection:
        connection.sendall(start + CHUNKS + NEXT)
        # A client that is done sending is not waited for.
        connection.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    top, _, body = answer.partition(b"\r\n\r\n")
    assert re.findall(rb"HTTP/1.1 (\d+)", answer) == [b"400"], answer
    assert b"connection: close" in top.lower()
    assert json.loads(body)["code"] == "bad_request"


def test_what_follows_a_valid_request_on_its_connection_is_checked_too(client):
    with socket.create_connection(address(client), timeout=10) as connection:
        connection.sendall(NEXT + AMBIGUOUS["both"] + CHUNKS + NEXT)
        connection.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert re.findall(rb"HTTP/1.1 (\d+)", answer) == [b"200", b"400"], answer


@in_loop
async def test_an_answer_that_has_begun_is_broken_off():
    config = server.make_server(Mock(), Settings()).config
    connection = server.Connection(settings=Settings(), config=config, server_state=ServerState(), app_state={})
    transport = Mock(**{"get_extra_info.return_value": None})
    connection.connection_made(transport)
    connection.conn.receive_data(CHUNKED)
    connection.conn.next_event()
    connection.conn.send(h11.Response(status_code=200, headers=[("content-length", "5")]))
    connection.data_received(b"no size\r\n")
    connection.connection_lost(None)
    transport.abort.assert_called_once_with()
    transport.write.assert_not_called()


def test_large_headers_are_answered_although_they_are_not_read(client):
    for headers in (
        ["X: " + 1_000_000 * "y"],
        ["X: y"] * 20_000,
        ["X: y"] * 101,
        ['Content-Type: multipart/form-data; boundary="x' + 60_000 * ";"],
        ["Cookie: a=" + 60_000 * "\\1"],
    ):
        answer = talk(client, head(*headers))
        top, _, body = answer.partition(b"\r\n\r\n")
        assert top.startswith(b"HTTP/1.1 431 "), answer
        assert b"x-content-type-options: nosniff" in top
        assert json.loads(body)["code"] == "headers_too_large"
    assert alive(client)


def test_the_loop_parses_little_at_a_time(client, monkeypatch):
    sizes = []
    receive = server.Connection.data_received

    def received(connection, data):
        sizes.append(len(data))
        receive(connection, data)

    monkeypatch.setattr(server.Connection, "data_received", received)
    assert post(client, BODY, 1_000_000 * b"a").status_code == 200
    assert sum(sizes) > 1_000_000
    assert max(sizes) == server.READ_SIZE
