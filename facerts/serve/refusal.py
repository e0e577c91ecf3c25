"""Requests that are not answered with scores, and what they are answered with."""

from __future__ import annotations

from typing import Literal

from facerts.errors import Error

Code = Literal[
    "bad_request",
    "unauthorized",
    "foreign_origin",
    "not_found",
    "method_not_allowed",
    "too_slow",
    "too_large",
    "unsupported_type",
    "wrong_host",
    "invalid",
    "unusable_pictures",
    "internal",
    "busy",
    "timeout",
]

STATUS: dict[Code, int] = {
    "bad_request": 400,
    "unauthorized": 401,
    "foreign_origin": 403,
    "not_found": 404,
    "method_not_allowed": 405,
    "too_slow": 408,
    "too_large": 413,
    "unsupported_type": 415,
    "wrong_host": 421,
    "invalid": 422,
    "unusable_pictures": 422,
    "internal": 500,
    "busy": 503,
    "timeout": 504,
}
# Seconds after which it is worth asking a busy service again.
RETRY_AFTER = 1


class RefusedError(Error):
    """A request that is turned away: the sentence is for its sender.

    Attributes:
        code: why, for programs.
    """

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(text)
        self.code = code

    @property
    def status(self) -> int:
        """Of HTTP."""
        return STATUS[self.code]

    @property
    def headers(self) -> dict[str, str]:
        """That belong to the answer."""
        if self.code == "unauthorized":
            return {"WWW-Authenticate": "Bearer"}
        return {"Retry-After": str(RETRY_AFTER)} if self.code == "busy" else {}
