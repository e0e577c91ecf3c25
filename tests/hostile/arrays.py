"""``.npz`` files whose headers claim data that they do not have."""

import io
import struct
import zipfile

import numpy as np


def npy(header, content=b"", version=b"\x01\x00"):
    """The bytes of an ``.npy`` file with any header."""
    text = header.encode("latin1") + b"\n"
    size = struct.pack("<H" if version == b"\x01\x00" else "<I", len(text))
    return b"\x93NUMPY" + version + size + text + content


def array(kind, shape, content=b""):
    return npy(f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}}}", content)


def packed(members, compression=zipfile.ZIP_STORED):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return file.getvalue()


def table(embeddings, compression=zipfile.ZIP_STORED):
    return packed({"embeddings": embeddings}, compression)


def pickled():
    file = io.BytesIO()
    np.savez(file, embeddings=np.array([{"a": 1}], dtype=object))
    return file.getvalue()


def claiming(size):
    """An archive whose directory claims that a member has ``size`` bytes."""
    content = bytearray(table(array("<f4", "(1, 4)", bytes(16))))
    entry = content.rindex(b"PK\x01\x02")
    content[entry + 24 : entry + 28] = struct.pack("<I", size)
    return bytes(content)


HOSTILE = {
    "46 TiB": table(array("<f8", "(6_324_000_000_000,)".replace("_", ""))),
    "a shape that overflows 64 bits": table(array("<f4", f"({1 << 62}, {1 << 62})")),
    "rows of nothing": table(array("<f4", f"({1 << 40}, 0)")),
    "text of nothing": packed(
        {"embeddings": array("<f4", "(1, 4)", bytes(16)), "names": array("<U0", f"({1 << 40},)")}
    ),
    "a negative shape": table(array("<f4", "(-2, -2)", bytes(16))),
    "zeros compressed a thousandfold": table(array("<f4", "(100, 2000000)", bytes(800_000_000)), zipfile.ZIP_DEFLATED),
    "20 million names": packed(
        {
            "embeddings": array("<f2", "(20000000, 1)", b"\0<" * 20_000_000),
            "names": array("<U1", "(20000000,)", b"a\0\0\0" * 20_000_000),
        },
        zipfile.ZIP_DEFLATED,
    ),
    "4 GB in the directory": claiming((1 << 32) - 1),
    "objects": pickled(),
    "records": table(npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (4,)}", bytes(16))),
    "invalid characters": packed(
        {
            "embeddings": array("<f4", "(1, 4)", struct.pack("<4f", 1, 0, 0, 0)),
            "names": array("<U1", "(1,)", b"\xff" * 4),
        }
    ),
    "an expression": table(npy("__import__('os').system('true')")),
    "endless brackets": table(npy("(" * 9000)),
    "an endless header": table(b"\x93NUMPY\x01\x00\xff\xff{"),
    "a header of 4 GB": table(b"\x93NUMPY\x02\x00\xff\xff\xff\xff{"),
    "a member that is not an array": table(b"<html>"),
    "no member": packed({}),
    "another compression method": table(array("<f4", "(1, 4)", bytes(16)), zipfile.ZIP_LZMA),
    "half a file": table(array("<f4", "(1, 4)", bytes(16)))[:-30],
    "not an archive": b"<html>",
    "nothing": b"",
}
