"""Hostile pickles: each asks the unpickler for something that it must not do."""

import pickle
import struct

FACES = [b"\xff\xd8 one", b"\xff\xd8 two"]


def text(value):
    return pickle.BINUNICODE + struct.pack("<I", len(value.encode())) + value.encode()


def content(value):
    return pickle.BINBYTES + struct.pack("<I", len(value)) + value


def number(value):
    return pickle.BININT + struct.pack("<i", value)


def named(module, name):
    return pickle.GLOBAL + f"{module}\n{name}\n".encode()


def joined(*parts):
    return pickle.MARK + b"".join(parts) + pickle.TUPLE


def called(function, *arguments):
    return function + joined(*arguments) + pickle.REDUCE


def set_of(images, same):
    """A complete pickle of images and flags."""
    return pickle.PROTO + b"\x02" + joined(images, same) + pickle.STOP


def listed(*entries):
    return pickle.MARK + b"".join(entries) + pickle.LIST


def type_of(code, *state):
    """A ``numpy.dtype``, optionally with another state."""
    made = called(named("numpy", "dtype"), text(code), pickle.NEWFALSE, pickle.NEWTRUE)
    return made + joined(*state) + pickle.BUILD if state else made


MULTIARRAY = "numpy._core.multiarray"
TRUE = listed(pickle.NEWTRUE)
NONE, LEAST = pickle.NONE, number(-1)
# Without the flag that says that its items are objects, NumPy takes bytes of the file for pointers to them.
OBJECTS = type_of("O8", number(3), text("|"), NONE, NONE, NONE, LEAST, LEAST, number(0))
EMPTY_ARRAY = called(named(MULTIARRAY, "_reconstruct"), named("numpy", "ndarray"), joined(number(0)), content(b"b"))
POINTERS = struct.pack("<2Q", 0x4141414141414141, 0x4242424242424242)


def array(kind, shape, data):
    """A ``numpy.ndarray`` as protocol 2 writes it."""
    return EMPTY_ARRAY + joined(number(1), shape, kind, pickle.NEWFALSE, data) + pickle.BUILD


def _claimed(opcode, form, size):
    return set_of(listed(opcode + struct.pack(form, size) + b"\xff\xd8"), TRUE)


def nested(depth):
    return pickle.EMPTY_TUPLE + pickle.TUPLE1 * depth


def _encoded_often(times, size):
    """One text, encoded to bytes many times."""
    first = text("\x41" * size) + pickle.BINPUT + b"\x00"
    again = called(named("_codecs", "encode"), pickle.BINGET + b"\x00", text("latin1"))
    return set_of(listed(first, again * times), TRUE)


def _one_array_often(times, size):
    """One array of bytes, listed many times: copies would take that many times its size."""
    one = array(type_of("u1"), joined(number(size)), content(bytes(size))) + pickle.BINPUT + b"\x00"
    flags = listed(pickle.NEWTRUE * ((times + 1) // 2))
    return set_of(listed(one, (pickle.BINGET + b"\x00") * times), flags)


HOSTILE = {
    "objects in an array": set_of(array(OBJECTS, joined(number(2)), content(POINTERS)), TRUE),
    "objects from a buffer": set_of(
        called(
            named("numpy._core.numeric", "_frombuffer"),
            content(POINTERS),
            OBJECTS,
            joined(number(2)),
            text("C"),
        ),
        TRUE,
    ),
    "an object for a number": set_of(
        listed(content(FACES[0]), content(FACES[1])),
        listed(called(named(MULTIARRAY, "scalar"), OBJECTS, content(POINTERS[:8]))),
    ),
    "records of objects": set_of(
        array(
            type_of(
                "V8",
                *(number(3), text("|"), NONE, joined(text("f")), pickle.EMPTY_DICT, number(8), LEAST, LEAST),
            ),
            joined(number(2)),
            content(POINTERS),
        ),
        TRUE,
    ),
    "a type of endless items": set_of(
        array(
            type_of("u1", number(3), text("|"), NONE, NONE, NONE, number(1 << 30), LEAST, number(0)),
            joined(number(2)),
            content(POINTERS),
        ),
        TRUE,
    ),
    "an array longer than its content": set_of(array(type_of("u1"), joined(number(1 << 30)), content(b"x")), TRUE),
    "an array of many axes": set_of(array(type_of("u1"), joined(number(1 << 30) * 100_000), content(b"x")), TRUE),
    "an empty array of 2^30": set_of(called(named("numpy", "ndarray"), joined(number(1 << 30))), TRUE),
    "a list for an array": set_of(array(type_of("u1"), joined(number(2)), listed(number(1), number(2))), TRUE),
    "bytes of 2^30": set_of(listed(called(named("builtins", "bytes"), number(1 << 30))), TRUE),
    "bytes that are not there": _claimed(pickle.BINBYTES8, "<Q", 1 << 60),
    "a number that is not there": _claimed(pickle.LONG4, "<i", (1 << 31) - 1),
    "a frame that is not there": pickle.PROTO + b"\x04" + pickle.FRAME + struct.pack("<Q", 1 << 62) + b"]",
    "a memo of 2^32": set_of(pickle.EMPTY_LIST + pickle.LONG_BINPUT + struct.pack("<I", (1 << 32) - 1), TRUE),
    "a memo of 2^30, as text": set_of(pickle.EMPTY_LIST + pickle.PUT + b"1073741824\n", TRUE),
    "tuples in tuples": set_of(nested(300_000), TRUE),
    "tuples in tuples for a key": set_of(pickle.EMPTY_DICT + nested(300_000) + NONE + pickle.SETITEM, TRUE),
    "tuples in tuples for a name": set_of(nested(300_000) + text("x") + b"\x93", TRUE),
    "a list in itself": set_of(pickle.EMPTY_LIST + b"q\x00h\x00a", TRUE),
    "endless lists": pickle.PROTO + b"\x02" + pickle.EMPTY_LIST * 300_000,
    "endless marks": pickle.PROTO + b"\x02" + pickle.MARK * 300_000,
    "calls that make 20 GB": _encoded_often(10_000, 500_000),
    "images that are 100 GB": _one_array_often(199_999, 500_000),
    "another function": set_of(listed(called(named("os", "system"), text("true"))), TRUE),
    "another function, by its dots": set_of(listed(called(named("numpy", "dtype.type"), text("x"))), TRUE),
    "a class": pickle.PROTO + b"\x02" + named("numpy", "dtype") + joined() + b"\x81.",
    "an extension": pickle.PROTO + b"\x02\x82\x01.",
    "something outside": pickle.PROTO + b"\x02" + text("x") + b"Q.",
    "nothing": pickle.PROTO + b"\x04.",
    "not a pickle": b"<html>",
}
