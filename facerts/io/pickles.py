"""Pickles of plain data, read without running arbitrary code.

A pickle is a program for a small stack machine (https://github.com/python/cpython/blob/main/Lib/pickletools.py), and
Python's unpickler calls whatever the program names. The machine in this module supports only the opcodes that create
numbers, text, bytes and containers of them; names resolve only to functions that the caller allows. Sizes claimed by
the pickle are checked against the bytes available, so that a small file cannot demand much memory.

It is not a ``pickle.Unpickler`` with a restricted ``find_class``, because with that a pickle of ten bytes allocates
gigabytes (``LONG_BINPUT``) or replaces methods of an allowed class (``BUILD``), and nested keys crash the process.
"""

from __future__ import annotations

import codecs
import pickle
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import IO, Any

# Allowed functions by module and name.
Names = Mapping[tuple[str, str], Callable[..., Any]]

# Enough for data sets of millions of images; each opcode creates at most an empty container.
MAX_OPCODES = 1 << 22
MAX_NAME_LENGTH = 200


class Buildable(ABC):
    """An object whose state a pickle may set after creating it (opcode BUILD)."""

    @abstractmethod
    def build(self, state: Any) -> None:
        """Set the state; a ``pickle.UnpicklingError`` if it is not valid for this object."""


def load_plain(file: IO[bytes], size: int, names: Names, persistent: Callable[[Any], Any] | None = None) -> Any:
    """Load a pickle of plain data.

    Args:
        file: open at the pickle's first byte.
        size: number of bytes left in the file.
        names: the functions that the pickle may call. Each must check its arguments, which may be anything.
        persistent: resolves persistent IDs, references to objects outside the pickle; None if there are none.

    Raises:
        pickle.UnpicklingError: the pickle is broken or contains more than plain data.
    """
    machine = _Machine(file, size, names, persistent)
    try:
        return machine.run()
    except IndexError as error:
        raise pickle.UnpicklingError("it reads a value that was never stored") from error
    except (TypeError, ValueError, OverflowError) as error:
        raise pickle.UnpicklingError(f"it is broken ({error})") from error


class _Machine:
    def __init__(self, file: IO[bytes], size: int, names: Names, persistent: Callable[[Any], Any] | None) -> None:
        self._file = file
        self._left = size
        # Calls may create no more bytes than the file has, since all data must come from the file.
        self._bytes_allowance = size
        self._names = names
        self._persistent = persistent
        self._stack: list[Any] = []
        self._below: list[list[Any]] = []
        self._memo: dict[int, Any] = {}

    def run(self) -> Any:
        for _ in range(MAX_OPCODES):
            code = self.take(1)
            if code == pickle.STOP:
                return self._stack.pop()
            action = _ACTIONS.get(code)
            if action is None:
                raise pickle.UnpicklingError(f"its opcode {code!r} is not for plain data")
            action(self)
        raise pickle.UnpicklingError(f"it has more than {MAX_OPCODES:,} opcodes")

    # Reading the arguments of opcodes.

    def take(self, count: int) -> bytes:
        data = b"" if count > self._left else self._file.read(count)
        if len(data) != count:
            raise pickle.UnpicklingError(
                f"it is truncated: {count:,} bytes are needed, but only {self._left:,} are left"
            )
        self._left -= count
        return data

    def line(self) -> bytes:
        line = self._file.readline()
        self._left -= len(line)
        if not line.endswith(b"\n"):
            raise pickle.UnpicklingError("it is truncated within a line")
        return line[:-1]

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def sized(self, form: str) -> bytes:
        """Bytes preceded by their length."""
        return self.take(self.number(form))

    # Running opcodes.

    def skip(self, count: int) -> None:
        self.take(count)

    def push(self, value: Any) -> None:
        self._stack.append(value)

    def mark(self) -> None:
        self._below.append(self._stack)
        self._stack = []

    def items(self) -> list[Any]:
        """Pop everything pushed since the last mark."""
        items, self._stack = self._stack, self._below.pop()
        return items

    def pack(self, count: int) -> None:
        """Replace the last ``count`` values by a tuple of them."""
        if len(self._stack) < count:
            raise IndexError
        self._stack[-count:] = [tuple(self._stack[-count:])]

    def append(self, items: list[Any]) -> None:
        if type(self._stack[-1]) is not list:
            raise pickle.UnpicklingError("it appends to something that is not a list")
        self._stack[-1].extend(items)

    def set_items(self, items: list[Any]) -> None:
        keys, values = items[::2], items[1::2]
        if not isinstance(self._stack[-1], dict) or len(keys) != len(values):
            raise pickle.UnpicklingError("it sets items of something that is not a dictionary")
        # Hashing deeply nested tuples would overflow the C stack.
        if not all(isinstance(key, str | int) for key in keys):
            raise pickle.UnpicklingError("a key is neither text nor an integer")
        self._stack[-1].update(zip(keys, values, strict=True))

    def remember(self, number: int | None = None) -> None:
        self._memo[len(self._memo) if number is None else number] = self._stack[-1]

    def recall(self, number: int) -> None:
        if number not in self._memo:
            raise pickle.UnpicklingError("it reads a value that was never stored")
        self._stack.append(self._memo[number])

    def name(self, module: Any, name: Any) -> None:
        if not (isinstance(module, str) and isinstance(name, str)):
            raise pickle.UnpicklingError("a name is not text")
        if (module, name) not in self._names:
            shown = f"{module}.{name}"[:MAX_NAME_LENGTH]
            raise pickle.UnpicklingError(f"it asks for {shown}, which is not plain data")
        self._stack.append(self._names[module, name])

    def call(self) -> None:
        arguments, function = self._stack.pop(), self._stack.pop()
        if not (callable(function) and isinstance(arguments, tuple)):
            raise pickle.UnpicklingError("it calls something that is not a function")
        result = function(*arguments)
        if isinstance(result, bytes) and not any(result is argument for argument in arguments):
            self._bytes_allowance -= len(result)
            if self._bytes_allowance < 0:
                raise pickle.UnpicklingError("it creates more bytes than the file has")
        self._stack.append(result)

    def build(self) -> None:
        state = self._stack.pop()
        if not isinstance(self._stack[-1], Buildable):
            raise pickle.UnpicklingError("it sets the state of an object that has none")
        self._stack[-1].build(state)

    def fetch(self) -> None:
        if self._persistent is None:
            raise pickle.UnpicklingError("it refers to an object outside the pickle")
        self._stack.append(self._persistent(self._stack.pop()))

    def pop(self) -> Any:
        return self._stack.pop()


