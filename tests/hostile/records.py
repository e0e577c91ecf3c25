"""Record sets with impossible numbers: the bytes of ``.rec``, ``.idx`` and ``.lst`` files."""

import io
import struct
from typing import NamedTuple

from facerts.datasets.recordio import MAGIC, pack_labeled, write_record

FACE = b"\xff\xd8 a face"
LARGEST = 3.4028235e38


class RecordSet(NamedTuple):
    """The three files of a record set; ``lst`` is None if there is no list."""

    rec: bytes
    idx: bytes
    lst: bytes | None = None


def records(*payloads, lst=None):
    """A complete set of payloads with the keys 0, 1, …"""
    rec, idx = io.BytesIO(), io.StringIO()
    for key, payload in enumerate(payloads):
        write_record(rec, idx, key, payload)
    return RecordSet(rec.getvalue(), idx.getvalue().encode(), lst)


def labeled(labels, data=FACE):
    return pack_labeled(labels, 0, data)


HEADER = labeled((3.0, 5.0), b"")
IMAGES = (labeled(0.0), labeled(1.0))
IDENTITIES = (labeled((1.0, 2.0), b""), labeled((2.0, 3.0), b""))
GOOD = records(HEADER, *IMAGES, *IDENTITIES)


def _with_index(text):
    return GOOD._replace(idx=text)


HOSTILE = {
    "a first identity of 3e38": records(labeled((LARGEST, LARGEST), b""), *IMAGES, *IDENTITIES),
    "a label of 3e38": records(labeled(LARGEST), labeled(1.0)),
    "a label that is not a number": records(labeled(float("nan")), labeled(1.0)),
    "a range of 3e38": records(HEADER, *IMAGES, labeled((-LARGEST, LARGEST), b""), IDENTITIES[1]),
    "2^32 labels": records(struct.pack("<IfQQ", (1 << 32) - 1, 0, 0, 0) + FACE),
    "keys of 10^40": _with_index(b"%d\t0\n" % 10**40),
    "offsets of 10^40": _with_index(b"0\t%d\n" % 10**40),
    "negative offsets": _with_index(b"0\t-1\n"),
    "one offset for all": _with_index(b"".join(b"%d\t0\n" % key for key in range(50_000))),
    "offsets inside records": _with_index(b"0\t1\n1\t2\n2\t3\n"),
    "an index of letters": _with_index(b"zero\t0\n"),
    "an index of bytes": _with_index(bytes(range(256))),
    "an empty index": _with_index(b""),
    "no index": _with_index(b"\n\n\n"),
    "a length of 2^29": GOOD._replace(rec=struct.pack("<II", MAGIC, (1 << 29) - 1) + GOOD.rec[8:]),
    "an endless record": GOOD._replace(rec=struct.pack("<II", MAGIC, 1 << 29) * 20_000, idx=b"0\t0\n"),
    "another flag": GOOD._replace(rec=struct.pack("<II", MAGIC, 7 << 29), idx=b"0\t0\n"),
    "no record": GOOD._replace(rec=b"<html>" * 100, idx=b"0\t0\n"),
    "nothing": RecordSet(b"", b"0\t0\n"),
    "a list of names without lines": GOOD._replace(lst=b"1\t0\ta/1.jpg"),
    "names of any bytes": GOOD._replace(lst=b"1\t0\t\xff\0/1.jpg\n\xfe\n"),
}
