"""Tar files whose headers claim data that is not there, or send the reader round in circles."""

import tarfile

FACE = b"\xff\xd8 a face"


def header(name, size, kind=tarfile.REGTYPE):
    """A member's header with any size."""
    member = tarfile.TarInfo(name)
    member.type = kind
    block = bytearray(member.tobuf(tarfile.GNU_FORMAT))
    if 0 <= size < 8**11:
        block[124:136] = b"%011o\0" % size
    else:
        # GNU tar writes sizes with too many octal digits as a signed 88-bit number.
        block[124:136] = (b"\x80" if size >= 0 else b"\xff") + size.to_bytes(11, "big", signed=True)
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def padded(data):
    return data + bytes(-len(data) % tarfile.BLOCKSIZE)


def member(name, data=FACE, kind=tarfile.REGTYPE):
    return header(name, len(data), kind) + padded(data)


def extended(text):
    """A pax header, whose text describes the member that follows."""
    return member("pax", text, tarfile.XHDTYPE)


END = bytes(2 * tarfile.BLOCKSIZE)
GOOD = member("a/1.jpg") + member("b/2.jpg")

HOSTILE = {
    "a member of 2^60 bytes": GOOD + header("c.jpg", 1 << 60) + END,
    "a member of 3 GB": GOOD + header("c.jpg", 3 << 30) + END,
    "a member of negative size": GOOD + header("c.jpg", -tarfile.BLOCKSIZE) + END,
    "a member that leads back to the first": GOOD + header("c.jpg", -5 * tarfile.BLOCKSIZE) + END,
    "a long name of 2^60 bytes": header("x", 1 << 60, tarfile.GNUTYPE_LONGNAME) + GOOD + END,
    "a long name of negative size": header("x", -512, tarfile.GNUTYPE_LONGNAME) + GOOD + END,
    "a pax header of 2^60 bytes": header("x", 1 << 60, tarfile.XHDTYPE) + GOOD + END,
    "a pax header of 10 MB": extended(b"10000000 comment=" + b"x" * 10_000_000) + GOOD + END,
    "a pax header of negative size": header("x", -512, tarfile.XHDTYPE) + GOOD + END,
    "900 pax headers in a row": extended(b"20 path=deep/1.jpg \n") * 900 + GOOD + END,
    "900 long names in a row": member("x", b"y.jpg\0", tarfile.GNUTYPE_LONGNAME) * 900 + GOOD + END,
    "an endless number": extended(b"1" * 900_000) + GOOD + END,
    "an endless size": extended(b"10010 size=" + b"9" * 9999 + b"\n") + GOOD + END,
    "a size that is not a number": extended(b"12 size=big\n") + GOOD + END,
    "a sparse member": extended(b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n28 GNU.sparse.name=a/1.jpg\n")
    + member("a/1.jpg", b"2\n0\n512\n")
    + END,
    "a sparse map of letters": extended(b"27 GNU.sparse.map=a,b,c,d\n") + member("a/1.jpg") + END,
    "an endless sparse map": extended(b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n")
    + member("a/1.jpg", b"99999999\n")
    + END,
    "an old-style sparse member": header("a/1.jpg", 0, tarfile.GNUTYPE_SPARSE) + GOOD + END,
    "a name with NUL": extended(b"20 path=a/\x00/1.jpg \n".replace(b"20", b"18")) + GOOD + END,
    "a name outside the archive": member("../../1.jpg") + END,
    "a compressed file": b"\x1f\x8b\x08\x00" + bytes(1000),
    "nothing": b"",
    "half a header": GOOD[:700],
    "not a tar file": b"<html>" * 200,
}
