"""What Prometheus may ask: how many, how long, how full; nothing of what is in the pictures."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
CROPS = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """The numbers of one service.

    Args:
        version: of facerts.
        model: its name.
        model_sha256: of its file.
    """

    content_type = CONTENT_TYPE_LATEST

    def __init__(self, version: str, model: str, model_sha256: str) -> None:
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        info = Gauge("facerts_info", "What runs here", ["version", "model", "sha256"], registry=registry)
        info.labels(version, model, model_sha256).set(1)
        self._requests = Counter(
            "facerts_requests", "Requests answered", ["route", "status"], registry=registry
        )
        self._seconds = Histogram(
            "facerts_request_seconds",
            "From a request's headers to the end of its answer",
            ["route"],
            buckets=SECONDS,
            registry=registry,
        )
        self._pictures = Counter(
            "facerts_pictures", "Pictures scored, without a face, and failed", ["outcome"], registry=registry
        )
        self._faces = Counter("facerts_faces", "Faces scored", ["decision"], registry=registry)
        self._batch = Histogram(
            "facerts_batch_crops", "Crops in a run of the network", buckets=CROPS, registry=registry
        )
        self._queue = Gauge("facerts_queue_crops", "Crops that wait for the network", registry=registry)
        self._working = Gauge("facerts_requests_in_work", "Scoring requests worked on", registry=registry)
        self._held = Gauge("facerts_held_bytes", "Bytes of requests' bodies", registry=registry)

    def request(self, route: str, status: int, seconds: float) -> None:
        """A request was answered."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def picture(self, decisions: list[bool | None], *, failed: bool) -> None:
        """A picture was looked at: the decision for each of its faces, None where none was asked for."""
        self._pictures.labels("failed" if failed else "scored" if decisions else "no_face").inc()
        for decision in decisions:
            self._faces.labels({None: "none", True: "accepted", False: "rejected"}[decision]).inc()

    def run(self, crops: int) -> None:
        """The network was run; may be called in any thread."""
        self._batch.observe(crops)

    def ask(
        self, *, queue: Callable[[], float], working: Callable[[], float], held: Callable[[], float]
    ) -> None:
        """Where the gauges get their numbers."""
        self._queue.set_function(queue)
        self._working.set_function(working)
        self._held.set_function(held)

    def text(self) -> bytes:
        """In Prometheus' own format."""
        return generate_latest(self._registry)
