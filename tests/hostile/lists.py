"""Lists of files: odd ones that must be read, and broken ones that must be refused."""

# Each lies beside a file ``there.jpg``, which its last line names.
HOSTILE = {
    "NUL": b"a\0b.jpg\nthere.jpg\n",
    "Latin-1": "Jürgen/Größe.jpg\nthere.jpg\n".encode("latin1"),
    "a byte-order mark": b"\xef\xbb\xbfgone.jpg\nthere.jpg\n",
    "a line of 1 MB": b"x" * 1_000_000 + b"\nthere.jpg\n",
    "Unicode line separators": "a\u2028b\x85c.jpg\nthere.jpg\n".encode(),
    "surrogates": b"\xed\xa0\x80.jpg\nthere.jpg\n",
    "Windows line endings": b"gone.jpg\r\nthere.jpg\r\n",
    "a folder": b".\nthere.jpg\n",
    "a device": b"/dev/zero\nthere.jpg\n",
    "a path below a file": b"there.jpg/x.jpg\nthere.jpg\n",
    "half a million lines": b"a\n" * 499_990 + b"there.jpg\n",
}
REFUSED = {
    "UTF-16": "there.jpg\n".encode("utf-16"),
    "nothing": b"",
    "blank lines": b"\n \n\t\n",
    "a byte-order mark alone": b"\xef\xbb\xbf",
}


def wide_table(columns, delimiter=","):
    """A table of 1 MB with as many columns as rows, of which each has the first three."""
    header = delimiter.join([*columns, *map(str, range(60_000))])
    return f"{header}\n".encode() + delimiter.join(["a", "b", "1\n"]).encode() * 60_000
