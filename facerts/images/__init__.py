"""Bytes or a file to an RGB array: the only decoder in the package, and what turns images into crops.

Every file is untrusted. Before OpenCV decodes it, the module for its format walks it from start to end, refuses files
that cannot be decoded in bounded time and memory (``facerts.images.limits``), and strips data that pixels do not need.
"""

from facerts.images.crop import CROP_SIZE, MIN_CROP_SIZE, as_crop, decode_crop, fit_crop
from facerts.images.decoding import IMAGE_SUFFIXES, decode, image_suffix, pixels_problem, read
from facerts.images.encode import encode_jpeg, encode_png
from facerts.images.limits import MAX_BYTES, MAX_PIXELS, in_flight

__all__ = [
    "CROP_SIZE",
    "IMAGE_SUFFIXES",
    "MAX_BYTES",
    "MAX_PIXELS",
    "MIN_CROP_SIZE",
    "as_crop",
    "decode",
    "decode_crop",
    "encode_jpeg",
    "encode_png",
    "fit_crop",
    "image_suffix",
    "in_flight",
    "pixels_problem",
    "read",
]
