import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from facerts.datasets.synthetic import draw_face
from facerts.errors import ImageError
from facerts.images import (
    MAX_PIXELS,
    decode,
    decode_crop,
    decoding,
    encode_jpeg,
    encode_png,
    fit_crop,
    image_suffix,
    jpeg,
    read,
)
from facerts.images.limits import CheckedImage
from tests.hostile import images as hostile


@pytest.fixture(scope="module")
def face():
    return draw_face(1, 0)


def encoded(image, kind, **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


@pytest.mark.parametrize("kind", ["PNG", "BMP"])
def test_lossless_formats_round_trip_exactly(face, kind):
    assert np.array_equal(decode(encoded(Image.fromarray(face), kind), where="x"), face)


@pytest.mark.parametrize(
    ("kind", "options"),
    [("JPEG", {"quality": 95}), ("JPEG", {"quality": 95, "progressive": True}), ("WEBP", {"quality": 95})],
)
def test_lossy_formats_round_trip_closely(face, kind, options):
    decoded = decode(encoded(Image.fromarray(face), kind, **options), where="x")
    assert np.abs(decoded.astype(int) - face).mean() < 6
    # Red and blue are not swapped.
    assert np.abs(decoded.astype(int) - face).mean() < np.abs(decoded[..., ::-1].astype(int) - face).mean()


def test_a_jpeg_with_restart_markers_and_bytes_after_its_end_is_read(face):
    data = encoded(Image.fromarray(face), "JPEG", quality=90, restart_marker_blocks=2)
    assert b"\xff\xd0" in data
    assert np.array_equal(decode(data + b"trailing", where="x"), decode(data, where="x"))


def test_grayscale_becomes_three_equal_channels(face):
    gray = face.mean(axis=2).astype(np.uint8)
    decoded = decode(encoded(Image.fromarray(gray), "PNG"), where="x")
    assert decoded.shape == (112, 112, 3)
    assert all(np.array_equal(decoded[..., channel], gray) for channel in range(3))


def test_alpha_is_dropped_and_the_colors_stay(face):
    alpha = np.full((112, 112, 1), 7, dtype=np.uint8)
    data = encoded(Image.fromarray(np.concatenate([face, alpha], axis=2)), "PNG")
    assert np.array_equal(decode(data, where="x"), face)


def test_sixteen_bits_become_the_upper_eight(face):
    gray = face[..., 0].astype(np.uint16) * 257
    decoded = decode(encoded(Image.fromarray(gray), "PNG"), where="x")
    assert np.abs(decoded[..., 0].astype(int) - face[..., 0]).max() <= 1


def test_cmyk_is_converted(face):
    data = encoded(Image.fromarray(face).convert("CMYK"), "JPEG", quality=95)
    assert np.abs(decode(data, where="x").astype(int) - face).mean() < 8


def test_a_palette_is_resolved(face):
    palette = Image.fromarray(face).quantize(64)
    assert np.array_equal(decode(encoded(palette, "PNG"), where="x"), np.array(palette.convert("RGB")))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied(face, orientation):
    image = Image.fromarray(np.ascontiguousarray(face[:, :80]))
    exif = image.getexif()
    exif[0x0112] = orientation
    data = encoded(image, "JPEG", quality=100, subsampling=0, exif=exif)
    from PIL import ImageOps

    upright = np.array(ImageOps.exif_transpose(Image.open(io.BytesIO(data))))
    decoded = decode(data, where="x")
    assert decoded.shape == upright.shape
    assert np.abs(decoded.astype(int) - upright).mean() < 2


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "empty"),
        (b"hello, this is text", "not a JPEG"),
        (b"GIF89a" + bytes(20), "broken GIF"),
        (b"\0\0\0\x18ftypheic\0\0\0\0", "broken HEIC"),
        (b"\0\0\0\x18ftypmif1\0\0\0\0", "broken HEIC"),
        (b"\0\0\0\x18ftypavif\0\0\0\0", "broken AVIF"),
        (b"II*\0\0\0", "broken TIFF"),
        (b"MM\0*\0\0", "broken TIFF"),
        (b"%PDF-1.7", "PDF is not read"),
        (b"\xff\xd8", "truncated"),
        (b"\xff\xd8\x00\x01\x02\x03", "broken JPEG"),
        (b"\x89PNG\r\n\x1a\n", "truncated"),
        (b"RIFF\x00\x00\x00\x00WEBP", "truncated"),
        (b"BM" + bytes(10), "truncated"),
    ],
)
def test_data_that_is_not_an_image_is_refused_with_the_files_name(data, message):
    with pytest.raises(ImageError, match=rf"some/file\.jpg: .*{message}"):
        decode(data, where="some/file.jpg")


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "BMP"])
@pytest.mark.parametrize("share", [0.02, 0.3, 0.7, 0.95])
def test_a_truncated_image_is_refused(face, kind, share):
    data = encoded(Image.fromarray(face), kind)
    with pytest.raises(ImageError):
        decode(data[: int(share * len(data))], where="x")


