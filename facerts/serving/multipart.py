"""The parts of a multipart/form-data body that is held in memory; no part is ever written to disk.

RFC 2046, section 5.1, and RFC 7578. Kept although Starlette has a parser, because that one (python-multipart 0.0.34) is
busy for ten seconds with 32 MiB of almost-boundaries and takes a form that is cut short for a complete one; measured in
docs/decisions/index.md. Headers are not given to ``email.message`` either, which takes quadratic time for semicolons in
quotes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote

from facerts.errors import Error

LINE = b"\r\n"
MAX_HEADERS = 4096
MAX_BOUNDARY = 70
# Bytes that are searched for a boundary at a time: the search itself lets no other thread run.
STEP = 1 << 20
# A parameter of a header, with the semicolon before it (RFC 9110, section 5.6.6); some clients write spaces without
# quotes. There is only one way to match any text, so this takes linear time.
_PARAMETER = re.compile(r';[ \t]*(?:([^\s";=]+)=(?:"((?:[^"\\]|\\.)*)"|([^";]*)))?[ \t]*', re.DOTALL)


class MultipartError(Error):
    """The body is not what its Content-Type says."""


class TooManyPartsError(MultipartError):
    """The body has more parts than are allowed."""


@dataclass(frozen=True)
class Part:
    """One field of a form.

    Attributes:
        filename: None if the field is not a file.
    """

    name: str
    filename: str | None
    data: bytes


def parse_header(text: str) -> tuple[str, dict[str, str]]:
    """The value of a Content-Type or Content-Disposition in lower case, and its parameters.

    Raises:
        MultipartError: its parameters are malformed, or one of them is there twice.
    """
    start = text.find(";")
    value = text if start < 0 else text[:start]
    parameters: dict[str, str] = {}
    while 0 <= start < len(text):
        match = _PARAMETER.match(text, start)
        if match is None:
            raise MultipartError("the parameters of a header are malformed")
        name, quoted, plain = match.groups()
        if name is not None:
            if name.lower() in parameters:
                raise MultipartError(f"the parameter {name!r} of a header is there twice")
            parameters[name.lower()] = plain.strip() if quoted is None else quoted.replace('\\"', '"')
        start = match.end()
    return value.strip().lower(), parameters


def boundary_of(parameters: dict[str, str]) -> bytes:
    """The boundary among the parameters of a Content-Type.

    Raises:
        MultipartError: there is none, or it is invalid.
    """
    boundary = parameters.get("boundary")
    if not boundary:
        raise MultipartError("the Content-Type has no boundary")
    if len(boundary) > MAX_BOUNDARY or not boundary.isascii():
        raise MultipartError(f"the boundary must be ASCII and have at most {MAX_BOUNDARY} characters")
    return boundary.encode("ascii")


def split_parts(body: bytes, boundary: bytes, max_parts: int) -> list[Part]:
    """The parts of a body, in order.

    Raises:
        TooManyPartsError: there are more.
        MultipartError: the body is truncated or malformed.
    """
    delimiter = LINE + b"--" + boundary
    # A form usually begins with its first boundary; anything before it is ignored.
    end = -len(LINE) if body.startswith(delimiter.removeprefix(LINE)) else _find(body, delimiter, 0)
    parts: list[Part] = []
    while end < len(body):
        start = end + len(delimiter)
        if body.startswith(b"--", start):
            return parts
        if len(parts) == max_parts:
            raise TooManyPartsError(f"the form has more than {max_parts} parts")
        end = _find(body, delimiter, start)
        parts.append(_part(body, start, end, len(parts)))
    raise MultipartError("the form is truncated: its closing boundary is missing")


def _find(body: bytes, delimiter: bytes, start: int) -> int:
    """Position of the next delimiter, or the end of the body."""
    for begin in range(start, len(body), STEP):
        position = body.find(delimiter, begin, begin + STEP + len(delimiter) - 1)
        if position >= 0:
            return position
    return len(body)


def _part(body: bytes, start: int, end: int, number: int) -> Part:
    """The part between two boundaries; of a large body nothing but its data is copied."""
    # The boundary may be followed by spaces; an empty line ends the headers, of which there may be none.
    headers_start = body.find(LINE, start, end)
    headers_end = body.find(2 * LINE, headers_start, min(end, headers_start + MAX_HEADERS))
    if headers_start < 0 or headers_end < 0 or body[start:headers_start].strip(b" \t"):
        raise MultipartError(
            f"the headers of part {number} of the form do not end within {MAX_HEADERS} bytes"
        )
    disposition = ""
    for entry in body[headers_start:headers_end].split(LINE):
        key, _, value = entry.decode("utf-8", "replace").partition(":")
        if key.strip().lower() == "content-disposition":
            disposition = value
    kind, parameters = parse_header(disposition)
    name = _text(parameters, "name")
    if kind != "form-data" or name is None:
        raise MultipartError(
            f"part {number} of the form has no Content-Disposition with the name of its field"
        )
    return Part(name, _text(parameters, "filename"), body[headers_end + 2 * len(LINE) : end])


def _text(parameters: dict[str, str], name: str) -> str | None:
    """A parameter, which may also be written as name*=UTF-8''… (RFC 8187)."""
    if (encoded := parameters.get(f"{name}*")) is not None:
        return unquote(encoded.split("'", 2)[-1])
    return parameters.get(name)
