"""The parts of a multipart/form-data body that is held in memory; no part ever touches the disk.

RFC 2046, section 5.1, and RFC 7578.
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
    """It has more parts than it may."""


@dataclass(frozen=True)
class Part:
    """One field of a form.

    Attributes:
        name: of the field.
        filename: None where the field is no file.
        data: its bytes.
    """

    name: str
    filename: str | None
    data: bytes


def boundary_of(content_type: Message) -> bytes:
    """The boundary that a Content-Type names.

    Raises:
        MultipartError: it names none, or one that cannot be.
    """
    boundary = content_type.get_param("boundary")
    if not isinstance(boundary, str) or not boundary:
        raise MultipartError("the Content-Type names no boundary")
    if len(boundary) > MAX_BOUNDARY or not boundary.isascii():
        raise MultipartError(f"the boundary is no ASCII of at most {MAX_BOUNDARY} characters")
    return boundary.encode("ascii")


def split_parts(body: bytes, boundary: bytes, most: int) -> list[Part]:
    """The parts of a body, in order.

    Args:
        body: the whole of it.
        boundary: between the parts.
        most: parts that are read.

    Raises:
        TooManyPartsError: there are more.
        MultipartError: the body is cut short, or broken.
    """
    # What comes before the first boundary belongs to nobody. The end has two hyphens after its boundary.
    _, *pieces = (LINE + body).split(LINE + b"--" + boundary, most + 2)
    parts: list[Part] = []
    for piece in pieces:
        if piece.startswith(b"--"):
            return parts
        if len(parts) == most:
            raise TooManyPartsError(f"the form has more than {most} parts")
        parts.append(_part(piece, len(parts)))
    raise MultipartError("the form is cut short: its last boundary is missing")


def _part(piece: bytes, number: int) -> Part:
    # The line of the boundary may end in spaces; an empty line ends the headers, or comes at once.
    begin = piece.find(LINE)
    end = piece.find(2 * LINE, begin, begin + MAX_HEADERS)
    if begin < 0 or end < 0 or piece[:begin].strip(b" \t"):
        raise MultipartError(f"part {number} of the form has no headers that end within {MAX_HEADERS} bytes")
    headers = Message()
    for entry in piece[begin:end].split(LINE):
        key, _, value = entry.decode("utf-8", "replace").partition(":")
        if key.strip().lower() == "content-disposition":
            headers["content-disposition"] = value.strip()
    name = _parameter(headers, "name")
    if headers.get_content_disposition() != "form-data" or name is None:
        raise MultipartError(f"part {number} of the form has no Content-Disposition that names its field")
    return Part(name, _parameter(headers, "filename"), piece[end + 2 * len(LINE) :])


def _parameter(headers: Message, name: str) -> str | None:
    """Of Content-Disposition; the library's own way of taking off quotes takes off angle brackets, too."""
    value = headers.get_param(name, header="content-disposition", unquote=False)
    if value is None:
        return None
    if isinstance(value, tuple):  # name*=UTF-8''…, whose bytes come as Latin-1
        value = value[2].encode("latin-1", "replace").decode("utf-8", "replace")
    if len(value) >= 2 and value[0] == value[-1] == '"':
        value = value[1:-1].replace('\\"', '"')
    return value
