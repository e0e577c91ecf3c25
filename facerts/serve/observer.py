"""Every answer: counted, logged without anything of its content, and with the headers that browsers heed."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from facerts.serve.metrics import Metrics

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOG = logging.getLogger("facerts.serve")
# Asked for every few seconds by machines.
QUIET = frozenset({"/healthz", "/readyz", "/metrics"})
# Of a client that went away before its answer, as proxies note it.
GONE = 499
HEADERS = {
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cache-control": b"no-store",
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'",
}


class Observer:
    """ASGI middleware, the outermost."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app = app
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = time.perf_counter()
        status = GONE

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                given = {name.lower() for name, _ in message["headers"]}
                more = [(name, value) for name, value in HEADERS.items() if name not in given]
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        try:
            await self.app(scope, receive, watched)
        except Exception:
            LOG.exception("the service failed")
            if status == GONE:  # not answered
                raise
        finally:
            # The route as it was declared: what else a client writes into a path is its own.
            route = getattr(scope.get("route"), "path", "none")
            seconds = time.perf_counter() - began
            self.metrics.request(route, status, seconds)
            if route not in QUIET:
                LOG.info("%s %s %d %.0f ms", scope["method"], route, status, 1000 * seconds)