@pytest.mark.parametrize("options", [{}, {"restart_marker_blocks": 3}, {"progressive": True}])
def test_a_jpeg_may_lack_its_end_marker_but_nothing_else(face, options, capsys):
    # Its lower half is of the gray that libjpeg fills missing rows with.
    image = np.concatenate([face[:40, :40], np.full((40, 40, 3), 128, np.uint8)])
    data = encoded(Image.fromarray(image), "JPEG", quality=90, **options)
    read_without = []
    for missing in range(len(data) - data.index(b"\xff\xda")):
        try:
            cut = decode(data[: len(data) - missing], where="x.jpg")
        except ImageError:
            continue
        assert np.array_equal(cut, decode(data, where="x"))
        # Warned of once, however often it is decoded.
        decode(data[: len(data) - missing], where="x.jpg")
        read_without.append(missing)
    assert read_without == ([0] if "progressive" in options else [0, 1, 2])
    for broken in (data[:-9], data[:-9] + bytes(500)):
        with pytest.raises(ImageError, match=r"x\.jpg: the JPEG is truncated"):
            decode(broken, where="x.jpg")
    warning = "warning: x.jpg: the end of the JPEG is missing, but all of its pixels are there\n"
    assert capsys.readouterr().err == warning * (len(read_without) - 1)


def test_broken_pixels_are_refused(face):
    data = bytearray(encode_png(face))
    data[len(data) // 3 : len(data) // 3 + 40] = bytes(40)
    with pytest.raises(ImageError):
        decode(bytes(data), where="x")


def test_a_crop_of_another_size_is_resized_and_a_photo_is_not_taken_for_one(face):
    assert decode_crop(encode_png(face), where="x").shape == (112, 112, 3)
    large = np.repeat(np.repeat(face, 2, axis=0), 2, axis=1)
    assert np.abs(decode_crop(encode_png(large), where="x").astype(int) - face).max() <= 1
    with pytest.raises(ImageError, match="112 x 80 pixels are not an aligned crop"):
        decode_crop(encode_png(face[:80]), where="x")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ImageError, match=r"nowhere\.png: cannot be read"):
        read(tmp_path / "nowhere.png")
    (tmp_path / "a.png").write_bytes(encode_png(draw_face(0, 0)))
    assert np.array_equal(read(tmp_path / "a.png"), draw_face(0, 0))


def test_a_jpeg_with_more_scans_than_usual_is_read(face):
    data = encoded(Image.fromarray(face), "JPEG", progressive=True)
    last = data.rindex(b"\xff\xda")
    assert data.count(b"\xff\xda") > 3
    assert decode(data[:last] + data[last:-2] * 20 + data[-2:], where="x").shape == face.shape


@pytest.mark.parametrize("subsampling", [0, 2])
def test_the_scans_of_ordinary_progressive_jpegs_are_within_the_limit_at_any_size(face, subsampling):
    data = encoded(Image.fromarray(face), "JPEG", progressive=True, subsampling=subsampling)
    assert data.count(b"\xff\xda") == 10
    header = data.index(b"\xff\xc2")
    large = data[: header + 5] + struct.pack(">HH", 8000, 8000) + data[header + 9 :]
    assert jpeg.check(large, "x", MAX_PIXELS).height == 8000


def test_a_jpeg_may_have_a_comment_before_its_end_marker(face):
    data = encode_jpeg(face)
    commented = data[:-2] + hostile.segment(0xFE, b"made by hand") + data[-2:]
    assert np.array_equal(decode(commented, where="x"), decode(data, where="x"))


def test_png_chunks_that_pixels_do_not_need_are_ignored(face):
    exif = Image.Exif()
    exif[0x0112] = 3
    data = encoded(Image.fromarray(face), "PNG", icc_profile=bytes(500), dpi=(72, 72), exif=exif)
    chunks = hostile.chunk(b"gAMA", struct.pack(">I", 100_000)) + hostile.chunk(b"zTXt", b"a\0\0nothing")
    data = data[:33] + chunks + data[33:]
    assert np.array_equal(decode(data + b"trailing", where="x"), face[::-1, ::-1])


@pytest.mark.slow
@pytest.mark.parametrize(("depth", "color", "side"), [(8, hostile.RGB, 1250), (1, hostile.GRAY, 6000)])
def test_a_large_incompressible_interlaced_png_is_read(depth, color, side):
    random = np.random.default_rng(0)
    kind = {"depth": depth, "color": color, "interlaced": True}
    rows = hostile.png_rows(side, side, random.bytes, **kind)
    data = hostile.png(hostile.png_header(side, side, **kind), hostile.chunk(b"IDAT", zlib.compress(rows, 1)))
    assert len(data) > 4 << 20, "the size above which the pixels are inflated before decoding"
    assert np.array_equal(decode(data, where="x"), np.array(Image.open(io.BytesIO(data)).convert("RGB")))