def _bool_or_int(line: bytes) -> int:
    return {b"00": False, b"01": True}[line] if line in (b"00", b"01") else int(line)


def _unquote(line: bytes) -> bytes:
    """The bytes of a quoted and escaped string, as Python 2 wrote them."""
    if len(line) < 2 or line[:1] != line[-1:] or line[:1] not in (b"'", b'"'):
        raise ValueError("a string is not quoted")
    content: bytes = codecs.escape_decode(line[1:-1])[0]
    return content


# Python 2's str (STRING, BINSTRING) is loaded as bytes.
_ACTIONS: dict[bytes, Callable[[_Machine], None]] = {
    pickle.PROTO: lambda m: m.skip(1),
    pickle.FRAME: lambda m: m.skip(8),
    pickle.MARK: _Machine.mark,
    pickle.NONE: lambda m: m.push(None),
    pickle.NEWTRUE: lambda m: m.push(True),
    pickle.NEWFALSE: lambda m: m.push(False),
    pickle.INT: lambda m: m.push(_bool_or_int(m.line())),
    pickle.BININT: lambda m: m.push(m.number("<i")),
    pickle.BININT1: lambda m: m.push(m.number("<B")),
    pickle.BININT2: lambda m: m.push(m.number("<H")),
    pickle.LONG: lambda m: m.push(int(m.line().removesuffix(b"L"))),
    pickle.LONG1: lambda m: m.push(int.from_bytes(m.sized("<B"), "little", signed=True)),
    pickle.BINFLOAT: lambda m: m.push(m.number(">d")),
    pickle.STRING: lambda m: m.push(_unquote(m.line())),
    pickle.BINSTRING: lambda m: m.push(m.sized("<I")),
    pickle.SHORT_BINSTRING: lambda m: m.push(m.sized("<B")),
    pickle.BINBYTES: lambda m: m.push(m.sized("<I")),
    pickle.SHORT_BINBYTES: lambda m: m.push(m.sized("<B")),
    pickle.BINBYTES8: lambda m: m.push(m.sized("<Q")),
    pickle.BYTEARRAY8: lambda m: m.push(m.sized("<Q")),
    pickle.UNICODE: lambda m: m.push(m.line().decode("raw-unicode-escape")),
    pickle.BINUNICODE: lambda m: m.push(m.sized("<I").decode("utf-8", "surrogatepass")),
    pickle.SHORT_BINUNICODE: lambda m: m.push(m.sized("<B").decode("utf-8", "surrogatepass")),
    pickle.BINUNICODE8: lambda m: m.push(m.sized("<Q").decode("utf-8", "surrogatepass")),
    pickle.EMPTY_TUPLE: lambda m: m.push(()),
    pickle.TUPLE1: lambda m: m.pack(1),
    pickle.TUPLE2: lambda m: m.pack(2),
    pickle.TUPLE3: lambda m: m.pack(3),
    pickle.TUPLE: lambda m: m.push(tuple(m.items())),
    pickle.EMPTY_LIST: lambda m: m.push([]),
    pickle.LIST: lambda m: m.push(m.items()),
    pickle.APPEND: lambda m: m.append([m.pop()]),
    pickle.APPENDS: lambda m: m.append(m.items()),
    pickle.EMPTY_DICT: lambda m: m.push({}),
    pickle.SETITEM: lambda m: m.set_items([m.pop(), m.pop()][::-1]),
    pickle.SETITEMS: lambda m: m.set_items(m.items()),
    pickle.MEMOIZE: lambda m: m.remember(),
    pickle.PUT: lambda m: m.remember(int(m.line())),
    pickle.BINPUT: lambda m: m.remember(m.number("<B")),
    pickle.LONG_BINPUT: lambda m: m.remember(m.number("<I")),
    pickle.GET: lambda m: m.recall(int(m.line())),
    pickle.BINGET: lambda m: m.recall(m.number("<B")),
    pickle.LONG_BINGET: lambda m: m.recall(m.number("<I")),
    pickle.GLOBAL: lambda m: m.name(m.line().decode(), m.line().decode()),
    pickle.STACK_GLOBAL: lambda m: m.name(*[m.pop(), m.pop()][::-1]),
    pickle.REDUCE: _Machine.call,
    pickle.BUILD: _Machine.build,
    pickle.BINPERSID: _Machine.fetch,
}
