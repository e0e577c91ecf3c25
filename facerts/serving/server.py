"""The service on a socket: uvicorn, with the timeouts that it lacks."""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import socket
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from facerts.errors import Error
from facerts.serving.access import RESPONSE_HEADERS
from facerts.serving.body_limits import LINGER
from facerts.serving.error_responses import error_response
from facerts.serving.settings import Settings
from facerts.serving.strict_parser import StrictParser

if TYPE_CHECKING:
    from starlette.types import ASGIApp

LOG = logging.getLogger("facerts.serving")
# Connections that wait to be accepted.
BACKLOG = 512
# Bytes that are read from a connection at a time, and parsed before others get their turn: also in chunks of one byte
# that takes less than 50 ms.
READ_SIZE = 16 << 10
# Seconds beyond the timeout for requests in flight when the service shuts down.
GRACE = 5


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 is any free port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only where the protocol is named; small responses would take 40 ms longer without.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
        return listener
    except (OSError, OverflowError) as error:
        listener.close()
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise Error(
            f"cannot listen on {host}, port {port} ({reason}); choose another address with --host and --port"
        ) from error


def make_server(app: ASGIApp, settings: Settings) -> uvicorn.Server:
    """The server, which answers the requests in flight before it shuts down."""
    config = uvicorn.Config(
        app,
        # Always the same parser, whatever else is installed: its limits are tested.
        http=partial(Connection, settings=settings),  # type: ignore[arg-type]
        # The loop whose reads can be limited.
        loop="asyncio",
        ws="none",
        lifespan="on",
        log_config=None,
        # ``RequestMonitor`` logs requests, without their queries.
        access_log=False,
        server_header=False,
        # Also how many connections are accepted in one turn of the loop.
        backlog=BACKLOG,
        timeout_graceful_shutdown=math.ceil(settings.timeout) + GRACE,
    )
    return uvicorn.Server(config)


def serve(app: ASGIApp, listener: socket.socket, settings: Settings) -> None:
    """Answer requests until SIGINT or SIGTERM."""
    server = make_server(app, settings)
    host, port = listener.getsockname()[:2]
    LOG.info("listening on http://%s:%d/", f"[{host}]" if ":" in host else host, port)
    # What has been built stays as long as the service; a garbage collection that scans it stops all requests for 30 ms.
    gc.collect()
    gc.freeze()
    with suppress(KeyboardInterrupt):
        server.run(sockets=[listener])
    LOG.info("stopped")


class Connection(H11Protocol):
    """uvicorn's protocol, which would wait forever for a request's headers and for its response to be read.

    What is no valid request, or has headers beyond the limits, gets the service's own error response. Headers have
    ``header_timeout`` of the settings to arrive, the response ``timeout`` to be read.
    """

    def __init__(self, *, settings: Settings, **options: Any) -> None:
        super().__init__(**options)
        self._settings = settings
        self.conn: StrictParser = StrictParser()
        self._refused = False
        self._header_timer: asyncio.TimerHandle | None = None
        self._response_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.max_size = READ_SIZE  # type: ignore[attr-defined]
        self._time_headers()

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        super().data_received(data)
        self._time_headers()

    def send_400_response(self, msg: str) -> None:
        """Refuse what has arrived, and all that may follow it on this connection."""
        self._refused = True
        if self.cycle is not None:
            # Its body will never be complete.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):  # another response has begun
            self.transport.abort()
            return
        response = error_response(*self.conn.refusal)
        headers = [*response.raw_headers, *RESPONSE_HEADERS.items(), (b"connection", b"close")]
        for event in (
            h11.Response(status_code=response.status_code, headers=headers),
            h11.Data(data=bytes(response.body)),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        # A client that is still sending would never see the response if the connection was closed now.
        self.transport.write_eof()
        self.flow.resume_reading()
        self._response_timer = self.loop.call_later(LINGER, self.transport.abort)

    def on_response_complete(self) -> None:
        self._response_timer = _cancelled(self._response_timer)
        if self.transport.get_write_buffer_size():
            self._response_timer = self.loop.call_later(self._settings.timeout, self._abort_if_unread)
        super().on_response_complete()
        self._time_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._header_timer = _cancelled(self._header_timer)
        self._response_timer = _cancelled(self._response_timer)
        super().connection_lost(exc)

    def _time_headers(self) -> None:
        """Keep a timer running while the next request's headers are incomplete, however they arrive."""
        if self._refused or self.conn.their_state is not h11.IDLE:
            self._header_timer = _cancelled(self._header_timer)
        elif self._header_timer is None:
            self._header_timer = self.loop.call_later(self._settings.header_timeout, self.transport.close)

    def _abort_if_unread(self) -> None:
        # close() would wait for the client to read.
        if self.transport.get_write_buffer_size():
            self.transport.abort()


def _cancelled(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    """None, to be assigned in place of a timer that is not needed any more."""
    if timer is not None:
        timer.cancel()
    return None
