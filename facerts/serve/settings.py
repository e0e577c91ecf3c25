"""What a service allows."""

from __future__ import annotations

import ipaddress
import math
import re
from dataclasses import dataclass

from facerts.errors import Error

MEBIBYTE = 1 << 20
# Of hosts or origins: all of them.
ANY = "*"
_NAME = re.compile(r"[^:\[\]/@?#\s]+")
_ORIGIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/@?#\s]+")


@dataclass(frozen=True)
class Settings:
    """Limits and defaults of a service.

    Attributes:
        token: that requests must carry; None lets everyone in.
        keep: accept faces as the model's own threshold for this share does, where a request names no threshold.
        min_quality: or at or above this quality.
        max_bytes: of a request's body.
        max_pixels: of a picture; more are refused by its header.
        max_faces: of a picture that are scored, the largest.
        max_pictures: in a request.
        queue: requests that are worked on at the same time; more are turned away.
        timeout: seconds for a body to arrive, for its answer to be found, and for the answer to be read.
        header_timeout: seconds for a request's headers to arrive.
        batch_wait: see ``Batcher``, in seconds.
        allowed_hosts: names and addresses that requests may be for, beside those of this machine for itself and the
            address that they come in on; "*" lets all in.
        allowed_origins: whose pages may post, ``https://faces.example``, beside the service's own; "*" lets all.

    Raises:
        Error: a setting that makes no sense.
    """

    token: str | None = None
    keep: float | None = None
    min_quality: float | None = None
    max_bytes: int = 32 * MEBIBYTE
    max_pixels: int = 32_000_000
    max_faces: int = 100
    max_pictures: int = 16
    queue: int = 64
    timeout: float = 30.0
    header_timeout: float = 10.0
    batch_wait: float = 0.0
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.token is not None and not (self.token and self.token.isascii() and self.token.isprintable()):
            raise Error("a token is made of ASCII letters, digits and signs, at least one")
        if self.token is not None and " " in self.token:
            raise Error("a token has no spaces")
        for name in ("max_bytes", "max_pixels", "max_faces", "max_pictures", "queue"):
            if getattr(self, name) < 1:
                raise Error(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("timeout", "header_timeout"):
            seconds = getattr(self, name)
            if not (seconds > 0 and math.isfinite(seconds)):
                raise Error(f"{name} must be a number of seconds above 0, not {seconds}")
        if not (self.batch_wait >= 0 and math.isfinite(self.batch_wait)):
            raise Error(f"batch_wait must be 0 or more seconds, not {self.batch_wait}")
        for host in self.allowed_hosts:
            if not (_NAME.fullmatch(host) or _is_address(host)):
                raise Error(f"allowed_hosts: {host!r} is no name or address; give it without scheme and port")
        for origin in self.allowed_origins:
            if origin != ANY and not _ORIGIN.fullmatch(origin):
                raise Error(
                    f"allowed_origins: {origin!r} is no origin; give scheme and host, such as https://faces.example, "
                    "without a path"
                )

    @property
    def max_held(self) -> int:
        """Bytes of all bodies together that are held at the same time."""
        return 8 * self.max_bytes


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True
