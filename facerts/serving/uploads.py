"""The body of a request to its images, or its video, and its options: a form, JSON with base64, or one image alone."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from multipart import MultipartError, MultipartSegment, PushMultipartParser, parse_options_header
from pydantic import ValidationError

from facerts.errors import did_you_mean
from facerts.scoring.prepare import storable
from facerts.serving.error_responses import RequestError, options_text
from facerts.serving.schemas import FORM_TYPE, ThresholdOptions

if TYPE_CHECKING:
    from starlette.requests import Request

# Bytes of an option in a form, or characters of a key or an option in JSON.
MAX_FIELD = 1000
MAX_BOUNDARY = 70
# Bytes of a line of a part's headers.
MAX_HEADER = 4096
EXAMPLES = {"image": "photo.jpg", "video": "clip.mp4"}
# Escapes of characters outside of ASCII; a string that has them takes four bytes for each of its characters.
_ESCAPED = re.compile(rb"\\u(?!00[0-7])")
_DATA_URL = re.compile(r"data:[^,]{,200};base64,", re.IGNORECASE)

AnyOptions = TypeVar("AnyOptions", bound=ThresholdOptions)
Noun = Literal["image", "video"]


@dataclass(frozen=True)
class Upload:
    """An image or a video as it was sent."""

    name: str | None
    data: bytes


@dataclass(frozen=True)
class Expected:
    """The images or videos that a request may bring, at most ``maximum``, and the names of its options."""

    noun: Noun
    maximum: int
    options: Collection[str]

    def invalid(self, message: str) -> RequestError:
        """The error of a JSON body, which says what was expected."""
        several = "" if self.maximum == 1 else f' or {{"{self.noun}s": ["BASE64", ...]}}'
        return RequestError(
            "bad_request",
            f'{message}; expected {{"{self.noun}": "BASE64"}}{several}, with options as more keys',
        )

    def check_name(self, name: str, earlier: Collection[str]) -> None:
        """Refuse what is no option, or one for the second time."""
        if name in (self.noun, f"{self.noun}s"):
            example = EXAMPLES[self.noun]
            raise RequestError("invalid", f"{name!r} must be a file; with curl: -F {self.noun}=@{example}")
        if name not in self.options:
            known = did_you_mean(name, self.options) or f"; the options are {', '.join(self.options)}"
            raise RequestError("invalid", f"unknown option {name!r}{known}")
        if name in earlier:
            raise RequestError("invalid", f"the option {name!r} is there twice")

    def check_count(self, count: int) -> None:
        if count > self.maximum:
            raise RequestError("invalid", f"more than {self.maximum} {self.noun}s, the maximum of a request")


async def read_uploads(
    request: Request, options: AnyOptions, *, maximum: int, noun: Noun = "image"
) -> tuple[list[Upload], AnyOptions]:
    """The images or the video of a request, and its options: those of the URL, or others of the body."""
    if (encoding := request.headers.get("content-encoding", "identity").lower()) != "identity":
        raise RequestError("unsupported_type", f"send the body as it is, without Content-Encoding: {encoding}")
    expected = Expected(noun, maximum, type(options).model_fields)
    media_type, parameters = parse_options_header(request.headers.get("content-type", ""))
    fields: Mapping[str, Any] = {}
    strict = False
    if media_type == FORM_TYPE:
        uploads, fields = await _read_form(request, parameters.get("boundary", ""), expected)
    else:
        content = BytesIO()
        async for chunk in request.stream():
            content.write(chunk)
        body = content.getvalue()
        if strict := media_type == "application/json" or body[:64].lstrip().startswith(b"{"):
            # In memory there are both what was sent and what it says.
            hold: Callable[[int], None] = request.scope["facerts.hold"]
            hold(3 * len(body) // 4)
            # In a thread, because a large body takes long.
            uploads, fields = await asyncio.to_thread(read_json, body, expected)
        else:
            uploads = [Upload(None, body)] if body else []
    if not uploads:
        raise RequestError("bad_request", f"the body has no {noun}; with curl: -F {noun}=@{EXAMPLES[noun]}")
    return uploads, _merged(options, request.query_params.keys(), fields, strict=strict)


async def _read_form(request: Request, boundary: str, expected: Expected) -> tuple[list[Upload], dict[str, str]]:
    """The files of a form, under any names, and its other fields; parsed as it arrives, and only held in memory."""
    uploads: list[Upload] = []
    fields: dict[str, str] = {}
    if not boundary or len(boundary) > MAX_BOUNDARY:
        raise RequestError(
            "bad_request",
            f"the Content-Type of a form must have a boundary of at most {MAX_BOUNDARY} characters",
        )
    try:
        parser = PushMultipartParser(boundary, max_header_size=MAX_HEADER)
        async for chunk in request.stream():
            # The last chunk is empty, and the parser then says whether the form is complete.
            for event in parser.parse(chunk):
                if isinstance(event, MultipartSegment):
                    part, content = event, BytesIO()
                    is_file = part.filename is not None or part.content_type not in (None, "text/plain")
                    if is_file:
                        expected.check_count(len(uploads) + 1)
                    else:
                        expected.check_name(part.name or "", fields)
                elif event is not None:
                    content.write(event)
                    if not is_file and content.tell() > MAX_FIELD:
                        raise RequestError("invalid", f"the option {part.name!r} has more than {MAX_FIELD} bytes")
                elif is_file:
                    name = None if part.filename is None else storable(part.filename)
                    uploads.append(Upload(name, content.getvalue()))
                else:
                    fields[part.name or ""] = content.getvalue().decode("utf-8", "replace")
    except MultipartError as error:
        raise RequestError("bad_request", f"the form is broken or cut short: {error.args[0]}") from error
    return uploads, fields


def read_json(body: bytes, expected: Expected) -> tuple[list[Upload], dict[str, object]]:
    """The images or the video of a JSON object, and its other values."""
    # Every value of a list or an object has one of these bytes, and base64 has none. So nothing is parsed that takes
    # many times its size in memory, or that is nested deep.
    if sum(map(body.count, b"[{,")) > 4 * (expected.maximum + len(expected.options)):
        raise expected.invalid(f"the JSON has far more values than {expected.maximum} {expected.noun}s and the options")
    if not body.isascii() or _ESCAPED.search(body):
        raise expected.invalid("the JSON has characters outside of ASCII")

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, object]:
        if len(found := dict(pairs)) < len(pairs):
            raise expected.invalid("a key of the JSON is there twice")
        return found

    try:
        values = json.loads(body, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else "it is too long or too deep"
        raise expected.invalid(f"the body is not valid JSON ({reason})") from error
    if not isinstance(values, dict):
        raise expected.invalid("the JSON is not an object")
    single, plural = values.pop(expected.noun, None), values.pop(f"{expected.noun}s", None)
    if single is not None and plural is not None:
        raise expected.invalid(f"the JSON has both {expected.noun!r} and '{expected.noun}s'")
    texts = plural if single is None else [single]
    if texts is None or not isinstance(texts, list):
        raise expected.invalid(f"the JSON has no list of {expected.noun}s")
    expected.check_count(len(texts))
    uploads = [Upload(None, _decoded(text, number, expected)) for number, text in enumerate(texts)]
    for name, value in values.items():
        if len(name) > MAX_FIELD or (isinstance(value, str) and len(value) > MAX_FIELD):
            raise expected.invalid(f"the option {name[:20]!r} or its value has more than {MAX_FIELD} characters")
        expected.check_name(name, ())
    return uploads, values


def _decoded(text: object, number: int, expected: Expected) -> bytes:
    if not isinstance(text, str):
        raise expected.invalid(f"{expected.noun} {number} is not a string")
    begin = _DATA_URL.match(text)
    try:
        return base64.b64decode(text if begin is None else text[begin.end() :], validate=True)
    except ValueError as error:
        raise expected.invalid(f"{expected.noun} {number} is not base64 ({error})") from error


def _merged(query: AnyOptions, named: Collection[str], fields: Mapping[str, Any], *, strict: bool) -> AnyOptions:
    """The options of the URL together with those of the body."""
    given = {name: getattr(query, name) for name in named}
    if twice := given.keys() & fields.keys():
        raise RequestError("invalid", f"the option {min(twice)!r} is in both the URL and the body; give it only once")
    try:
        return type(query).model_validate({**given, **fields}, strict=strict)
    except ValidationError as error:
        raise RequestError("invalid", options_text(error.errors())) from error
