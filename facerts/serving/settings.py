"""Limits and defaults of a service."""

from __future__ import annotations

import ipaddress
import math
import re
from dataclasses import dataclass
from pathlib import Path

from facerts.errors import Error

MEBIBYTE = 1 << 20
# Of a search: no gallery says anything of errors that are rarer.
MIN_FPIR = 1e-6
# Stands for all hosts, or all origins.
ANY = "*"
_NAME = re.compile(r"[^:\[\]/@?#\s]+")
_ORIGIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/@?#\s]+")


@dataclass(frozen=True)
class Settings:
    """Limits and defaults of a service.

    Attributes:
        token: bearer token that requests must carry; None for an open service.
        keep: accept faces above the model's calibrated threshold that keeps this fraction of good faces, unless a
            request sets a threshold.
        min_quality: accept faces with at least this quality, unless a request sets a threshold.
        fmr: false match rate of /v1/verify, unless a request sets one; None for 0.001, or the model's lowest.
        gallery: gallery for /v1/search, a file that is read once or the address of a database; None for a service
            without.
        fpir: false positive identification rate of /v1/search, unless a request sets one.
        max_bytes: maximum size of a request body, in bytes.
        max_pixels: maximum number of pixels of an image; checked in its header, before it is decoded.
        max_faces: maximum number of faces scored per image, largest first.
        max_images: maximum number of images per request.
        video: whether the service takes clips, at /v1/video.
        max_seconds: maximum duration of a clip.
        queue: maximum number of requests worked on at the same time; others get 503.
        timeout: seconds for the body to arrive, again for the response to be computed, and again for it to be read.
        header_timeout: seconds for a request's headers to arrive.
        batch_wait: seconds that an idle model waits for a batch to fill up; see ``Batcher``.
        allowed_hosts: names and addresses that requests may name as their host, beside loopback and the address that
            they come in on; "*" for all.
        allowed_origins: origins, such as ``https://faces.example``, whose pages may post, beside the service's own; "*"
            for all.
    """

    token: str | None = None
    keep: float | None = None
    min_quality: float | None = None
    fmr: float | None = None
    gallery: str | Path | None = None
    fpir: float = 0.01
    max_bytes: int = 32 * MEBIBYTE
    max_pixels: int = 32_000_000
    max_faces: int = 100
    max_images: int = 16
    video: bool = False
    max_seconds: float = 60.0
    queue: int = 64
    timeout: float = 30.0
    header_timeout: float = 10.0
    batch_wait: float = 0.0
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.token is not None and not (self.token and self.token.isascii() and self.token.isprintable()):
            raise Error("a token must be one or more printable ASCII characters")
        if self.token is not None and " " in self.token:
            raise Error("a token must not contain spaces")
        for name in ("max_bytes", "max_pixels", "max_faces", "max_images", "queue"):
            if getattr(self, name) < 1:
                raise Error(f"{name} must be at least 1, not {getattr(self, name)}")
        if not MIN_FPIR <= self.fpir < 1:
            raise Error(
                f"fpir must be a false positive identification rate of at least {MIN_FPIR:g} and below 1, "
                f"not {self.fpir}"
            )
        for name in ("timeout", "header_timeout", "max_seconds"):
            seconds = getattr(self, name)
            if not (seconds > 0 and math.isfinite(seconds)):
                raise Error(f"{name} must be a number of seconds above 0, not {seconds}")
        if not (self.batch_wait >= 0 and math.isfinite(self.batch_wait)):
            raise Error(f"batch_wait must be 0 or more seconds, not {self.batch_wait}")
        for host in self.allowed_hosts:
            if not (_NAME.fullmatch(host) or _is_address(host)):
                raise Error(
                    f"allowed_hosts: {host!r} is not a name or an address; give it without scheme and port"
                )
        for origin in self.allowed_origins:
            if origin != ANY and not _ORIGIN.fullmatch(origin):
                raise Error(
                    f"allowed_origins: {origin!r} is not an origin; give scheme and host without a path, such as "
                    "https://faces.example"
                )

    @property
    def max_held(self) -> int:
        """Maximum bytes of all request bodies in memory together."""
        return 8 * self.max_bytes


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True
