"""Formats that only Pillow reads: what is decoded, and what is said without Pillow or of broken files."""

import sys
from io import BytesIO

import numpy as np
import pillow_heif
import pytest
from PIL import Image

from facerts.datasets.synthetic import draw_face
from facerts.errors import ImageError
from facerts.images import decode

KNOWN = ["HEIC", "AVIF", "TIFF", "GIF"]


def encoded(known, image, **options):
    pillow_heif.register_heif_opener()
    file = BytesIO()
    image.save(file, format={"HEIC": "HEIF"}.get(known, known), **options)
    return file.getvalue()


@pytest.fixture
def face():
    return draw_face(0, 0)


@pytest.mark.parametrize("known", KNOWN)
def test_a_file_becomes_upright_rgb(known, face):
    decoded = decode(encoded(known, Image.fromarray(face), quality=95), where="a")
    assert decoded.shape == (112, 112, 3)
    assert decoded.dtype == np.uint8
    assert np.abs(decoded.astype(float) - face).mean() < (0.1 if known == "TIFF" else 6)
    if known == "GIF":
        return  # It has no EXIF.
    if known == "HEIC":
        return  # Turned by its own box, which libheif obeys and does not write; EXIF does not count.
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees clockwise
    turned = Image.fromarray(np.ascontiguousarray(np.rot90(face)))
    upright = decode(encoded(known, turned, quality=95, exif=exif), where="a")
    assert np.abs(upright.astype(float) - face).mean() < (0.1 if known == "TIFF" else 6)


def test_of_16_bits_the_upper_8_are_kept():
    deep = np.arange(0, 65536, 16, dtype=np.uint16).reshape(64, 64)
    decoded = decode(encoded("TIFF", Image.fromarray(deep)), where="a")
    np.testing.assert_array_equal(decoded, np.repeat((deep // 256).astype(np.uint8)[..., None], 3, axis=2))


@pytest.mark.parametrize("known", KNOWN)
def test_broken_files_and_too_many_pixels_are_errors(known, face):
    data = encoded(known, Image.fromarray(face))
    with pytest.raises(ImageError, match="a: 112 x 112 pixels are more than the limit of 12,543; scale"):
        decode(data, where="a", max_pixels=112 * 112 - 1)
    for broken in (data[:60], data[: len(data) // 2], data[:40] + bytes(len(data) - 40)):
        with pytest.raises(ImageError, match=r"^a: "):
            decode(broken, where="a")


def test_the_first_frame_of_an_animation_is_read(face):
    frames = [Image.fromarray(each).quantize(64) for each in (face, face[::-1])]
    data = encoded("GIF", frames[0], save_all=True, append_images=frames[1:])
    np.testing.assert_array_equal(decode(data, where="a"), np.array(frames[0].convert("RGB")))


@pytest.mark.parametrize("known", KNOWN)
def test_without_pillow_or_where_it_is_not_wanted_the_error_says_what_to_do(known, face, monkeypatch):
    data = encoded(known, Image.fromarray(face))
    with pytest.raises(ImageError, match=f"a: {known} is not read; convert it to JPEG or PNG"):
        decode(data, where="a", pillow=False)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    with pytest.raises(ImageError, match=rf"a: {known} is read with Pillow \(in your clone"):
        decode(data, where="a")
