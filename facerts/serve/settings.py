"""What a service allows."""

from __future__ import annotations

import math
from dataclasses import dataclass

from facerts.errors import Error

MEBIBYTE = 1 << 20


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
        queue: requests that are read or worked on at the same time; more are turned away.
        timeout: seconds for a body to arrive, and again for its answer to be found.
        batch_wait: see ``Batcher``, in seconds.

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
    batch_wait: float = 0.0

    def __post_init__(self) -> None:
        if self.token is not None and not (self.token and self.token.isascii() and self.token.isprintable()):
            raise Error("a token is made of ASCII letters, digits and signs, at least one")
        if self.token is not None and " " in self.token:
            raise Error("a token has no spaces")
        for name in ("max_bytes", "max_pixels", "max_faces", "max_pictures", "queue"):
            if getattr(self, name) < 1:
                raise Error(f"{name} must be at least 1, not {getattr(self, name)}")
        if not (self.timeout > 0 and math.isfinite(self.timeout)):
            raise Error(f"timeout must be a number of seconds above 0, not {self.timeout}")
        if not (self.batch_wait >= 0 and math.isfinite(self.batch_wait)):
            raise Error(f"batch_wait must be 0 or more seconds, not {self.batch_wait}")

    @property
    def max_held(self) -> int:
        """Bytes of all bodies together that are held at the same time."""
        return 8 * self.max_bytes
