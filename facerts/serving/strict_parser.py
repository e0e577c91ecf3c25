"""h11's parser, with limits on what it is given.

It checks lines with regular expressions that take quadratic time for some of the lines that they refuse: 30 KB of
spaces before a NUL take it 1.6 seconds. It also accepts requests that other servers end elsewhere, so that a proxy may
see one where this service sees two (request smuggling).
"""

from __future__ import annotations

import re
from typing import Any, NoReturn

import h11

# Of a request line and headers together, in bytes.
MAX_HEAD = 16 << 10
MAX_HEADERS = 100
# Of the line before a chunk of a body: its size, and extensions that nobody uses.
MAX_CHUNK_LINE = 256
# Bytes that the chunks of a body must have on average, because parsing a tiny chunk takes as long as a larger one.
MIN_CHUNK = 64
# Bytes by which the chunks of a body may fall short of that in total: a thousand tiny ones are no attack.
GRACE = 1000 * MIN_CHUNK
# Where h11 takes a head to end.
_HEAD_END = re.compile(rb"\n\r?\n")
# Line ends other than CRLF, headers that go on in the next line, and what h11 is slow to refuse in a header.
_INVALID = re.compile(rb"(?<!\r)\n|\r(?!\n)|\n[ \t]|[\0\v\f]")


class StrictParser(h11.Connection):
    """The server's side of a connection; ``refusal`` is code and message of the response to what is refused."""

    def __init__(self) -> None:
        super().__init__(h11.SERVER)
        self.refusal: tuple[str, str] = ("bad_request", "this is not a valid HTTP/1.1 request")
        # What the data begins with: the line of a chunk (and what ends the chunk before), or the end of the last one.
        self._at_chunk_line = False
        self._at_end = False
        self._spare = GRACE

    def next_event(self) -> Any:
        """The next event of the connection; what is invalid, ambiguous, or beyond a limit is an error of h11."""
        if self.their_state is h11.IDLE:
            self._check_head(self.trailing_data[0])
        elif self._at_end or self._at_chunk_line:
            self._check_chunk_line(self.trailing_data[0])
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._at_chunk_line = self._is_chunked(event)
            self._spare = GRACE
        elif isinstance(event, h11.Data):
            self._at_chunk_line = event.chunk_end
            self._spare += len(event.data)
            if self._spare < 0:
                self._refuse(f"the chunks of the body have fewer than {MIN_CHUNK} bytes on average")
        elif isinstance(event, h11.EndOfMessage):
            self._at_chunk_line = self._at_end = False
        return event

    def _check_head(self, data: bytes) -> None:
        end = _HEAD_END.search(data)
        head = data if end is None else data[: end.end()]
        # Besides the headers there are the request line and the empty one.
        if len(head) > MAX_HEAD or head.count(b"\n") > MAX_HEADERS + 2:
            self._refuse(
                f"the request line and headers have more than {MAX_HEAD:,} bytes, or there are more than "
                f"{MAX_HEADERS} headers",
                "headers_too_large",
            )
        if end is not None and _INVALID.search(head):
            self._refuse("a header has invalid characters, or a line does not end with CR and LF")

    def _is_chunked(self, request: h11.Request) -> bool:
        names = {name for name, _ in request.headers}
        if b"transfer-encoding" not in names:
            return False
        if b"content-length" in names or request.http_version < b"1.1":
            self._refuse("a request with Transfer-Encoding must be HTTP/1.1 and have no Content-Length")
        return True

    def _check_chunk_line(self, data: bytes) -> None:
        if not self._at_end:
            line, end, data = data.lstrip(b"\r\n").partition(b"\r\n")
            if len(line) > MAX_CHUNK_LINE:
                self._refuse(f"the line before a chunk of the body has more than {MAX_CHUNK_LINE} bytes")
            if end:
                # h11 takes the line even where none of the chunk's data has arrived yet.
                self._at_chunk_line = False
                self._spare -= MIN_CHUNK
                self._at_end = not line.partition(b";")[0].strip(b"0 \t")
        if self._at_end and not b"\r\n".startswith(data[:2]):
            self._refuse("headers after the body (trailers) are not accepted")

    def _refuse(self, message: str, code: str = "bad_request") -> NoReturn:
        self.refusal = (code, message)
        raise h11.RemoteProtocolError(message)
