"""The parts of a multipart/form-data body that is held in memory; no part is ever written to disk.

RFC 2046, section 5.1, and RFC 7578. Kept although Starlette has a parser, because that one (python-multipart 0.0.34) is
busy for ten seconds with 32 MiB of almost-boundaries and takes a form that is cut short for a complete one; measured in
docs/decisions/0013-a-multipart-parser-of-our-own.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from email.message import Message

from facerts.errors import Error

LINE = b"\r\n"
MAX_HEADERS = 4096
MAX_BOUNDARY = 70


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


def boundary_of(content_type: Message) -> bytes:
    """The boundary that a Content-Type names.

    Raises:
        MultipartError: it names none, or an invalid one.
    """
    boundary = content_type.get_param("boundary")
    if not isinstance(boundary, str) or not boundary:
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
    position = body.find(delimiter, start)
    return len(body) if position < 0 else position


def _part(body: bytes, start: int, end: int, number: int) -> Part:
    """The part between two boundaries; of a large body nothing but its data is copied."""
    # The boundary may be followed by spaces; an empty line ends the headers, of which there may be none.
    headers_start = body.find(LINE, start, end)
    headers_end = body.find(2 * LINE, headers_start, min(end, headers_start + MAX_HEADERS))
    if headers_start < 0 or headers_end < 0 or body[start:headers_start].strip(b" \t"):
        raise MultipartError(
            f"the headers of part {number} of the form do not end within {MAX_HEADERS} bytes"
        )
    headers = Message()
    for entry in body[headers_start:headers_end].split(LINE):
        key, _, value = entry.decode("utf-8", "replace").partition(":")
        if key.strip().lower() == "content-disposition":
            headers["content-disposition"] = value.strip()
    name = _parameter(headers, "name")
    if headers.get_content_disposition() != "form-data" or name is None:
        raise MultipartError(
            f"part {number} of the form has no Content-Disposition with the name of its field"
        )
    return Part(name, _parameter(headers, "filename"), body[headers_end + 2 * len(LINE) : end])


def _parameter(headers: Message, name: str) -> str | None:
    """A parameter of Content-Disposition; the library's own way to remove quotes also removes angle brackets."""
    value = headers.get_param(name, header="content-disposition", unquote=False)
    if value is None:
        return None
    if isinstance(value, tuple):  # name*=UTF-8''…, whose bytes come as Latin-1
        value = value[2].encode("latin-1", "replace").decode("utf-8", "replace")
    if len(value) >= 2 and value[0] == value[-1] == '"':
        value = value[1:-1].replace('\\"', '"')
    return value
