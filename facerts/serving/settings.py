"""Limits and defaults of a service."""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from facerts.errors import Error

MEBIBYTE = 1 << 20
# Of a search: no gallery says anything of errors that are rarer.
MIN_FPIR = 1e-6
# Stands for all hosts, or all origins.
ANY = "*"
_TOKEN = re.compile(r"[!-~]+")
_NAME = re.compile(r"[^:\[\]/@?#\s]+")
_ORIGIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/@?#\s]+")


@dataclass(frozen=True)
class Settings:
    """Limits and defaults of a service, of which ``facerts serve`` takes most as settings ``serve.NAME``.

    Attributes:
        token: Bearer token that requests must carry; none opens the service to everybody.
        keep: Accept faces above the model's threshold that keeps this fraction of its calibration faces, unless a
            request sets a threshold.
        min_quality: Accept faces with at least this quality, unless a request sets a threshold.
        fmr: False match rate of /v1/verify, unless a request sets one; one of those that the model was calibrated for,
            by default 0.001, or else its lowest.
        gallery: Gallery for /v1/search, written by facerts gallery build with the same model: a file, which is read
            once, at the start, or the address of a database, in which changes are seen at once.
        fpir: False positive identification rate of /v1/search, unless a request sets one: the share of searches for
            unknown people that may find somebody.
        max_bytes: Maximum size of a request body, in bytes.
        max_pixels: Maximum number of pixels of an image, by its header, before it is decoded.
        max_faces: Score at most this many faces per image, largest first.
        max_images: Maximum number of images per request.
        video: Also accept video clips, at /v1/video; needs the extra cpu.
        max_seconds: Maximum duration of a clip, in seconds.
        queue: Maximum number of requests in progress; further requests get 503.
        timeout: Seconds for a request's body to arrive, again to compute the response, and again for it to be read.
        header_timeout: Seconds for a request's headers to arrive.
        allowed_hosts: Another host name or address of the service, besides loopback and the address that a request
            arrives at; * for any. By default none.
        allowed_origins: Another origin whose pages may send requests, e.g. https://faces.example, besides the service's
            own; * for any. By default none.
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
    allowed_hosts: Sequence[str] = ()
    allowed_origins: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.token is not None and not _TOKEN.fullmatch(self.token):
            raise Error("a token must be one or more printable ASCII characters, without spaces")
        for name in ("max_bytes", "max_pixels", "max_faces", "max_images", "queue"):
            if getattr(self, name) < 1:
                raise Error(f"{name} must be at least 1, not {getattr(self, name)}")
        if not MIN_FPIR <= self.fpir < 1:
            raise Error(
                f"fpir must be a false positive identification rate of at least {MIN_FPIR:g} and below 1, "
                f"not {self.fpir}"
            )
        for name in ("timeout", "header_timeout", "max_seconds"):
            if not 0 < getattr(self, name) < math.inf:
                raise Error(f"{name} must be a number of seconds above 0, not {getattr(self, name)}")
        for host in self.allowed_hosts:
            if not (_NAME.fullmatch(host) or address_of(host)):
                raise Error(f"allowed_hosts: {host!r} is not a name or an address; give it without scheme and port")
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


def address_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that a host is, with or without brackets; None if it is a name."""
    try:
        address = ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a host of this name or address."""
    address = address_of(host)
    return host == "localhost" if address is None else address.is_loopback
