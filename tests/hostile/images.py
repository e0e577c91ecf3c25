"""Hostile images, built field by field: those that must be refused, and the costliest that may be decoded.

Every builder writes what it is told, true or not. ``refused``, ``costly`` and ``ordinary`` are the collections that
tests and fuzzers start from.
"""

import io
import struct
import zlib
from functools import cache

import cv2
import numpy as np
from PIL import Image

from facerts.datasets.synthetic import draw_face
from tests.hostile.videos import gif

# ----------------------------------------------------------------------------------------------------------- JPEG

COLOR = ((1, 1, 1), (2, 1, 1), (3, 1, 1))
CMYK = (*COLOR, (4, 1, 1))
BASELINE, EXTENDED, PROGRESSIVE, LOSSLESS, ARITHMETIC = 0xC0, 0xC1, 0xC2, 0xC3, 0xC9


def segment(marker, content=b"", *, length=None):
    """A marker with its length, which is the true one unless another is given."""
    return struct.pack(">BBH", 0xFF, marker, len(content) + 2 if length is None else length) + content


def quantization():
    """A quantization table of ones."""
    return segment(0xDB, bytes(1) + bytes([1]) * 64)


def huffman(kind, counts, symbols):
    """Huffman table 0 for DC (0) or AC (1): the number of codes of each length, and their symbols."""
    return segment(0xC4, bytes([kind << 4, *counts, *[0] * (16 - len(counts)), *symbols]))


def frame(width, height, *, marker=BASELINE, components=COLOR):
    """The header with the size."""
    listed = b"".join(bytes([number, across << 4 | down, 0]) for number, across, down in components)
    return segment(marker, struct.pack(">BHHB", 8, height, width, len(components)) + listed)


def scan(numbers, *, first=0, last=63, high=0, low=0, data=b""):
    """A scan of some components and coefficients; ``high`` and ``low`` are the bits of successive approximation."""
    listed = b"".join(bytes([number, 0]) for number in numbers)
    return segment(0xDA, bytes([len(numbers)]) + listed + bytes([first, last, high << 4 | low])) + data


def jpeg(*parts):
    """Segments between the first marker and the last."""
    return b"\xff\xd8" + b"".join(parts) + b"\xff\xd9"


def tables():
    """A bit for a block without change, and a bit for the end of the block."""
    return quantization() + huffman(0, [1], [0]) + huffman(1, [1], [0])


def baseline(width, height, *, data=b"", components=COLOR):
    """The segments of a baseline JPEG; each block takes two bits of ``data``, and missing blocks are gray."""
    numbers = [number for number, _, _ in components]
    return tables() + frame(width, height, components=components) + scan(numbers, data=data)


