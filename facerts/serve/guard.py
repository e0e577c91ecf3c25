"""The bodies of requests, held to their limits while they arrive."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from facerts.serve.refusal import RefusedError
from facerts.serve.settings import Settings

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Seconds that who sends too much is listened to before the connection is closed: a client that is still sending when
# that happens would never see the answer.
LINGER = 2.0


class Guard:
    """ASGI middleware: a body that is too long, too slow, or for which there is no room raises ``RefusedError`` where
    it is read.

    Attributes:
        held: bytes of the bodies of all requests that are being answered.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self.settings = settings
        self.held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        body = _Body(self, scope, receive, send)
        try:
            await self.app(scope, body.receive, body.send)
        finally:
            body.release()


class _Body:
    """One request's body."""

    def __init__(self, guard: Guard, scope: Scope, receive: Receive, send: Send) -> None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        self._length = 0
        self._guard = guard
        self._receive = receive
        self._send = send
        self._declared = int(headers.get(b"content-length", b"0"))
        self._complete = self._declared == 0 and b"transfer-encoding" not in headers
        # Who asks before sending is not sending, and who is too slow will not be done.
        self._linger = headers.get(b"expect", b"").lower() != b"100-continue"
        self._deadline = time.monotonic() + guard.settings.timeout

    async def receive(self) -> Message:
        """The next piece; once the body is complete only the end of the connection can follow.

        Raises:
            RefusedError: it is too long, too slow, or there is no room for it.
        """
        if self._complete:
            return await self._receive()
        most = self._guard.settings.max_bytes
        if self._declared > most:
            raise _too_long(most)
        self._linger = True
        try:
            message = await asyncio.wait_for(self._receive(), max(0.0, self._deadline - time.monotonic()))
        except asyncio.TimeoutError:
            self._linger = False
            seconds = self._guard.settings.timeout
            raise RefusedError("too_slow", f"the body did not arrive within {seconds:g} seconds") from None
        if message["type"] == "http.request":
            self._complete = not message.get("more_body", False)
            self._hold(len(message.get("body", b"")))
        return message

    async def send(self, message: Message) -> None:
        """Send, after the rest of a body that nobody wants was taken in, or was given up."""
        if message["type"] == "http.response.start" and not self._complete:
            self.release()
            if self._linger:
                await self._drain()
            if not self._complete:
                message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
        await self._send(message)

    def release(self) -> None:
        """Make room for others: what has arrived is not needed any more."""
        self._guard.held -= self._length
        self._length = 0

    def _hold(self, size: int) -> None:
        self._length += size
        self._guard.held += size
        if self._length > self._guard.settings.max_bytes:
            raise _too_long(self._guard.settings.max_bytes)
        if self._guard.held > self._guard.settings.max_held:
            raise RefusedError("busy", "the service holds as many pictures as it may; ask again later")

    async def _drain(self) -> None:
        """Take in and forget what a client is still sending."""
        deadline = time.monotonic() + LINGER
        left = self._guard.settings.max_bytes
        while not self._complete and left > 0 and (seconds := deadline - time.monotonic()) > 0:
            try:
                message = await asyncio.wait_for(self._receive(), seconds)
            except asyncio.TimeoutError:
                return
            if message["type"] != "http.request":
                return
            self._complete = not message.get("more_body", False)
            left -= len(message.get("body", b""))


def _too_long(most: int) -> RefusedError:
    return RefusedError(
        "too_large", f"the body has more than {most:,} bytes, the most that this service takes"
    )
