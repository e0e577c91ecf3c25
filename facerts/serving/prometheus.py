"""Monitoring: metrics for Prometheus and a log line for each request, with nothing from the images in either."""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from facerts.serving.error_responses import CLIENT_CLOSED_REQUEST

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOG = logging.getLogger("facerts.serving")
SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
CROPS = (1, 2, 4, 8, 16, 32, 64, 128)
# Monitoring systems ask for these every few seconds.
NOT_LOGGED = frozenset({"/healthz", "/readyz", "/metrics"})


class Metrics:
    """The metrics of one service."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self, version: str, model: str, model_sha256: str) -> None:
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        counter = partial(Counter, registry=registry)
        gauge = partial(Gauge, registry=registry)
        histogram = partial(Histogram, registry=registry)
        info = gauge("facerts_info", "Version and model of the service", ["version", "model", "sha256"])
        info.labels(version, model, model_sha256).set(1)
        self._requests = counter("facerts_requests", "Requests answered", ["route", "status"])
        self._seconds = histogram(
            "facerts_request_seconds",
            "Time from a request's headers to the end of its response",
            ["route"],
            buckets=SECONDS,
        )
        self._images = counter("facerts_images", "Images scored, without a face, or failed", ["outcome"])
        self._faces = counter("facerts_faces", "Faces scored", ["decision"])
        self.verifications = counter("facerts_verifications", "Pairs of images compared", ["decision"])
        self.searches = counter("facerts_searches", "Faces searched for in the gallery", ["decision"])
        self.batch = histogram("facerts_batch_crops", "Crops in a batch of the network", buckets=CROPS)
        self.queue = gauge("facerts_queue_crops", "Crops that wait for the network")
        self.working = gauge("facerts_requests_in_work", "Scoring requests being worked on")
        self.held = gauge("facerts_held_bytes", "Bytes of request bodies in memory")

    def count_request(self, route: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def count_image(self, decisions: list[bool | None], *, failed: bool) -> None:
        """Count an image with the decision for each of its faces, None without a threshold."""
        self._images.labels("failed" if failed else "scored" if decisions else "no_face").inc()
        for decision in decisions:
            self._faces.labels({None: "none", True: "accepted", False: "rejected"}[decision]).inc()

    def text(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self._registry)


class RequestMonitor:
    """ASGI middleware, the outermost: counts and logs every response."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app = app
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start = time.perf_counter()
        status = CLIENT_CLOSED_REQUEST

        async def send_monitored(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, send_monitored)
        except Exception:
            LOG.exception("the service failed")
            if status == CLIENT_CLOSED_REQUEST:  # not answered
                raise
        finally:
            # The declared route, of which there are few.
            route = getattr(scope.get("route"), "path", "none")
            seconds = time.perf_counter() - start
            self.metrics.count_request(route, status, seconds)
            if route not in NOT_LOGGED:
                # Without the query, which may be private.
                LOG.info("%s %.200s %d %.0f ms", scope["method"], scope["path"], status, 1000 * seconds)
