"""The body of a request to its images and options."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from facerts.errors import did_you_mean, problems_text
from facerts.serving.error_responses import RequestError
from facerts.serving.multipart import (
    MultipartError,
    Part,
    TooManyPartsError,
    boundary_of,
    parse_header,
    split_parts,
)
from facerts.serving.schemas import (
    FORM_TYPE,
    IMAGE_TYPES,
    IMAGES_FIELD,
    VIDEO_FIELD,
    VIDEO_TYPES,
    ThresholdOptions,
)

if TYPE_CHECKING:
    from starlette.requests import Request

# Bytes of an option in a form.
MAX_FIELD = 1000
AnyOptions = TypeVar("AnyOptions", bound=ThresholdOptions)


@dataclass(frozen=True)
class UploadKind:
    """What a request brings.

    Attributes:
        field: of the form.
        types: of a body that is one of it.
        noun: what errors call several.
        one: what they call one.
        example: a name of a file.
    """

    field: str
    types: tuple[str, ...]
    noun: str
    one: str
    example: str


IMAGE_UPLOADS = UploadKind(IMAGES_FIELD, IMAGE_TYPES, "images", "one image", "photo.jpg")
VIDEO_UPLOADS = UploadKind(VIDEO_FIELD, VIDEO_TYPES, "videos", "one video", "clip.mp4")


@dataclass(frozen=True)
class Upload:
    """An image or a video as it was sent."""

    name: str | None
    data: bytes


async def read_uploads(
    request: Request, *, max_images: int, max_fields: int, kind: UploadKind = IMAGE_UPLOADS
) -> tuple[list[Upload], dict[str, str]]:
    """The images or the video of a request, and the other fields of its form.

    Args:
        request: its body is an image or a video, or a form with files.
        max_images: maximum number of files.
        max_fields: maximum number of other fields.
        kind: what the files are.

    Raises:
        RequestError: the body is something else, has no images or too many, or is a broken form.
    """
    if (encoding := request.headers.get("content-encoding", "identity").lower()) != "identity":
        raise RequestError(
            "unsupported_type", f"send the body as it is, without Content-Encoding: {encoding}"
        )
    content_type = request.headers.get("content-type", "")
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type == FORM_TYPE:
        try:
            boundary = boundary_of(parse_header(content_type)[1])
            # In a thread, because a large body takes long.
            parts = await asyncio.to_thread(
                split_parts, await _body(request), boundary, max_images + max_fields
            )
        except TooManyPartsError as error:
            raise _too_many(max_images, kind) from error
        except MultipartError as error:
            raise RequestError("bad_request", str(error)) from error
        return _files_and_fields(parts, max_images, kind)
    if media_type not in kind.types:
        raise RequestError(
            "unsupported_type",
            f"the body must be {FORM_TYPE} with files in {kind.field!r}, or {kind.one} as "
            f"{', '.join(kind.types)}"
            + (f", not {media_type}" if media_type else "; it has no Content-Type"),
        )
    data = await _body(request)
    if not data:
        raise RequestError("bad_request", f"the body is empty; it must be {kind.one}")
    return [Upload(None, data)], {}


def merge_options(query: AnyOptions, named: Collection[str], fields: Mapping[str, str]) -> AnyOptions:
    """The options of the URL together with those of the form.

    Args:
        named: those of them that the URL names.

    Raises:
        RequestError: a field is unknown, invalid, or also in the URL.
    """
    known = type(query).model_fields
    given: dict[str, Any] = {name: getattr(query, name) for name in named}
    for name in fields:
        if name not in known:
            raise RequestError("invalid", f"unknown option {name!r}{did_you_mean(name, known)}")
        if name in given:
            raise RequestError(
                "invalid", f"the option {name!r} is in both the URL and the form; give it only once"
            )
    try:
        return type(query).model_validate({**given, **fields})
    except ValidationError as error:
        raise RequestError("invalid", problems_text(error.errors())) from error


def _files_and_fields(
    parts: list[Part], max_files: int, kind: UploadKind
) -> tuple[list[Upload], dict[str, str]]:
    uploads: list[Upload] = []
    fields: dict[str, str] = {}
    for part in parts:
        if part.filename is not None:
            if part.name != kind.field:
                raise RequestError(
                    "invalid", f"files belong in the field {kind.field!r}, not in {part.name!r}"
                )
            uploads.append(Upload(part.filename, part.data))
        elif part.name == kind.field:
            raise RequestError(
                "invalid", f"{kind.field!r} must be files; with curl: -F {kind.field}=@{kind.example}"
            )
        elif part.name in fields:
            raise RequestError("invalid", f"the field {part.name!r} is there twice")
        else:
            if len(part.data) > MAX_FIELD:
                raise RequestError("invalid", f"the field {part.name!r} has more than {MAX_FIELD} bytes")
            fields[part.name] = part.data.decode("utf-8", "replace")
    if not uploads:
        raise RequestError("bad_request", f"the form has no files in the field {kind.field!r}")
    if len(uploads) > max_files:
        raise _too_many(max_files, kind)
    return uploads, fields


def _too_many(maximum: int, kind: UploadKind) -> RequestError:
    return RequestError("invalid", f"more than {maximum} {kind.noun}, the maximum of a request")


async def _body(request: Request) -> bytes:
    return b"".join([chunk async for chunk in request.stream()])
