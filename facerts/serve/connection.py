"""Connections of clients that are slow on purpose, or gone without a word: closed after a while."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from facerts.serve.settings import Settings


class Connection(H11Protocol):
    """uvicorn's protocol, which by itself would wait for ever for a request's headers and for its answer to be read.

    Args:
        settings: ``header_timeout`` for the headers to arrive, ``timeout`` for the answer to be read.
        how: as uvicorn has it.
    """

    def __init__(self, *, settings: Settings, **how: Any) -> None:
        super().__init__(**how)
        self._settings = settings
        self._headers_due: asyncio.TimerHandle | None = None
        self._answer_due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch_headers()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch_headers()

    def on_response_complete(self) -> None:
        self._answer_due = _cancelled(self._answer_due)
        if self.transport.get_write_buffer_size():
            self._answer_due = self.loop.call_later(self._settings.timeout, self._end_unread)
        super().on_response_complete()
        self._watch_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._headers_due = _cancelled(self._headers_due)
        self._answer_due = _cancelled(self._answer_due)
        super().connection_lost(exc)

    def _watch_headers(self) -> None:
        """Let time run while the next request's headers are not all there, however they arrive."""
        if self.conn.their_state is not h11.IDLE:
            self._headers_due = _cancelled(self._headers_due)
        elif self._headers_due is None:
            self._headers_due = self.loop.call_later(self._settings.header_timeout, self.transport.close)

    def _end_unread(self) -> None:
        # Closing would wait for the client to read.
        if self.transport.get_write_buffer_size():
            self.transport.abort()


def _cancelled(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    """What stands in a timer's place when it is not needed any more."""
    if timer is not None:
        timer.cancel()
    return None