def ends_of_bands(blocks):
    """AC data of a progressive scan that says of 32,767 blocks at a time, in 15 bits, that nothing follows."""
    bits = ("0" + "1" * 14) * -(-blocks // 32767)
    bits += "1" * (-len(bits) % 8)
    return int(bits, 2).to_bytes(len(bits) // 8, "big").replace(b"\xff", b"\xff\x00")


def progressive(width, height, refinements, *, components=COLOR, before=b""):
    """A DC scan, an AC scan of the first component, and many that refine it and change nothing.

    Such a scan is the costliest for its bytes: every coefficient of every block is looked at.
    """
    numbers = [number for number, _, _ in components]
    ends = ends_of_bands(-(-width // 8) * -(-height // 8))
    return b"".join(
        [
            before,
            quantization() + huffman(0, [1], [0]) + huffman(1, [1], [0xE0]),
            frame(width, height, marker=PROGRESSIVE, components=components),
            scan(numbers, last=0, low=1),
            scan(numbers[:1], first=1, low=1, data=ends),
            scan(numbers[:1], first=1, high=1, data=ends) * refinements,
        ]
    )


# ----------------------------------------------------------------------------------------------------------- EXIF


def exif(orientation):
    """An EXIF block with an orientation."""
    return b"II*\0\x08\0\0\0" + struct.pack("<HHHIHHI", 1, 0x0112, 3, 1, orientation, 0, 0)


def exif_of_strings(entries):
    """EXIF entries each of which claims the length of all of them together."""
    return b"II*\0\x08\0\0\0" + struct.pack("<H", entries) + struct.pack("<HHII", 0x010E, 2, 12 * entries, 0) * entries


# ------------------------------------------------------------------------------------------------------------ PNG

GRAY, RGB, PALETTE, RGBA = 0, 2, 3, 6
_CHANNELS = {GRAY: 1, RGB: 3, PALETTE: 1, 4: 2, RGBA: 4}
# First column and row of each pass, and the steps to the next.
_PASSES = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]


def chunk(kind, content=b"", *, length=None):
    """A chunk with its length, which is the true one unless another is given, and its checksum."""
    size = len(content) if length is None else length
    return struct.pack(">I", size) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png_header(width, height, *, depth=8, color=RGB, interlaced=False):
    """The header's chunk."""
    return chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, interlaced))


def png_rows(
    width,
    height,
    fill=bytes,
    *,
    depth=8,
    color=RGB,
    interlaced=False,
):
    """Uncompressed rows of pixels: ``fill`` returns a number of bytes; Paeth's filter is the slowest to undo."""
    rows = []
    for x, y, across, down in _PASSES if interlaced else [(0, 0, 1, 1)]:
        columns, count = -(-(width - x) // across), -(-(height - y) // down)
        size = (columns * depth * _CHANNELS[color] + 7) // 8
        rows += [b"\x04" + fill(size) for _ in range(count if size else 0)]
    return b"".join(rows)


def png(*chunks):
    """Chunks behind the signature, and the end."""
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks) + chunk(b"IEND")


def black_png(*between):
    """An ordinary PNG of 32 x 32 pixels, with chunks between its header and its pixels."""
    return png(png_header(32, 32), *between, chunk(b"IDAT", zlib.compress(png_rows(32, 32))))


def repeated(part, times):
    """A zlib stream that repeats the same bytes, compressing them only once."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    # After a full flush, the next piece does not depend on the previous ones.
    piece = compressor.compress(part) + compressor.flush(zlib.Z_FULL_FLUSH)
    low, high = 1, 0
    own = zlib.adler32(part)
    for _ in range(times):
        high = (high + (own >> 16) + len(part) * (low - 1)) % 65521
        low = (low + (own & 0xFFFF) - 1) % 65521
    return b"\x78\xda" + piece * times + b"\x03\0" + struct.pack(">HH", high, low)


# ----------------------------------------------------------------------------------------------------------- WebP


def riff_chunk(kind, content, *, length=None):
    """A chunk with its length, which is the true one unless another is given."""
    size = len(content) if length is None else length
    return kind + struct.pack("<I", size) + content + bytes(len(content) % 2)


def webp(*chunks, length=None):
    """Chunks in a RIFF of the true length unless another is given."""
    return riff_chunk(b"RIFF", b"WEBP" + b"".join(chunks), length=length)


def webp_canvas(width, height, flags=0):
    """The header of an extended WebP; flag 2 is animation, 8 EXIF, 16 alpha."""
    size = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return riff_chunk(b"VP8X", bytes([flags, 0, 0, 0]) + size)


class _Bits:
    """Bits from the lowest, as lossless WebP has them."""

    def __init__(self):
        self._value = self._size = 0

    def write(self, value, size):
        self._value |= value << self._size
        self._size += size

    def to_bytes(self):
        return self._value.to_bytes((self._size + 7) // 8, "little")


def _same(bits):
    """A Huffman code of one symbol, 0, which takes no bits."""
    bits.write(0b0001, 4)


def _bytes_code(bits, alphabet):
    """A Huffman code in which each of the first 256 symbols has eight bits."""
    bits.write(0, 1)
    order = (17, 18, 0, 1, 2, 3, 4, 5, 16, 6, 7, 8)
    bits.write(len(order) - 4, 4)
    for symbol in order:
        bits.write(symbol in {0, 8}, 3)
    bits.write(0, 1)
    bits.write((1 << 256) - 1, alphabet)


def lossless(width, height, *, groups=0, tile=2, alpha=False):
    """A lossless image of zeros with its own Huffman codes for each tile.

    Args:
        width: in pixels.
        height: in pixels.
        groups: of Huffman codes; 20 bits of the file each, 5 KB of the decoder's memory.
        tile: side of a tile, as a power of two from 2 to 9.
        alpha: whether the image claims to have an alpha channel.
    """
    bits = _Bits()
    bits.write(0x2F, 8)
    bits.write(width - 1, 14)
    bits.write(height - 1, 14)
    bits.write(alpha, 1)
    bits.write(0, 3 + 1)  # version, and no transforms
    if not groups:
        bits.write(0, 1 + 1)  # no color cache, one group
    else:
        bits.write(1 | 11 << 1, 1 + 4)  # the largest color cache
        bits.write(1 | (tile - 2) << 1, 1 + 3)
        bits.write(0, 1)
        _bytes_code(bits, 280)
        _bytes_code(bits, 256)
        for _ in range(3):
            _same(bits)
        side = 1 << tile
        reversed_bytes = [int(f"{value:08b}"[::-1], 2) for value in range(256)]
        numbers = [index % groups for index in range(-(-width // side) * -(-height // side))]
        tiles = bytes(reversed_bytes[part] for number in numbers for part in (number & 255, number >> 8))
        bits.write(int.from_bytes(tiles, "little"), 8 * len(tiles))
    count = 5 * max(groups, 1)
    bits.write(int("1" * count, 16), 4 * count)
    return bits.to_bytes() + bytes(8)


# ------------------------------------------------------------------------------------------------------------ BMP


def bmp(width, height, *, header=40, bits=24, compression=0, data=b""):
    """A BMP; the old header of 12 bytes stores sizes as 16-bit numbers."""
    if header == 12:
        fields = struct.pack("<IHHHH", header, width, height, 1, bits)
    else:
        fields = struct.pack("<IiiHHIIiiII", header, width, height, 1, bits, compression, 0, 0, 0, 0, 0)
        fields += bytes(header - 40)
    palette = bytes(4 << bits) if bits <= 8 else b""
    offset = 14 + len(fields) + len(palette)
    start = struct.pack("<2sIHHI", b"BM", offset + len(data), 0, 0, offset)
    return start + fields + palette + data


# ---------------------------------------------------------------------------------------------------- collections


def _behind(marker, seen, decoded):
    """A JPEG in which a parser that reads a length after ``marker`` sees one image, and libjpeg sees another."""
    # The length is then 0xFFDB, the marker of the first table.
    hidden = decoded + b"\xff\xd9"
    return b"\xff\xd8\xff" + bytes([marker]) + hidden.ljust(0xFFDB, b"\0") + seen + b"\xff\xd9"


@cache
def refused():
    """Images by name, each with a part of the error message that it must give."""
    small, large = baseline(32, 32), baseline(32_760, 32_760)
    scans = small + scan([1]) * 1_153
    header, pixels = png_header(32, 32), chunk(b"IDAT", zlib.compress(png_rows(32, 32)))
    lossy = ordinary()["lossy.webp"][12:]
    plain = lossless(32, 32)
    huge_exif = exif_of_strings(60_000)
    found = {
        f"size_behind_{marker:02x}.jpg": (_behind(marker, small, large), "broken JPEG at byte 2")
        for marker in (0x00, 0x01, 0xD0, 0xD7)
    }
    found |= {
        "scans_behind_01.jpg": (_behind(0x01, small, scans), "broken JPEG at byte 2"),
        "no_length.jpg": (jpeg(segment(0xFE, length=0), small), "broken JPEG at byte 2"),
        "length_beyond.jpg": (jpeg(small, segment(0xFE, length=9)), "truncated"),
        "two_frames.jpg": (jpeg(frame(8, 8), small), "a second frame header"),
        "scan_first.jpg": (jpeg(tables(), scan([1, 2, 3]), small), "broken JPEG at byte 115"),
        "no_scan.jpg": (jpeg(tables(), frame(8, 8)), "truncated"),
        "unknown_component.jpg": (jpeg(small, scan([9])), "a scan lists component 9"),
        "no_components.jpg": (jpeg(baseline(32, 32, components=[])), "broken JPEG at byte 115"),
        "no_sampling.jpg": (jpeg(baseline(32, 32, components=[(1, 0, 1)])), "cannot be decoded"),
        "no_height.jpg": (jpeg(baseline(32, 0)), "claims 32 x 0 pixels"),
        "arithmetic.jpg": (jpeg(frame(8, 8, marker=ARITHMETIC), scan([1, 2, 3])), "marker FFC9"),
        "pixels.jpg": (jpeg(large), "32760 x 32760 pixels are more"),
        "scans.jpg": (jpeg(scans), "more than 100 scans"),
        "work_without_end.jpg": (jpeg(baseline(8_000, 8_000), scan([1]) * 90)[:-2], "truncated"),
        "work.jpg": (jpeg(progressive(8_000, 8_000, 90)), "more than the limit of 1,024,000,000"),
        "segments.jpg": (jpeg(segment(0xE1) * 10_001, small), "more than 10,000 segments"),
    }
    found |= {
        # 45 bytes that are given 4 GB.
        "length.png": (
            b"\x89PNG\r\n\x1a\n" + header + chunk(b"IEND", length=0xFFFF_FFF0),
            "truncated",
        ),
        "header_second.png": (png(chunk(b"tEXt"), header, pixels), "does not begin with an IHDR chunk"),
        "long_header.png": (
            png(chunk(b"IHDR", struct.pack(">IIBBBBBB", 32, 32, 8, RGB, 0, 0, 0, 0)), pixels),
            "does not begin with an IHDR chunk",
        ),
        "two_headers.png": (png(header, png_header(9_000, 9_000), pixels), "chunk 'IHDR' at byte 33"),
        "color_type.png": (png(png_header(32, 32, color=5), pixels), "invalid color type 5 or bit depth 8"),
        "interrupted.png": (png(header, pixels, chunk(b"tEXt"), pixels), "chunk 'IDAT' at byte"),
        "critical.png": (png(header, chunk(b"ABCD"), pixels), "chunk 'ABCD' at byte 33"),
        "no_width.png": (png(png_header(0, 32), pixels), "claims 0 x 32 pixels"),
        "pixels.png": (png(png_header(30_000, 30_000), pixels), "30000 x 30000 pixels are more"),
        "exif.png": (black_png(chunk(b"eXIf", huge_exif)), "bytes of EXIF are more"),
        "surplus.png": (
            png(header, chunk(b"IDAT", repeated(bytes(1 << 20), 4_400))),
            "more data than pixels",
        ),
    }
    found |= {
        "length.webp": (webp(riff_chunk(b"VP8L", plain, length=1 << 31)), "truncated"),
        "length_of_file.webp": (webp(riff_chunk(b"VP8L", plain), length=1 << 31), "truncated"),
        "no_image.webp": (webp(webp_canvas(32, 32), riff_chunk(b"ABCD", bytes(40))), "it contains no image"),
        "no_start.webp": (webp(riff_chunk(b"VP8 ", bytes(40))), "its image has no header"),
        "canvas.webp": (
            webp(webp_canvas(32, 33), riff_chunk(b"VP8L", plain)),
            "its image and canvas differ in size",
        ),
        "animation.webp": (
            webp(webp_canvas(5_000, 5_000, 2), riff_chunk(b"ANIM", bytes(6)), riff_chunk(b"ANMF", bytes(40))),
            "it contains no image",
        ),
        "frame.webp": (
            webp(
                webp_canvas(32, 32, 2),
                riff_chunk(b"ANMF", bytes(16) + riff_chunk(b"VP8L", lossless(16_000, 16_000))),
            ),
            "16000 x 16000 pixels are more",
        ),
        "pixels.webp": (webp(riff_chunk(b"VP8L", lossless(16_000, 16_000))), "16000 x 16000 pixels are more"),
        "tables.webp": (
            webp(riff_chunk(b"VP8L", lossless(8_160, 7_840, groups=62_500, tile=5, alpha=True))),
            "limit of 25,000,000 for lossless WebP",
        ),
        "exif.webp": (
            webp(webp_canvas(32, 32, 8), lossy, riff_chunk(b"EXIF", huge_exif)),
            "bytes of EXIF are",
        ),
    }
    found |= {
        "old_kind.bmp": (bmp(60_000, 60_000, header=12), "60000 x 60000 pixels are more"),
        "old_kind_of_height.bmp": (bmp(3_000, 32_768, header=12), "3000 x 32768 pixels are more"),
        "pixels.bmp": (bmp(100_000, -100_000), "100000 x 100000 pixels are more"),
        "negative.bmp": (bmp(-100_000, 100_000), "claims -100000 x 100000 pixels"),
        "header.bmp": (
            bmp(32, 32).replace(b"\x28\0\0\0", b"\xff\xff\xff\x7f", 1),
            "unknown header of 2147483647",
        ),
    }
    canvas, one_pixel = gif(32, 1), struct.pack("<HHHH", 0, 0, 1, 1)
    found |= {
        "canvas.gif": (gif(8_001, 1), "8001 x 8001 pixels are more"),
        "largest_canvas.gif": (gif(65_535, 1), "scale the image down"),
        "frame.gif": (canvas.replace(one_pixel, bytes(4) + b"\xff" * 4), "scale the image down"),
        "no_frame.gif": (gif(32, 0), "broken GIF"),
    }
    return found


@cache
def costly():
    """Images of less than 1 MB that are within every limit and cost the most, either tiny or very large."""
    turned = segment(0xE1, b"Exif\0\0" + exif(7))
    strings = segment(0xE1, b"Exif\0\0" + exif_of_strings(5_400))
    rows = png_rows(8_000, 100, depth=16, color=RGBA)
    text = chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(7_900_000), 9))
    lossy = ordinary()["lossy.webp"][12:]
    return {
        "baseline.jpg": jpeg(baseline(10_000, 6_400, data=bytes(750_000))),
        "progressive.jpg": jpeg(progressive(10_000, 6_400, 10)),
        "progressive_cmyk.jpg": jpeg(progressive(10_000, 6_400, 11, components=CMYK, before=turned)),
        "progressive_odd_sampling.jpg": jpeg(
            progressive(10_000, 6_400, 12, components=[(1, 3, 1), (2, 1, 1), (3, 1, 1), (4, 3, 1)])
        ),
        "without_end.jpg": jpeg(baseline(10_000, 6_400, data=bytes(750_000) + b"\1"))[:-2],
        "frames.gif": gif(8_000, 40_000),
        "exif.jpg": jpeg(strings * 15, baseline(32, 32)),
        "deep.png": png(png_header(8_000, 8_000, depth=16, color=RGBA), chunk(b"IDAT", repeated(rows, 80))),
        "texts.png": black_png(text * 120),
        "exif.png": black_png(chunk(b"eXIf", exif_of_strings(5_400))),
        "surplus.png": png(png_header(32, 32), chunk(b"IDAT", repeated(bytes(1 << 20), 900))),
        "tables.webp": webp(riff_chunk(b"VP8L", lossless(5_000, 5_000, groups=65_536, tile=4, alpha=True))),
        "exif.webp": webp(webp_canvas(32, 32, 8), lossy, riff_chunk(b"EXIF", exif_of_strings(5_400))),
        "run_lengths.bmp": bmp(8_000, 8_000, bits=8, compression=1, data=b"\0\x01"),
    }


@cache
def ordinary():
    """Ordinary images of 32 x 32 pixels, as encoders write them, to be mutated."""
    face = np.ascontiguousarray(draw_face(1, 0)[40:72, 40:72])
    turned = Image.Exif()
    turned[0x0112] = 6
    kinds = {
        "baseline.jpg": ("RGB", {}),
        "progressive.jpg": ("L", {"progressive": True, "exif": turned}),
        "cmyk.jpg": ("CMYK", {}),
        "rgb.png": ("RGB", {}),
        "rgba.png": ("RGBA", {}),
        "palette.png": ("P", {}),
        "bits.png": ("1", {}),
        "deep.png": ("I;16", {}),
        "lossy.webp": ("RGB", {"quality": 80}),
        "lossless.webp": ("RGBA", {"lossless": True}),
        "frames.webp": ("RGB", {"save_all": True}),
        "frames.gif": ("RGB", {"save_all": True}),
        "gray.gif": ("L", {}),
        "rgb.bmp": ("RGB", {}),
        "palette.bmp": ("P", {}),
        "bits.bmp": ("1", {}),
    }
    found = {"old_kind.bmp": bmp(32, 32, header=12, data=face.tobytes())}
    for name, (mode, options) in kinds.items():
        image = Image.fromarray(face).convert("L" if mode == "I;16" else mode).convert(mode)
        if options.get("save_all"):
            options = {**options, "append_images": [Image.fromarray(draw_face(2, 0)[40:72, 40:72])]}
        file = io.BytesIO()
        image.save(file, {"jpg": "JPEG"}.get(name[-3:], name.rpartition(".")[2].upper()), **options)
        found[name] = file.getvalue()
    restarts = [cv2.IMWRITE_JPEG_RST_INTERVAL, 2]
    return {**found, "restarts.jpg": bytes(cv2.imencode(".jpg", face[..., ::-1], restarts)[1])}
