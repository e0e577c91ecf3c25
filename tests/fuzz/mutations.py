"""Mutations of valid files: Hypothesis strategies for bytes and for trees of JSON or YAML."""

import copy

from hypothesis import strategies as st

# Limits of signed and unsigned numbers of every size, and their neighbors.
EDGES = sorted(
    {value + near for bits in (7, 8, 15, 16, 31, 32, 63, 64) for value in (1 << bits,) for near in (-1, 0, 1)}
    | {0, 1, 2}
)
# Number of changes: mostly few, so that most of a file is still read.
CHANGES = (1, 1, 1, 1, 2, 3, 8)
# Words with a meaning in some format.
WORDS = (
    *(b"\x00", b"\xff", b"\n", b"\r", b"\t", b'"', b"'", b"{", b"}", b"[", b"]", b":", b",", b"&a"),
    *(b"*a", b"!!", b"-"),
    *(b"\xef\xbb\xbf", b"\xff\xd8", b"\xff\xd9", b"\xff\xda", b"\xff\xc0", b"\xff\xc2", b"\xff\x01"),
    b"\xff\xff",
    *(b"IHDR", b"IDAT", b"IEND", b"RIFF", b"VP8 ", b"VP8L", b"VP8X", b"ANIM", b"ANMF", b"BM"),
    *(b"PK\x01\x02", b"PK\x05\x06"),
    *(b"NaN", b"1e999", b"-1", b"1" * 400, b"../", b"/dev/zero", b"\\", b"cnumpy\ndtype\n", b"O8", b"R"),
    *(b"b", b"."),
)


@st.composite
def mutated_bytes(draw, original, others=()):
    """A file with up to eight changes: numbers, words, pieces removed, duplicated or taken from another file."""
    data = bytearray(original)
    for _ in range(draw(st.sampled_from(CHANGES))):
        place = draw(_place(len(data)))
        match draw(st.integers(0, 7)):
            case 0:
                data[place : place + 1] = draw(st.binary(min_size=1, max_size=1))
            case 1:
                size = draw(st.sampled_from((1, 2, 4, 8)))
                number = draw(st.sampled_from(EDGES)) % (1 << 8 * size)
                data[place : place + size] = number.to_bytes(size, draw(st.sampled_from(("little", "big"))))
            case 2:
                del data[place : place + draw(st.integers(1, 64))]
            case 3:
                piece = data[place : place + draw(st.integers(1, 256))]
                data[place:place] = piece * draw(st.integers(1, 40))
            case 4:
                data[place:place] = draw(st.sampled_from(WORDS))
            case 5:
                word = draw(st.sampled_from(WORDS))
                data[place : place + len(word)] = word
            case 6 if others:
                other = draw(st.sampled_from(others))
                begin = draw(_place(len(other)))
                data[place:place] = other[begin : begin + draw(st.integers(1, 512))]
            case _:
                if draw(st.integers(0, 3)) == 0:
                    del data[place:]
    return bytes(data)


def _place(size):
    """A position in a file, preferably near its beginning or end, where headers are."""
    return st.one_of(
        st.integers(0, min(size, 64)),
        st.integers(max(0, size - 64), size),
        st.integers(0, size),
        st.integers(0, size),
    )


HOSTILE_VALUES = (
    *(
        None,
        True,
        "",
        "\x00",
        "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"),
        "x" * 5000,
        "../../x",
    ),
    *(0, -1, 2**31, 2**63, 10**30, -(2**63) - 1, 0.5, 1e308, float("nan"), float("inf")),
    *([], {}, [[]], [1e9], {"": None}, ["a", 1, None]),
)


@st.composite
def mutated_tree(draw, original):
    """A tree of dictionaries and lists with up to eight values replaced, removed, duplicated or nested deeply."""
    tree = copy.deepcopy(original)
    for _ in range(draw(st.sampled_from(CHANGES))):
        parents = [node for node in _nodes(tree) if node]
        if not parents:
            return tree
        parent = draw(st.sampled_from(parents))
        key = draw(st.sampled_from(list(parent) if isinstance(parent, dict) else range(len(parent))))
        match draw(st.integers(0, 4)):
            case 0 | 1:
                parent[key] = copy.deepcopy(draw(st.sampled_from(HOSTILE_VALUES)))
            case 2:
                del parent[key]
            case 3 if isinstance(parent, dict):
                parent[draw(st.sampled_from(("", "unknown", "\x00", "a.b")))] = parent[key]
            case _:
                value = parent[key]
                for _ in range(draw(st.sampled_from((1, 3, 60)))):
                    value = [value] if draw(st.booleans()) else {"a": value}
                parent[key] = value
    return tree


def _nodes(tree):
    found, waiting = [], [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict | list):
            found.append(node)
            waiting.extend(node.values() if isinstance(node, dict) else node)
    return found
