"""Videos of a few bytes that claim many pixels."""

import struct


def gif(side, frames):
    """An animation with a square canvas, of which each frame changes one pixel."""
    pixel = struct.pack("<HHHHB", 0, 0, 1, 1, 0) + b"\2\2\x44\1\0"
    frame = b"!\xf9\4" + struct.pack("<BHB", 0, 20, 0) + b"\0," + pixel
    return b"GIF89a" + struct.pack("<HHBBB", side, side, 0x80, 0, 0) + bytes(6) + frames * frame + b";"
