"""Tar files whose headers claim what is not there, or lead whoever reads them round in circles."""

from __future__ import annotations

import tarfile

FACE = b"\xff\xd8 a face"


def header(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    """A member's header; any size can be said."""
    member = tarfile.TarInfo(name)
    member.type = kind
    block = bytearray(member.tobuf(tarfile.GNU_FORMAT))
    if 0 <= size < 8**11:
        block[124:136] = b"%011o\0" % size
    else:
        # As GNU's tar writes what has too many digits: a number of 88 bits with a sign.
        block[124:136] = (b"\x80" if size >= 0 else b"\xff") + size.to_bytes(11, "big", signed=True)
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % tarfile.BLOCKSIZE)


def member(name: str, data: bytes = FACE, kind: bytes = tarfile.REGTYPE) -> bytes:
    return header(name, len(data), kind) + padded(data)


def extended(text: bytes) -> bytes:
    """A pax header with a text that says more of the member behind it."""
    return member("pax", text, tarfile.XHDTYPE)


END = bytes(2 * tarfile.BLOCKSIZE)
GOOD = member("a/1.jpg") + member("b/2.jpg")

HOSTILE: dict[str, bytes] = {
    "a member of 2^60 bytes": GOOD + header("c.jpg", 1 << 60) + END,
    "a member of 2^60 bytes, and another": header("c.jpg", 1 << 60) + GOOD + END,
    "a member of 2^87 bytes": header("c.jpg", (1 << 87) - 1) + GOOD + END,
    "a member of 3 GB": GOOD + header("c.jpg", 3 << 30) + END,
    "a member of fewer bytes than none": GOOD + header("c.jpg", -tarfile.BLOCKSIZE) + END,
    "a member that leads back to the first": GOOD + header("c.jpg", -5 * tarfile.BLOCKSIZE) + END,
    "a long name of 2^60 bytes": header("x", 1 << 60, tarfile.GNUTYPE_LONGNAME) + GOOD + END,
    "a long name of fewer bytes than none": header("x", -512, tarfile.GNUTYPE_LONGNAME) + GOOD + END,
    "a pax header of 2^60 bytes": header("x", 1 << 60, tarfile.XHDTYPE) + GOOD + END,
    "a pax header of 10 MB": extended(b"10000000 comment=" + b"x" * 10_000_000) + GOOD + END,
    "a pax header of fewer bytes than none": header("x", -512, tarfile.XHDTYPE) + GOOD + END,
    "pax headers one behind the other": extended(b"20 path=deep/1.jpg \n") * 900 + GOOD + END,
    "long names one behind the other": member("x", b"y.jpg\0", tarfile.GNUTYPE_LONGNAME) * 900 + GOOD + END,
    "a number without end": extended(b"1" * 900_000) + GOOD + END,
    "a size without end": extended(b"10010 size=" + b"9" * 9999 + b"\n") + GOOD + END,
    "a size below none": extended(b"13 size=-512\n") + GOOD + END,
    "a size that is no number": extended(b"12 size=big\n") + GOOD + END,
    "holes": extended(b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n28 GNU.sparse.name=a/1.jpg\n")
    + member("a/1.jpg", b"2\n0\n512\n")
    + END,
    "a map of holes without end": extended(b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n")
    + member("a/1.jpg", b"99999999\n")
    + END,
    "a map of holes of letters": extended(b"27 GNU.sparse.map=a,b,c,d\n") + member("a/1.jpg") + END,
    "holes of 2^60 bytes": header("a/1.jpg", 0, tarfile.GNUTYPE_SPARSE) + GOOD + END,
    "a name with NUL": extended(b"20 path=a/\x00/1.jpg \n".replace(b"20", b"18")) + GOOD + END,
    "a name that leads out": member("../../1.jpg") + END,
    "a compressed file": b"\x1f\x8b\x08\x00" + bytes(1000),
    "nothing": b"",
    "half of a header": GOOD[:700],
    "no tar file": b"<html>" * 200,
}
