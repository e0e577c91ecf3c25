"""The address of a gallery in PostgreSQL, connections for any number of threads, and what goes wrong in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import psycopg
from pgvector.psycopg import register_vector
from psycopg import IsolationLevel, ProgrammingError, errors, sql
from psycopg.conninfo import conninfo_to_dict
from typing_extensions import LiteralString

from facerts.errors import DataError, Error, WriteError, first_line

# The first version that goes on where an index has found deleted templates.
MIN_PGVECTOR = (0, 8)
DEFAULT_GALLERY = "gallery"
# What a schema of PostgreSQL may be called.
MAX_NAME_BYTES = 63
SECRETS = {"password", "sslpassword", "oauth_client_secret"}
# Seconds to wait for a server that does not answer, unless the address says otherwise.
CONNECT_TIMEOUT = "10"
OURS = {"client_encoding": "utf8", "application_name": "facerts"}


@dataclass(frozen=True)
class PostgresAddress:
    """Where a gallery is.

    Attributes:
        parameters: of the connection, by their names in libpq, passwords too.
        gallery: name of the gallery, which is a schema of the database.
        shown: the address without passwords, for messages.
    """

    parameters: Mapping[str, Any] = field(repr=False)
    gallery: str
    shown: str


def parse_address(address: str | Path) -> PostgresAddress:
    """The parts of an address such as ``postgresql://user@host/database?gallery=people``.

    Messages never repeat an address that is not understood, as it may have a password.
    """
    text = str(address)
    # More than one @ means that a password has one: libpq would take a part of it for a host, and name it.
    if isinstance(address, Path) or text.count("@") > 1 or "#" in text or not text.partition(":")[2].startswith("//"):
        raise Error(
            "this is not an address of a database; write it as text like postgresql://user@host/database?gallery=people"
            ", and @, #, / and ? in a password as %40, %23, %2F and %3F"
        )
    try:
        parts = urlsplit(text)
        if "@" in text and "@" not in parts.netloc:
            raise ValueError
        given = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query), errors="strict")
        options = [(name, value) for name, value in given if name != "gallery"]
        parsed = conninfo_to_dict(parts._replace(query=urlencode(options)).geturl())
    except (ValueError, ProgrammingError):
        raise Error(
            "the address of the database cannot be read; write it like postgresql://user@host:5432/database?gallery=people"
            ", with special characters in a password as %40 for @"
        ) from None
    gallery = dict(given).get("gallery", DEFAULT_GALLERY)
    user, at, host = parts.netloc.rpartition("@")
    public = [(name, value) for name, value in given if name not in SECRETS]
    shown = parts._replace(netloc=user.partition(":")[0] + at + host, query=urlencode(public, safe="/"))
    parameters = {"connect_timeout": CONNECT_TIMEOUT, **parsed, **OURS}
    return PostgresAddress(parameters, _checked_name(gallery), shown.geturl())


def _checked_name(name: str) -> str:
    size = len(name.encode(errors="replace"))
    reserved = name.startswith("pg_") or name in ("public", "information_schema")
    if not 0 < size <= MAX_NAME_BYTES or set(name) & set("\0%") or reserved:
        raise Error(
            f"a gallery cannot be called {name[:100]!r}; choose a name of 1 to {MAX_NAME_BYTES} bytes without "
            "% that is not public and does not begin with pg_"
        )
    return name


class GalleryConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection for statements about one gallery; ``checked`` identifies the tables whose columns were checked."""

    address: PostgresAddress
    checked: tuple[object, ...] = ()

    def statement(self, text: LiteralString, **ours: int | str) -> sql.Composed:
        """A statement with the ``{schema}`` and names or numbers of ours in it; all other values are parameters."""
        values = {name: sql.SQL(str(value)) for name, value in ours.items()}
        return sql.SQL(text).format(schema=sql.Identifier(self.address.gallery), **values)

    def run(
        self,
        text: LiteralString,
        values: Sequence[object] | Mapping[str, object] | None = None,
        *,
        binary: bool = False,
        **ours: int | str,
    ) -> psycopg.Cursor[tuple[Any, ...]]:
        """Execute a statement; see ``statement``."""
        return self.execute(self.statement(text, **ours), values, binary=binary)

    def contradiction(self, problem: object) -> DataError:
        """The error of a gallery that contradicts itself."""
        return DataError(f"{self.address.shown}: this gallery is broken: {problem}; build it again")


