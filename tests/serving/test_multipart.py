from __future__ import annotations

import tracemalloc
from contextlib import suppress

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from facerts.serving.multipart import (
    STEP,
    MultipartError,
    Part,
    TooManyPartsError,
    boundary_of,
    parse_header,
    split_parts,
)


def boundary(content_type: str) -> bytes:
    return boundary_of(parse_header(content_type)[1])


def read(request: httpx.Request, most: int = 9) -> list[Part]:
    return split_parts(request.read(), boundary(request.headers["content-type"]), most)


def form(*lines: bytes) -> list[Part]:
    return split_parts(b"\r\n".join(lines), b"XX", 3)


NAMED = b'Content-Disposition: form-data; name="a"'


def test_what_a_client_library_writes_is_read_back() -> None:
    files = [
        ("images", ("a.jpg", b"\xff\xd8\r\n--not it\r\n", "image/jpeg")),
        ("images", ("ü ß.png", b"", "image/png")),
    ]
    request = httpx.Request("POST", "http://x", files=files, data={"keep": "0.95", "odd": "a\r\nb"})
    assert sorted(read(request), key=lambda part: part.name) == [
        Part("images", "a.jpg", b"\xff\xd8\r\n--not it\r\n"),
        Part("images", "ü ß.png", b""),
        Part("keep", None, b"0.95"),
        Part("odd", None, b"a\r\nb"),
    ]


@given(st.binary(max_size=300))
def test_any_bytes_survive_and_are_a_form_or_an_error(body: bytes) -> None:
    request = httpx.Request("POST", "http://x", files=[("f", ("n", data)) for data in (body, b"", body)])
    assert [part.data for part in read(request)] == [body, b"", body]
    for text in (body, b"--XX\r\n" + NAMED + b"\r\n\r\n" + body, b"--XX\r\n" + body + b"\r\n--XX--"):
        with suppress(MultipartError):
            assert all(isinstance(part, Part) for part in split_parts(text, b"XX", 2))


@pytest.mark.parametrize(
    ("written", "name"),
    [
        (b'filename="a \\"b\\".jpg"', 'a "b".jpg'),
        (b'filename="<a>"', "<a>"),
        (b"filename=a.jpg", "a.jpg"),
        (b'filename=""', ""),
        ('filename="ü.jpg"'.encode(), "ü.jpg"),
        (b"filename*=UTF-8''%C3%BC.jpg", "ü.jpg"),
        (b"filename*=%00''a", "a"),
        (b"filename=b.jpg; filename*=UTF-8''%C3%BC.jpg", "ü.jpg"),
        (b"filename=a b.jpg", "a b.jpg"),
        (b'filename="a;b=c"', "a;b=c"),
        (b'filename="\xff"', "\ufffd"),
    ],
)
def test_names_of_files_are_read_as_clients_write_them(written: bytes, name: str) -> None:
    (part,) = form(b"--XX", NAMED + b"; " + written, b"", b"data", b"--XX--")
    assert part == Part("a", name, b"data")


def test_what_stands_before_and_after_belongs_to_nobody() -> None:
    body = (b"hello", b"--XX  ", b"X-Other: b", NAMED, b"", b"data", b"--XX--", b"bye", b"--XX", b"")
    assert form(*body) == [Part("a", None, b"data")]


OTHER = b'Content-Disposition: attachment; name="a"'
BROKEN = [
    ((b"",), "truncated"),
    ((b"--XX", NAMED, b"", b"data"), "truncated"),
    ((b"--XX", NAMED, b"", b"data", b"--XX"), "headers of part 1"),
    ((b"--XX", NAMED, b"", b"data", b"--XY--"), "truncated"),
    ((b"--XXY", NAMED, b"", b"data", b"--XX--"), "headers of part 0"),
    ((b"--XX", NAMED, b"--XX--"), "the headers of part 0 of the form do not end"),
    ((b"--XX", b"X: " + b"y" * 5000, NAMED, b"", b"data", b"--XX--"), "within 4096 bytes"),
    ((b"--XX", b"", b"data", b"--XX--"), "the name of its field"),
    ((b"--XX", OTHER, b"", b"data", b"--XX--"), "the name of its field"),
    ((b"--XX", b"Content-Disposition: form-data", b"", b"data", b"--XX--"), "the name of its field"),
]


@pytest.mark.parametrize(("lines", "words"), BROKEN)
def test_a_broken_form_is_an_error_that_says_what_is_broken(lines: tuple[bytes, ...], words: str) -> None:
    with pytest.raises(MultipartError, match=words):
        form(*lines)


def test_parts_are_counted_before_they_are_read() -> None:
    part = (b"--XX", NAMED, b"", b"data")
    assert len(form(*part, *part, *part, b"--XX--")) == 3
    with pytest.raises(TooManyPartsError, match="more than 3 parts"):
        form(*part, *part, *part, *part, b"--XX--")
    with pytest.raises(TooManyPartsError):
        split_parts(b"\r\n--X" * 100_000, b"X", 0)


def test_the_boundary_is_read_from_the_content_type() -> None:
    assert boundary("multipart/form-data; boundary=abc") == b"abc"
    assert boundary('Multipart/Form-Data ;; charset=utf-8;Boundary="a b:c" ;') == b"a b:c"
    for end in ("", "; boundary=", "; boundary=" + 71 * "a", "; boundary=ü", "; boundary*=utf-8''abc"):
        with pytest.raises(MultipartError, match="boundary"):
            boundary(f"multipart/form-data{end}")


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ("boundary=a; Boundary=b", "there twice"),
        ('boundary="a', "malformed"),
        ('boundary=a"b', "malformed"),
        ("boundary", "malformed"),
        # Those that email.message takes seconds for, and those that it fails on.
        ('boundary="x' + 100_000 * ";", "malformed"),
        ('boundary="' + 50_000 * '\\"', "malformed"),
        (";".join(f"a{number}=b" for number in range(100_000)), "no boundary"),
        ("boundary*" + 5000 * "9" + "=x", "no boundary"),
    ],
)
def test_parameters_are_read_in_linear_time_and_are_unambiguous(parameters: str, words: str) -> None:
    with pytest.raises(MultipartError, match=words):
        boundary(f"multipart/form-data; {parameters}")


def test_boundaries_are_found_wherever_the_search_goes_on() -> None:
    start = b"--XX\r\n" + NAMED + b"\r\n\r\n"
    for before in range(8):
        data = bytes(STEP - len(start) - before)
        assert split_parts(start + data + b"\r\n--XX--", b"XX", 1) == [Part("a", None, data)]


def test_only_the_data_of_the_parts_is_copied() -> None:
    files = [("images", (f"{number}.png", bytes(1_000_000))) for number in range(8)]
    request = httpx.Request("POST", "http://x", files=files)
    body, delimiter = request.read(), boundary(request.headers["content-type"])
    tracemalloc.start()
    try:
        parts = split_parts(body, delimiter, 9)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(len(part.data) for part in parts) == 8_000_000
    assert peak < 8_100_000
