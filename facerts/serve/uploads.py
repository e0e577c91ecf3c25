"""A request's body to the pictures in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message
from typing import TYPE_CHECKING

from facerts.serve.multipart import MultipartError, Part, TooManyPartsError, boundary_of, split_parts
from facerts.serve.refusal import RefusedError

if TYPE_CHECKING:
    from starlette.requests import Request

FORM = "multipart/form-data"
# Of one picture as the whole body; what it really is its first bytes say.
PICTURE_TYPES = ("image/jpeg", "image/png", "image/webp", "image/bmp", "application/octet-stream")
FIELD = "pictures"


@dataclass(frozen=True)
class Upload:
    """A picture as it was sent.

    Attributes:
        name: of its file, as the client gave it; for the answer, and nothing else.
        data: encoded.
    """

    name: str | None
    data: bytes


async def read_uploads(
    request: Request, *, max_pictures: int, max_fields: int
) -> tuple[list[Upload], dict[str, str]]:
    """The pictures of a request, and the other fields of its form.

    Args:
        request: whose body is a picture, or a form with files.
        max_pictures: that it may have.
        max_fields: that its form may have besides.

    Raises:
        RefusedError: it is something else, has no pictures or too many, or a form that cannot be read.
    """
    told = _content_type(request.headers)
    kind = told.get_content_type() if "content-type" in told else ""
    if kind == FORM:
        try:
            boundary = boundary_of(told)
            parts = split_parts(await _body(request), boundary, max_pictures + max_fields)
        except TooManyPartsError as error:
            raise _too_many(max_pictures) from error
        except MultipartError as error:
            raise RefusedError("bad_request", str(error)) from error
        return _sort(parts, max_pictures)
    if kind not in PICTURE_TYPES:
        raise RefusedError(
            "unsupported_type",
            f"the body must be {FORM} with files in {FIELD!r}, or one picture as {', '.join(PICTURE_TYPES)}"
            + (f", not {kind}" if kind else "; it has no Content-Type"),
        )
    data = await _body(request)
    if not data:
        raise RefusedError("bad_request", "the body is empty; it must be a picture")
    return [Upload(None, data)], {}


def _sort(parts: list[Part], max_pictures: int) -> tuple[list[Upload], dict[str, str]]:
    uploads: list[Upload] = []
    fields: dict[str, str] = {}
    for part in parts:
        if part.filename is not None:
            if part.name != FIELD:
                raise RefusedError("invalid", f"files belong in the field {FIELD!r}, not in {part.name!r}")
            uploads.append(Upload(part.filename, part.data))
        elif part.name == FIELD:
            raise RefusedError("invalid", f"{FIELD!r} must be files; with curl: -F {FIELD}=@photo.jpg")
        elif part.name in fields:
            raise RefusedError("invalid", f"the field {part.name!r} is there twice")
        else:
            fields[part.name] = part.data.decode("utf-8", "replace")
    if not uploads:
        raise RefusedError("bad_request", f"the form has no files in the field {FIELD!r}")
    if len(uploads) > max_pictures:
        raise _too_many(max_pictures)
    return uploads, fields


def _too_many(max_pictures: int) -> RefusedError:
    return RefusedError("invalid", f"more pictures than {max_pictures}, the most that a request may have")


def _content_type(headers: Mapping[str, str]) -> Message:
    told = Message()
    if "content-type" in headers:
        told["content-type"] = headers["content-type"]
    return told


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for piece in request.stream():
        body += piece
    return bytes(body)