class PostgresConnections:
    """Connections that are opened when they are needed, and kept for the next transaction."""

    def __init__(self, address: PostgresAddress) -> None:
        self._address = address
        # Taking from a list and putting back are atomic.
        self._idle: list[GalleryConnection] = []

    @contextmanager
    def transaction(self, *, read_only: bool = True) -> Iterator[GalleryConnection]:
        """A transaction that sees the database as it was at one moment, or one that changes all or nothing."""
        with self._in_words():
            connection = self._take()
            try:
                connection.set_isolation_level(
                    IsolationLevel.REPEATABLE_READ if read_only else IsolationLevel.READ_COMMITTED
                )
                connection.set_read_only(read_only)
                with connection.transaction():
                    yield connection
            finally:
                if connection.closed:
                    # The others are likely to be lost too.
                    self.close()
                else:
                    self._idle.append(connection)

    def close(self) -> None:
        """Close the connections that nobody uses."""
        while self._idle:
            self._idle.pop().close()

    def _take(self) -> GalleryConnection:
        """A connection that works: one that was kept may have been lost since."""
        while self._idle:
            connection = self._idle.pop()
            try:
                connection.execute("")
                return connection
            except psycopg.OperationalError:
                connection.close()
        return self._connect()

    def _connect(self) -> GalleryConnection:
        connection = GalleryConnection.connect(**self._address.parameters, autocommit=True)
        connection.address = self._address
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: GalleryConnection) -> None:
        """Check what a gallery needs of a database, and let vectors be arrays."""
        shown = self._address.shown
        row = connection.execute(
            "SELECT current_setting('server_encoding'), "
            "(SELECT extversion FROM pg_extension WHERE extname = 'vector'), to_regtype('vector')"
        ).fetchone()
        assert row is not None
        encoding, version, vector_type = row
        if encoding != "UTF8":
            raise Error(
                f"{shown}: the database has the encoding {encoding}, which not every name can be written in; create "
                "one with ENCODING 'UTF8'"
            )
        if version is None:
            raise Error(
                f"{shown}: the database lacks pgvector; let its administrator run CREATE EXTENSION vector in it"
            )
        if tuple(map(int, version.split(".")[:2])) < MIN_PGVECTOR:
            raise Error(
                f"{shown}: the database has pgvector {version}, and galleries need "
                f"{'.'.join(map(str, MIN_PGVECTOR))} or later; update it, then run ALTER EXTENSION vector UPDATE"
            )
        if vector_type is None:
            raise Error(f"{shown}: pgvector is in a schema that is not searched; add it to the search_path of the role")
        register_vector(connection)
        # Compiling a query takes longer than a search.
        connection.execute("SET jit = off")

    @contextmanager
    def _in_words(self) -> Iterator[None]:
        """Turn an error of the database into one that says what to do, without a password."""
        shown = self._address.shown
        try:
            yield
        except (errors.UndefinedTable, errors.InvalidSchemaName, errors.UndefinedColumn) as error:
            raise DataError(
                f"{shown}: there is no gallery of this name and format; check the name, or facerts gallery build "
                "writes one"
            ) from error
        except (errors.InsufficientPrivilege, errors.ReadOnlySqlTransaction) as error:
            raise WriteError(f"{shown}: {first_line(error)}; give the role the rights, or use another role") from error
        except (errors.DiskFull, errors.OutOfMemory) as error:
            raise WriteError(
                f"{shown}: {first_line(error)}; nothing was changed; free up space on the server"
            ) from error
        except psycopg.Error as error:
            lost = error.sqlstate is None or error.sqlstate[:2] in ("08", "57")
            what = "the database cannot be reached" if lost else "the database refused"
            advice = "check the address, and that the server runs" if lost else "nothing was changed"
            raise Error(f"{shown}: {what} ({first_line(error)}); {advice}") from error