@pytest.mark.parametrize(("kind", "mark"), [("PNG", b"fdAT"), ("WEBP", b"ANMF")])
def test_the_first_frame_of_an_animation_is_read(face, kind, mark):
    exif = Image.Exif()
    exif[0x0112] = 3
    others = [Image.fromarray(face[::-1])]
    data = encoded(Image.fromarray(face), kind, save_all=True, append_images=others, lossless=True, exif=exif)
    assert mark in data
    assert np.array_equal(decode(data, where="x"), face[::-1, ::-1])


def test_a_frame_may_be_smaller_than_its_canvas():
    frame = bytes(16) + hostile.riff_chunk(b"VP8L", hostile.lossless(32, 32))
    data = hostile.webp(hostile.webp_canvas(40, 40, 2), hostile.riff_chunk(b"ANMF", frame))
    assert decode(data, where="x").shape == (32, 32, 3)


@pytest.mark.parametrize("lossless", [False, True])
def test_the_alpha_channel_of_a_webp_is_dropped_and_its_orientation_kept(face, lossless):
    exif = Image.Exif()
    exif[0x0112] = 3
    alpha = np.arange(112, dtype=np.uint8).repeat(112).reshape(112, 112, 1)
    with_alpha = Image.fromarray(np.concatenate([face, alpha], axis=2))
    options = {"lossless": lossless, "quality": 90, "exact": True}
    data = encoded(with_alpha, "WEBP", **options, exif=exif, icc_profile=bytes(300), xmp=b"<x/>")
    assert b"VP8X" in data
    upright = encoded(with_alpha, "WEBP", **options)
    expected = np.array(Image.open(io.BytesIO(upright)).convert("RGB"))
    assert np.array_equal(decode(data, where="x"), expected[::-1, ::-1])


def test_a_bmp_with_the_old_header_is_read(face):
    # Rows are stored from bottom to top, blue first.
    data = hostile.bmp(112, 112, header=12, data=face[::-1, :, ::-1].tobytes())
    assert np.array_equal(decode(data, where="x"), face)


def test_an_image_whose_size_differs_from_its_header_is_refused(face, monkeypatch):
    data = encode_png(face)
    monkeypatch.setitem(decoding._CHECKS, "PNG", lambda *_: CheckedImage(112, 80, data))
    with pytest.raises(ImageError, match=r"x: .* 112 x 112 pixels, but its header says 80 x 112"):
        decode(data, where="x")


@pytest.mark.parametrize(
    ("data", "known"),
    [
        (b"RIFF\0\0\0\0WEBP", "WebP"),
        (b"RIFF\0\0\0\0heic", ""),
        (b"BM\0\0ftypWEBP", "BMP"),
        (b"\xff\xd8\xff\xe0ftypWEBP", "JPEG"),
        (b"\0\0\0\x18ftypavif", "AVIF"),
        (b"\0\0\0\x18ftypWEBP", ""),
    ],
)
def test_a_file_is_checked_as_the_format_that_the_decoder_takes_it_for(data, known):
    assert decoding._format(data) == known
    assert image_suffix(data) == f".{known.lower() or 'jpg'}".replace("jpeg", "jpg")


def test_bytes_beyond_the_limit_are_neither_read_nor_decoded(face, tmp_path, monkeypatch):
    data = encode_png(face)
    (tmp_path / "a.png").write_bytes(data)
    monkeypatch.setattr("facerts.images.decoding.MAX_BYTES", len(data))
    assert np.array_equal(read(tmp_path / "a.png"), face)
    monkeypatch.setattr("facerts.images.decoding.MAX_BYTES", len(data) - 1)
    for decode_too_large in (lambda: read(tmp_path / "a.png"), lambda: decode(data, where="a.png")):
        with pytest.raises(ImageError, match=rf"a\.png: the file exceeds the limit of {len(data) - 1:,} bytes"):
            decode_too_large()


@pytest.mark.parametrize("side", [1, 2, 15])
def test_a_crop_too_small_for_a_face_is_refused(side):
    small = np.full((side, side, 3), 9, dtype=np.uint8)
    expected = rf"some/file\.png: {side} x {side} pixels are too few for a face; a crop must have at least 16 x 16"
    with pytest.raises(ImageError, match=expected):
        decode_crop(encode_png(small), where="some/file.png")
    with pytest.raises(ImageError, match=expected):
        fit_crop(small, where="some/file.png")
    with pytest.raises(ImageError, match="the image: 112 x 15 pixels are too few"):
        fit_crop(np.zeros((15, 112, 3), dtype=np.uint8))
