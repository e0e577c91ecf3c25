"""Limits on a request: the size and the speed of its body, and the time for its response."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.requests import ClientDisconnect

from facerts.serving.error_responses import RequestError
from facerts.serving.settings import Settings

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Seconds for which a client that sends too much is still listened to before the connection is closed: it would never
# see the response if that happened while it was sending.
LINGER = 2.0

Result = TypeVar("Result")


class BodyLimits:
    """ASGI middleware that limits bodies: each in size and time, and all together in size.

    Reading a body beyond a limit raises ``RequestError``. ``held`` are the bytes of the bodies of all requests that are
    being answered.
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
        scope["facerts.hold"] = body.hold
        try:
            await self.app(scope, body.receive, body.send)
        finally:
            body.release()


class _Body:
    def __init__(self, limits: BodyLimits, scope: Scope, receive: Receive, send: Send) -> None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        self._received = 0
        self._held = 0
        self._limits = limits
        self._receive = receive
        self._send = send
        self._declared = int(headers.get(b"content-length", b"0"))
        self._complete = self._declared == 0 and b"transfer-encoding" not in headers
        # A client that asks before it sends is not sending yet, and one that is too slow will never be done.
        self._linger = headers.get(b"expect", b"").lower() != b"100-continue"
        self._deadline = time.monotonic() + limits.settings.timeout

    async def receive(self) -> Message:
        """The next part of the body; once that is complete, only the end of the connection can follow."""
        if self._complete:
            return await self._receive()
        maximum = self._limits.settings.max_bytes
        if self._declared > maximum:
            raise _too_large(maximum)
        self._linger = True
        message = await self._next(self._deadline)
        if message is None:
            self._linger = False
            seconds = self._limits.settings.timeout
            raise RequestError("too_slow", f"the body did not arrive within {seconds:g} seconds")
        size = len(message.get("body", b""))
        self._received += size
        self.hold(size)
        if self._received > maximum:
            raise _too_large(maximum)
        return message

    async def _next(self, deadline: float) -> Message | None:
        """What the client sends; None if nothing arrives until the deadline."""
        try:
            message = await asyncio.wait_for(self._receive(), max(0.0, deadline - time.monotonic()))
        except asyncio.TimeoutError:
            return None
        self._complete = message["type"] == "http.request" and not message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        """Send, but first take in, or give up on, the rest of a body that nobody will read."""
        if message["type"] == "http.response.start" and not self._complete:
            self.release()
            if self._linger:
                await self._drain()
            if not self._complete:
                message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
        await self._send(message)

    def release(self) -> None:
        """Stop counting what has arrived: it is no longer needed."""
        self._limits.held -= self._held
        self._held = 0

    def hold(self, size: int) -> None:
        """Count what is held of the body, as it was sent or decoded, among the bytes of all requests."""
        self._held += size
        self._limits.held += size
        if self._limits.held > self._limits.settings.max_held:
            raise RequestError("busy", "the service holds as much image data as it may; try again later")

    async def _drain(self) -> None:
        """Receive and discard what a client is still sending."""
        deadline = time.monotonic() + LINGER
        left = self._limits.settings.max_bytes
        while not self._complete and left > 0 and (message := await self._next(deadline)):
            if message["type"] != "http.request":
                return
            left -= len(message.get("body", b""))


def _too_large(maximum: int) -> RequestError:
    return RequestError("too_large", f"the body is larger than {maximum:,} bytes, the maximum of this service")


async def cancel_if_abandoned(request: Request, work: Coroutine[Any, Any, Result], seconds: float) -> Result:
    """The result of the work, which is cancelled when it takes too long or the client disconnects.

    The request's body must have been read.
    """
    task = asyncio.ensure_future(work)
    disconnect = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({task, disconnect}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        if disconnect.done():
            raise ClientDisconnect
        raise RequestError(
            "timeout", f"no response was ready within {seconds:g} seconds; send less, or try again later"
        )
    finally:
        task.cancel()
        disconnect.cancel()
        await asyncio.gather(task, disconnect, return_exceptions=True)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
