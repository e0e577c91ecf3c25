"""The address of a gallery in PostgreSQL: that of the database, and the name of the gallery in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

from facerts.errors import Error

DEFAULT_GALLERY = "gallery"
# What a schema of PostgreSQL may be called.
MAX_NAME_BYTES = 63
SECRETS = {"password", "sslpassword", "oauth_client_secret"}
# Seconds to wait for a server that does not answer, unless the address says otherwise.
CONNECT_TIMEOUT = "10"


@dataclass(frozen=True)
class PostgresAddress:
    """Where a gallery is.

    Attributes:
        parameters: of the connection, by their names in libpq, passwords too.
        gallery: name of the gallery, which is a schema of the database.
        shown: the address without passwords, for messages.
    """

    parameters: dict[str, str] = field(repr=False)
    gallery: str
    shown: str


def parse_address(address: str | Path) -> PostgresAddress:
    """The parts of an address such as ``postgresql://user@host/database?gallery=people``.

    Messages never repeat an address that is not understood, as it may have a password.
    """
    text = str(address)
    # More than one @ means that a password has one: libpq would take a part of it for a host, and name it.
    if (
        isinstance(address, Path)
        or text.count("@") > 1
        or "#" in text
        or not text.partition(":")[2].startswith("//")
    ):
        raise Error(
            "this is not an address of a database; write it as text like postgresql://user@host/database?gallery=people"
            ", and @, #, / and ? in a password as %40, %23, %2F and %3F"
        )
    try:
        parts = urlsplit(text)
        if "@" in text and "@" not in parts.netloc:
            raise ValueError
        given = parse_qsl(
            parts.query, keep_blank_values=True, strict_parsing=bool(parts.query), errors="strict"
        )
        options = [(name, value) for name, value in given if name != "gallery"]
        parameters = _libpq_parameters(parts._replace(query=urlencode(options)).geturl())
    except ValueError:
        raise Error(
            "the address of the database cannot be read; write it like postgresql://user@host:5432/database?gallery=people"
            ", with special characters in a password as %40 for @"
        ) from None
    gallery = dict(given).get("gallery", DEFAULT_GALLERY)
    user, at, host = parts.netloc.rpartition("@")
    public = [(name, value) for name, value in given if name not in SECRETS]
    shown = parts._replace(netloc=user.partition(":")[0] + at + host, query=urlencode(public, safe="/"))
    return PostgresAddress(parameters, _checked_name(gallery), shown.geturl())


def _libpq_parameters(address: str) -> dict[str, str]:
    try:
        given = conninfo_to_dict(address)
    except ProgrammingError:
        raise ValueError from None
    return {"connect_timeout": CONNECT_TIMEOUT} | {name: str(value) for name, value in given.items()}


def _checked_name(name: str) -> str:
    size = len(name.encode(errors="replace"))
    reserved = name.startswith("pg_") or name in ("public", "information_schema")
    if not 0 < size <= MAX_NAME_BYTES or set(name) & set("\0%") or reserved:
        raise Error(
            f"a gallery cannot be called {name[:100]!r}; choose a name of 1 to {MAX_NAME_BYTES} bytes without "
            "% that is not public and does not begin with pg_"
        )
    return name
