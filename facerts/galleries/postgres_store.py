"""A gallery in PostgreSQL with pgvector: any number of people, and of processes that search and change it.

Writers of a gallery take turns: each first locks the one row of the table ``about``. What a writer does, templates
included, is one transaction, so readers see all of it or nothing, and a killed writer leaves nothing. Images are scored
before, so turns are short.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from psycopg import Rollback
from typing_extensions import LiteralString

from facerts.errors import DataError, Error
from facerts.galleries.enrollments import IMAGE_ARRAYS, Enrollments, check_faces
from facerts.galleries.person_name import person_name
from facerts.galleries.postgres_connections import GalleryConnection, PostgresConnections, parse_address
from facerts.galleries.postgres_strangers import PostgresStrangers
from facerts.galleries.postgres_tables import (
    CANDIDATES,
    FORMAT,
    INDEX_FROM,
    GalleryState,
    check_tables,
    create_tables,
    make_index,
    put_in_place,
    read_state,
    use_index,
)
from facerts.galleries.store import NOBODY_LEFT, Edit, GallerySummary, Store
from facerts.galleries.unmated import SearchThreshold
from facerts.io.npz import typed_arrays
from facerts.scoring.prepare import storable

# Rows that a server sends at a time.
BLOCK = 10_000

TYPES = {
    "person": "int8",
    "name": "text",
    "path": "text",
    "template": "vector",
    "embedding": "vector",
    "quality": "float4",
    "percentile": "float4",
    "reasons": "text",
}
# The columns of an image, in the order of ``Enrollments``.
COLUMNS = "path, embedding, quality, percentile, reasons"
EXACT = """
SELECT name, -distance FROM (
    SELECT name, template <#> %(probe)s AS distance FROM {schema}.people ORDER BY distance, name LIMIT %(k)s
) AS nearest
"""
INDEXED = """
SELECT name, -(template <#> %(probe)s) AS cosine FROM (
    SELECT name, template FROM {schema}.people
    ORDER BY template::halfvec({size}) <#> %(probe)s::halfvec({size}) LIMIT %(candidates)s
) AS near ORDER BY template <#> %(probe)s, name LIMIT %(k)s
"""
# An index is not written to for a template that is the same as before.
TEMPLATE = """
UPDATE {schema}.people SET template = %(template)s WHERE name = %(name)s AND template <> %(template)s
"""
# The images of some people: by their names, or because an image of theirs has one of these paths.
CONCERNED = """
WHERE people.id IN (
    SELECT id FROM {schema}.people WHERE name = ANY(%s) UNION
    SELECT person FROM {schema}.enrollments WHERE path = ANY(%s)
)
"""
COUNTS = """
SELECT name, count(*) FROM {schema}.people JOIN {schema}.enrollments ON person = people.id
GROUP BY people.id ORDER BY name COLLATE "C"
"""
DELETE = """
DELETE FROM {schema}.enrollments USING {schema}.people, unnest(%s::text[], %s::text[]) AS gone(name, path)
WHERE person = people.id AND people.name = gone.name AND enrollments.path = gone.path
"""


class PostgresStore(Store):
    """A database, in which each call sees what others have written.

    Args:
        address: of the database, with the name of the gallery: ``postgresql://user@host/database?gallery=people``.
    """

    def __init__(self, address: str | Path) -> None:
        parsed = parse_address(address)
        self.name = parsed.shown
        self.connections = PostgresConnections(parsed)
        self._strangers = PostgresStrangers(self.connections)

    def close(self) -> None:
        self.connections.close()

    def summary(self) -> GallerySummary:
        with self.connections.transaction() as connection:
            return read_state(connection)

    def image_counts(self) -> dict[str, int]:
        with self.connections.transaction() as connection:
            check_tables(connection, read_state(connection))
            return dict(connection.run(COUNTS).fetchall())

    def read(self) -> Enrollments:
        with self.connections.transaction() as connection:
            state = read_state(connection)
            check_tables(connection, state)
            return _read(connection, state)

    @contextmanager
    def reserved(self, *, replace: bool) -> Iterator[None]:
        """See whether tables can be made; writers take turns only when their images have been scored."""
        if replace:
            with self.connections.transaction(read_only=False) as connection:
                create_tables(connection, size=1)
                raise Rollback
        yield

    def replace(self, images: Enrollments) -> None:
        size, names = images.embedding.shape[1], images.people.tolist()
        with self.connections.transaction(read_only=False) as connection:
            create_tables(connection, size)
            _copy(connection, "new_people", "name, template", zip(names, images.templates, strict=True))
            # Rows of new tables are numbered from 1.
            _copy_images(connection, "new_enrollments", images, (images.row + 1).tolist())
            connection.run(
                "INSERT INTO {schema}.new_about "
                "(format, model, model_sha256, size, people, images, indexed, changes, sample) "
                "VALUES (%s, %s, %s, %s, %s, %s, false, 0, floor(random() * 1e15))",
                (FORMAT, images.model, images.model_sha256, size, len(names), len(images)),
            )
            put_in_place(connection, size, index=len(names) >= INDEX_FROM)

    def change(
        self, people: Collection[str], paths: Collection[str], edit: Edit
    ) -> tuple[Enrollments, Enrollments, GallerySummary]:
        with self.connections.transaction(read_only=False) as connection:
            state = read_state(connection, lock=True)
            # Others are not concerned, however many there are.
            before = _read(connection, state, CONCERNED, ([*map(storable, people)], [*paths]))
            gone, new = edit(before)
            removed, after = before.take(gone), before.changed(gone, new)
            images = state.images - len(removed) + len(new)
            if not images:
                raise DataError(NOBODY_LEFT)
            connection.run(DELETE, (removed.person.tolist(), removed.path.tolist()))
            left, there = set(after.people.tolist()), set(before.people.tolist())
            connection.run("DELETE FROM {schema}.people WHERE name = ANY(%s)", (sorted(there - left),))
            templates = dict(zip(after.people.tolist(), after.templates, strict=True))
            added = [(name, templates[name]) for name in sorted(left - there)]
            _copy(connection, "people", "name, template", added)
            touched = left & there & {*removed.person.tolist(), *new.person.tolist()}
            changed = [{"name": name, "template": templates[name]} for name in sorted(touched)]
            connection.cursor().executemany(connection.statement(TEMPLATE), changed)
            text = "SELECT name, id FROM {schema}.people WHERE name = ANY(%s)"
            ids = dict(connection.run(text, (new.people.tolist(),)).fetchall())
            _copy_images(connection, "enrollments", new, [ids[name] for name in new.person.tolist()])
            count = state.people + len(left) - len(there)
            # Scores of strangers are gone with what was removed, so other processes read them again.
            connection.run(
                "UPDATE {schema}.about "
                "SET people = %s, images = %s, changes = changes + %s, sample = sample + %s",
                (count, images, len(removed) + len(new), int(not len(new))),
            )
            if not state.indexed and count >= INDEX_FROM:
                make_index(connection, state.size)
            return before, after, read_state(connection)

    def threshold(self, fpir: float) -> SearchThreshold:
        return self._strangers.threshold(fpir)

    def search(self, probes: NDArray[np.float32], k: int) -> list[list[tuple[str, float]]]:
        candidates = max(CANDIDATES, 2 * k)
        with self.connections.transaction() as connection:
            state = read_state(connection)
            if state.indexed:
                use_index(connection, state.people, candidates)
            statement = connection.statement(INDEXED if state.indexed else EXACT, size=state.size)
            values = ({"probe": probe, "k": k, "candidates": candidates} for probe in probes)
            found = [connection.execute(statement, each, binary=True).fetchall() for each in values]
            if not all(found):
                raise connection.contradiction("it has no people")
            return found


def _read(
    connection: GalleryConnection,
    state: GalleryState,
    some: LiteralString = "",
    values: Sequence[object] | None = None,
) -> Enrollments:
    """The images of some people, or all, by person in the order in which they were enrolled."""
    images: LiteralString = " FROM {schema}.enrollments JOIN {schema}.people ON person = people.id " + some
    count = connection.run("SELECT count(*)" + images, values).fetchone()
    assert count is not None
    rows: list[Any] = []
    embedding = np.empty((count[0], state.size), dtype=np.float32)
    statement = connection.statement(f"SELECT name, {COLUMNS}{images} ORDER BY enrollments.id")
    with connection.cursor("images", binary=True) as cursor:
        cursor.itersize = BLOCK
        for name, path, vector, *others in cursor.execute(statement, values):
            embedding[len(rows)] = vector.to_numpy()
            rows.append((name, path, *others))
    person, path, quality, percentile, reasons = zip(*rows, strict=True) if rows else ((),) * 5
    columns = {
        "path": np.array(path, dtype=str),
        "embedding": embedding,
        "quality": np.array(quality, dtype=np.float32),
        "percentile": np.array(percentile, dtype=np.float32),
        "reasons": np.array(reasons, dtype=str),
    }
    try:
        columns = typed_arrays(columns, IMAGE_ARRAYS)
        check_faces(columns["embedding"], columns["reasons"])
        for name in set(person):
            if person_name(name) != name:
                raise Error(f"the name {name} is not in Unicode's NFC, or has spaces around it")
    except Error as error:
        raise connection.contradiction(error) from error
    names = np.array(person, dtype=str)
    return Enrollments(names, **columns, model=state.model, model_sha256=state.model_sha256).in_order()


def _copy_images(
    connection: GalleryConnection, table: LiteralString, images: Enrollments, people: Sequence[int]
) -> None:
    """Write images of the people with these ids."""
    columns = zip(
        people,
        images.path.tolist(),
        images.embedding,
        map(_number_or_null, images.quality.tolist()),
        map(_number_or_null, images.percentile.tolist()),
        images.reasons.tolist(),
        strict=True,
    )
    _copy(connection, table, f"person, {COLUMNS}", columns)


def _copy(
    connection: GalleryConnection,
    table: LiteralString,
    columns: LiteralString,
    rows: Iterable[tuple[Any, ...]],
) -> None:
    statement = connection.statement(f"COPY {{schema}}.{table} ({columns}) FROM STDIN (FORMAT BINARY)")
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        copy.set_types([TYPES[column] for column in columns.split(", ")])
        for row in rows:
            copy.write_row(row)


def _number_or_null(value: float) -> float | None:
    return None if np.isnan(value) else value
