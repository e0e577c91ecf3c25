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
from typing_extensions import LiteralString

from facerts.errors import DataError, Error
from facerts.galleries.enrollments import IMAGE_ARRAYS, Enrollments, check_faces
from facerts.galleries.person_name import person_name
from facerts.galleries.postgres_connections import (
    CANDIDATES,
    MAX_EF_SEARCH,
    Connection,
    PostgresConnections,
    default_ef_search,
    parse_address,
    set_index_search,
)
from facerts.galleries.postgres_strangers import PostgresStrangers
from facerts.galleries.postgres_tables import FORMAT, INDEX_FROM, GalleryState, PostgresTables
from facerts.galleries.store import NOBODY_LEFT, Change, Edit, GallerySummary, Store
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


class PostgresStore(Store):
    """A database, in which each call sees what others have written.

    Args:
        address: of the database, with the name of the gallery: ``postgresql://user@host/database?gallery=people``.
    """

    def __init__(self, address: str | Path) -> None:
        parsed = parse_address(address)
        self.name = parsed.shown
        self.connections = PostgresConnections(parsed)
        self.tables = PostgresTables(parsed)
        self._strangers = PostgresStrangers(self.connections, self.tables)

    def close(self) -> None:
        self.connections.close()

    def summary(self) -> GallerySummary:
        with self.connections.reading() as connection:
            return self.tables.state(connection)

    def image_counts(self) -> dict[str, int]:
        text = (
            "SELECT name, count(*) FROM {schema}.people JOIN {schema}.enrollments ON person = people.id "
            'GROUP BY people.id ORDER BY name COLLATE "C"'
        )
        with self.connections.reading() as connection:
            self.tables.check(connection, self.tables.state(connection))
            return dict(connection.execute(self.tables.statement(text)).fetchall())

    def read(self) -> Enrollments:
        with self.connections.reading() as connection:
            state = self.tables.state(connection)
            self.tables.check(connection, state)
            return self._read(connection, state)

    @contextmanager
    def reserved(self, *, replace: bool) -> Iterator[None]:
        """See whether tables can be made; writers take turns only when their images have been scored."""
        if replace:
            with self.connections.trying() as connection:
                self.tables.create(connection, size=1)
        yield

    def replace(self, images: Enrollments, *, index: bool | None = None) -> None:
        """Put images in place of what is there.

        Args:
            index: make the index that finds templates; None if there are ``INDEX_FROM`` people or more.
        """
        size = images.embedding.shape[1]
        names = images.people.tolist()
        with self.connections.writing() as connection:
            self.tables.create(connection, size)
            people = zip(names, images.templates, strict=True)
            self._copy(connection, "new_people", "name, template", people)
            # Rows of new tables are numbered from 1.
            self._copy_images(connection, "new_enrollments", images, (images.row + 1).tolist())
            about = (FORMAT, images.model, images.model_sha256, size, len(names), len(images))
            text = (
                "INSERT INTO {schema}.new_about "
                "(format, model, model_sha256, size, people, images, indexed, changes, sample) "
                "VALUES (%s, %s, %s, %s, %s, %s, false, 0, floor(random() * 1e15))"
            )
            connection.execute(self.tables.statement(text), about)
            self.tables.put_in_place(
                connection, size, index=len(names) >= INDEX_FROM if index is None else index
            )

    def change(self, people: Collection[str], paths: Collection[str], edit: Edit) -> Change:
        with self.connections.writing() as connection:
            state = self.tables.state(connection, lock=True)
            # Others are not concerned, however many there are.
            before = self._read(connection, state, self._concerned(connection, people, paths))
            gone, added = edit(before)
            removed = before.take(gone)
            new = before.take(np.zeros(len(before), dtype=bool)) if added is None else added
            images = state.images - len(removed) + len(new)
            if not images:
                raise DataError(NOBODY_LEFT)
            after = before.changed(gone, added)
            old_names, names = set(before.people.tolist()), set(after.people.tolist())
            self._delete_images(connection, removed)
            delete = "DELETE FROM {schema}.people WHERE name = ANY(%s)"
            connection.execute(self.tables.statement(delete), (sorted(old_names - names),))
            touched = names & {*removed.person.tolist(), *new.person.tolist()}
            self._set_templates(connection, after, touched)
            text = "SELECT name, id FROM {schema}.people WHERE name = ANY(%s)"
            ids = dict(connection.execute(self.tables.statement(text), (new.people.tolist(),)).fetchall())
            self._copy_images(connection, "enrollments", new, [ids[name] for name in new.person.tolist()])
            count = state.people + len(names - old_names) - len(old_names - names)
            self._count(connection, count, images, changes=len(removed) + len(new), shrunk=not len(new))
            if not state.indexed and count >= INDEX_FROM:
                self.tables.make_index(connection, state.size)
            return Change(before, after, self.tables.state(connection))

    def threshold(self, fpir: float) -> SearchThreshold:
        """The minimum cosine of a match; see ``PostgresStrangers`` for how it follows changes of the gallery."""
        return self._strangers.threshold(fpir)

    def search(
        self, probes: NDArray[np.float32], k: int, *, ef_search: int | None = None
    ) -> list[list[tuple[str, float]]]:
        """The k most similar people to each probe ``(n, d)``, with their cosines, best first.

        Args:
            ef_search: how many candidates a search in the index, which is not exact, keeps, 1 to 1,000; None for 400,
                or a thousandth of the people if that is more.
        """
        with self.connections.reading() as connection:
            return self._nearest(connection, self.tables.state(connection), probes, k, ef_search)

    def _nearest(
        self,
        connection: Connection,
        state: GalleryState,
        probes: NDArray[np.float32],
        k: int,
        ef_search: int | None = None,
    ) -> list[list[tuple[str, float]]]:
        statement = self.tables.statement(EXACT)
        candidates = max(CANDIDATES, 2 * k)
        if state.indexed:
            statement = self.tables.statement(INDEXED, size=state.size)
            # Deleted templates stay in the index for a while, so a search goes on until it has found enough.
            wanted = default_ef_search(state.people) if ef_search is None else ef_search
            set_index_search(connection, max(wanted, min(candidates, MAX_EF_SEARCH)))
        found = [
            connection.execute(
                statement, {"probe": probe, "k": k, "candidates": candidates}, binary=True
            ).fetchall()
            for probe in probes
        ]
        if not all(found):
            raise self.tables.broken("it has no people")
        return found

    def _concerned(self, connection: Connection, people: Collection[str], paths: Collection[str]) -> set[str]:
        """Names of people, and of those with images of these paths."""
        text = (
            "SELECT DISTINCT name FROM {schema}.enrollments JOIN {schema}.people ON person = people.id "
            "WHERE path = ANY(%s)"
        )
        found = connection.execute(self.tables.statement(text), (list(paths),)).fetchall() if paths else []
        return {*map(storable, people), *(name for (name,) in found)}

    def _read(
        self, connection: Connection, state: GalleryState, names: Collection[str] | None = None
    ) -> Enrollments:
        """The images of people, or all, by person in the order in which they were enrolled."""
        text: LiteralString = (
            "SELECT {what} FROM {schema}.enrollments JOIN {schema}.people ON person = people.id {some}"
        )
        some = "" if names is None else "WHERE name = ANY(%s)"
        values = None if names is None else (list(names),)
        count = connection.execute(self.tables.statement(text, what="count(*)", some=some), values).fetchone()
        assert count is not None
        statement = self.tables.statement(
            text, what=f"name, {COLUMNS}", some=f"{some} ORDER BY enrollments.id"
        )
        rows: list[Any] = []
        embedding = np.empty((count[0], state.size), dtype=np.float32)
        with connection.cursor("images", binary=True) as cursor:
            cursor.itersize = BLOCK
            for row in cursor.execute(statement, values):
                embedding[len(rows)] = row[2].to_numpy()
                rows.append((*row[:2], *row[3:]))
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
            raise self.tables.broken(error) from error
        names_of_images = np.array(person, dtype=str)
        return Enrollments(
            names_of_images, **columns, model=state.model, model_sha256=state.model_sha256
        ).in_order()

    def _copy_images(
        self, connection: Connection, table: str, images: Enrollments, people: Sequence[int]
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
        self._copy(connection, table, f"person, {COLUMNS}", columns)

    def _copy(
        self, connection: Connection, table: str, columns: str, rows: Iterable[tuple[Any, ...]]
    ) -> None:
        statement = self.tables.statement(
            "COPY {schema}.{table} ({columns}) FROM STDIN (FORMAT BINARY)", table=table, columns=columns
        )
        with connection.cursor() as cursor, cursor.copy(statement) as copy:
            copy.set_types([TYPES[column] for column in columns.split(", ")])
            for row in rows:
                copy.write_row(row)

    def _set_templates(self, connection: Connection, images: Enrollments, names: Collection[str]) -> None:
        """Write the templates of people, some of whom may be new."""
        if not names:
            return
        every = zip(images.people.tolist(), images.templates, strict=True)
        rows = [(template, name) for name, template in every if name in names]
        with connection.cursor() as cursor:
            new = "INSERT INTO {schema}.people (template, name) VALUES (%s, %s) ON CONFLICT DO NOTHING"
            cursor.executemany(self.tables.statement(new), rows)
            known = "UPDATE {schema}.people SET template = %s WHERE name = %s AND template <> %s"
            cursor.executemany(self.tables.statement(known), [(*row, row[0]) for row in rows])

    def _delete_images(self, connection: Connection, images: Enrollments) -> None:
        """Delete the images of the same people and paths."""
        text = (
            "DELETE FROM {schema}.enrollments USING {schema}.people, "
            "unnest(%s::text[], %s::text[]) AS gone(name, path) "
            "WHERE person = people.id AND people.name = gone.name AND enrollments.path = gone.path"
        )
        names, paths = images.person.tolist(), images.path.tolist()
        connection.execute(self.tables.statement(text), (names, paths))

    def _count(self, connection: Connection, people: int, images: int, *, changes: int, shrunk: bool) -> None:
        text = (
            "UPDATE {schema}.about SET people = %s, images = %s, changes = changes + %s, sample = sample + %s"
        )
        # Scores of strangers are gone with what was removed, so other processes read them again.
        connection.execute(self.tables.statement(text), (people, images, changes, int(shrunk)))


def _number_or_null(value: float) -> float | None:
    return None if np.isnan(value) else value
