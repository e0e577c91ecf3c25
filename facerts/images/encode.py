"""RGB arrays to encoded images."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray


def encode_jpeg(image: NDArray[np.uint8], quality: int = 95) -> bytes:
    """``(H, W, 3) uint8`` RGB to JPEG bytes."""
    _, data = cv2.imencode(".jpg", cv2.cvtColor(image, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, quality])
    return bytes(data)


def encode_png(image: NDArray[np.uint8]) -> bytes:
    """``(H, W, 3) uint8`` RGB to PNG bytes, losslessly."""
    _, data = cv2.imencode(".png", cv2.cvtColor(image, cv2.COLOR_RGB2BGR))
    return bytes(data)
