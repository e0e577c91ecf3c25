"""A gallery in PostgreSQL with pgvector: any number of people, and of processes that search and change it.

Writers of a gallery take turns: each first locks the one row of the table ``about``. What a writer does, templates
included, is one transaction, so readers see all of it or nothing, and a killed writer leaves nothing. Images are scored
before, so turns are short.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import LiteralString

from facerts.errors import DataError, Error
from facerts.galleries.check import listed_entries
from facerts.galleries.enroll import (
    IMAGE_ARRAYS,
    Enrollments,
    Images,
    check_faces,
    check_model,
    enroll_images,
)
from facerts.galleries.findings import Finding, Listed
from facerts.galleries.gallery import NOBODY_LEFT, Gallery
from facerts.galleries.match import Match, match_faces
from facerts.galleries.person_name import normal_name, person_name
from facerts.galleries.postgres_address import parse_address
from facerts.galleries.postgres_connections import (
    CANDIDATES,
    MAX_EF_SEARCH,
    Connection,
    PostgresConnections,
    default_ef_search,
    set_index_search,
)
from facerts.galleries.postgres_strangers import PostgresStrangers
from facerts.galleries.postgres_tables import FORMAT, INDEX_FROM, GalleryState, PostgresTables
from facerts.galleries.stored_gallery import (
    Enrolled,
    GallerySummary,
    Removed,
    StoredGallery,
    people_without_image,
    reason_counts,
)
from facerts.galleries.unmated import SearchThreshold
from facerts.io.npz import typed_arrays
from facerts.scoring.inputs import Color, ImageInputs
from facerts.scoring.prepare import storable
from facerts.scoring.row_builder import ScoredFace
from facerts.scoring.scorer import Scorer

# Rows that a server sends at a time.
BLOCK = 10_000

TYPES = {
    "id": "int8",
    "person": "int8",
    "name": "text",
    "path": "text",
    "template": "vector",
    "embedding": "vector",
    "quality": "float4",
    "percentile": "float4",
    "reasons": "text",
    "weight": "float8",
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


class PostgresGallery(StoredGallery):
    """A gallery in a database; each call sees what others have written.

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
        """Close the connections; the next call opens one again."""
        self.connections.close()

    def summary(self) -> GallerySummary:
        state = self._state()
        return GallerySummary(state.model, state.model_sha256, state.size, state.people, state.images)

    def image_counts(self) -> dict[str, int]:
        text = (
            "SELECT name, count(*) FROM {schema}.people JOIN {schema}.enrollments ON person = people.id "
            'GROUP BY people.id ORDER BY name COLLATE "C"'
        )
        with self.connections.reading() as connection:
            self.tables.check(connection, self.tables.state(connection))
            return dict(connection.execute(self.tables.statement(text)).fetchall())

    def read(self) -> Gallery:
        """All of the gallery as it is now, in memory."""
        with self.connections.reading() as connection:
            state = self.tables.state(connection)
            self.tables.check(connection, state)
            return Gallery.from_enrollments(state.model, state.model_sha256, self._read(connection, state))

    def write(self, gallery: Gallery, *, index: bool | None = None) -> None:
        """Put a gallery in place of what is there.

        Args:
            index: make the index that finds templates; None if there are ``INDEX_FROM`` people or more.
        """
        images = gallery.enrollments
        size = images.embedding.shape[1]
        names = gallery.people.tolist()
        with self.connections.writing() as connection:
            self.tables.create(connection, size)
            self._copy(connection, "new_people", "id, name, template", _numbered(names, gallery.templates))
            self._copy_images(connection, "new_enrollments", images, gallery.row + 1, first=1)
            about = (FORMAT, gallery.model, gallery.model_sha256, size, len(names), len(images))
            text = (
                "INSERT INTO {schema}.new_about "
                "(format, model, model_sha256, size, people, images, indexed, changes, sample) "
                "VALUES (%s, %s, %s, %s, %s, %s, false, 0, floor(random() * 1e15))"
            )
            connection.execute(self.tables.statement(text), about)
            self.tables.put_in_place(
                connection, size, index=len(names) >= INDEX_FROM if index is None else index
            )

    def build(
        self, scorer: Scorer, images: Images, *, min_quality: float | None = None, progress: str = ""
    ) -> Enrolled:
        # Better to know now than when all images have been scored.
        with self.connections.trying() as connection:
            self.tables.create(connection, size=1)
        built = Gallery.build(scorer, images, min_quality=min_quality, progress=progress)
        self.write(built)
        with self.connections.reading() as connection:
            return self._enrolled(connection, built)

    def add(
        self,
        scorer: Scorer,
        images: ImageInputs,
        *,
        person: str | None = None,
        min_quality: float | None = None,
        color: Color = "RGB",
        progress: str = "",
    ) -> Enrolled:
        self.check_model(scorer)
        new, rejected = enroll_images(
            scorer, images, person=person, min_quality=min_quality, color=color, progress=progress
        )
        return self._merge(Gallery(scorer.recognizer.name, scorer.recognizer.sha256, new, rejected))

    def merge(self, gallery: Gallery) -> None:
        """Add the images of another gallery; see ``Gallery.merged``."""
        self._merge(gallery)

    def remove(
        self,
        *,
        people: Iterable[str] = (),
        paths: Iterable[str] = (),
        findings: Sequence[Finding | Listed] = (),
    ) -> Removed:
        with self.connections.writing() as connection:
            state = self.tables.state(connection, lock=True)
            listed = [*findings, *(Listed(name, "", "") for name in people)]
            listed += self._entries_of(connection, [*map(storable, paths)])
            # Others are not concerned, however many there are.
            names = [storable(normal_name(each.person)) for each in listed]
            concerned = Gallery.from_enrollments(
                state.model, state.model_sha256, self._read(connection, state, names)
            )
            gone_people, gone_images, kept = listed_entries(concerned, listed)
            gone = concerned.rows_of(people=gone_people, images=gone_images)
            if gone.sum() == state.images:
                raise DataError(NOBODY_LEFT)
            removed, left = concerned.enrollments.take(gone), concerned.enrollments.take(~gone)
            self._delete_images(connection, removed)
            without = sorted(set(removed.person.tolist()) - set(left.person.tolist()))
            delete = "DELETE FROM {schema}.people WHERE name = ANY(%s)"
            connection.execute(self.tables.statement(delete), (without,))
            changed = left.take(np.isin(left.person, removed.person))
            self._set_templates(connection, Gallery(state.model, state.model_sha256, changed))
            counts = state.people - len(without), state.images - len(removed)
            self._count(connection, *counts, changes=len(removed))
            # Scores of strangers are gone with what was removed.
            connection.execute(self.tables.statement("UPDATE {schema}.about SET sample = sample + 1"))
        return Removed(tuple(sorted(removed.entries)), tuple(without), tuple(kept), *counts)

    def check_model(self, scorer: Scorer) -> None:
        state = self._state()
        check_model(scorer, state.model, state.model_sha256)

    def threshold(self, fpir: float) -> SearchThreshold:
        """The minimum cosine of a match; see ``PostgresStrangers`` for how it follows changes of the gallery."""
        return self._strangers.threshold(fpir)

    def match(self, faces: Sequence[ScoredFace], *, fpir: float = 0.01, k: int = 1) -> list[Match]:
        threshold = self.threshold(fpir).cosine
        with self.connections.reading() as connection:
            state = self.tables.state(connection)

            def nearest(probes: NDArray[np.float32]) -> list[list[tuple[str, float]]]:
                return self._nearest(connection, state, probes, k)

            return match_faces(faces, state.size, threshold, nearest)

    def nearest_people(
        self, probes: NDArray[np.float32], k: int, *, ef_search: int | None = None
    ) -> list[list[tuple[str, float]]]:
        """The k most similar people to each probe ``(n, d)``, with their cosines, best first.

        Args:
            ef_search: how many candidates a search in the index, which is not exact, keeps, 1 to 1,000; None for 400,
                or a thousandth of the people if that is more.
        """
        with self.connections.reading() as connection:
            return self._nearest(connection, self.tables.state(connection), probes, k, ef_search)

    def _state(self) -> GalleryState:
        with self.connections.reading() as connection:
            return self.tables.state(connection)

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

    def _merge(self, new: Gallery) -> Enrolled:
        images = new.enrollments
        images = replace(images, path=np.array([*map(storable, images.path.tolist())], dtype=str))
        with self.connections.writing() as connection:
            state = self.tables.state(connection, lock=True)
            known = Gallery(
                state.model, state.model_sha256, self._read(connection, state, images.person.tolist())
            )
            merged = known.merged(Gallery(new.model, new.model_sha256, images))
            again = self._delete_images(connection, images)
            added = sorted(set(images.person.tolist()) - set(known.people.tolist()))
            first = self._next_id(connection, "people")
            templates = merged.templates[np.isin(merged.people, added)]
            self._copy(connection, "people", "id, name, template", _numbered(added, templates, first))
            self._set_templates(connection, merged, skip=added)
            ids = self._person_ids(connection, merged.people.tolist())
            persons = np.array([ids[name] for name in images.person.tolist()])
            self._copy_images(
                connection, "enrollments", images, persons, self._next_id(connection, "enrollments")
            )
            counts = state.people + len(added), state.images + len(images) - again
            self._count(connection, *counts, changes=len(images) + again)
            if not state.indexed and counts[0] >= INDEX_FROM:
                self.tables.make_index(connection, state.size)
            return self._enrolled(connection, new)

    def _enrolled(self, connection: Connection, new: Gallery) -> Enrolled:
        state = self.tables.state(connection)
        names = [image.person for image in new.rejected]
        text = "SELECT reasons, count(*) FROM {schema}.enrollments WHERE reasons <> '' GROUP BY reasons"
        reasons: dict[str, int] = dict(connection.execute(self.tables.statement(text)).fetchall())
        known = self._person_ids(connection, names)
        return Enrolled(
            state.people,
            state.images,
            reason_counts(reasons),
            new.rejected,
            people_without_image(new.rejected, known),
        )

    def _read(
        self, connection: Connection, state: GalleryState, names: Sequence[str] | None = None
    ) -> Enrollments:
        """The images of people, or all, in the order in which they were enrolled."""
        text: LiteralString = (
            "SELECT {what} FROM {schema}.enrollments JOIN {schema}.people ON person = people.id {some}"
        )
        some = "" if names is None else "WHERE name = ANY(%s)"
        values = None if names is None else (list(set(names)),)
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
        return Enrollments(np.array(person, dtype=str), **columns)

    def _copy_images(
        self, connection: Connection, table: str, images: Enrollments, persons: NDArray[np.int64], first: int
    ) -> None:
        rows = zip(
            range(first, first + len(images)),
            persons.tolist(),
            map(storable, images.path.tolist()),
            images.embedding,
            map(_number_or_null, images.quality.tolist()),
            map(_number_or_null, images.percentile.tolist()),
            images.reasons.tolist(),
            images.weight.tolist(),
            strict=True,
        )
        self._copy(connection, table, f"id, person, {COLUMNS}, weight", rows)

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

    def _set_templates(self, connection: Connection, gallery: Gallery, skip: Iterable[str] = ()) -> None:
        """Write the templates of people whose images have changed, all of which ``gallery`` has."""
        text = "UPDATE {schema}.people SET template = %s WHERE name = %s"
        others = set(skip)
        pairs = zip(gallery.templates if len(gallery.people) else (), gallery.people.tolist(), strict=True)
        rows = [(template, name) for template, name in pairs if name not in others]
        with connection.cursor() as cursor:
            cursor.executemany(self.tables.statement(text), rows)

    def _delete_images(self, connection: Connection, images: Enrollments) -> int:
        """Delete the images of the same people and paths, and return their number."""
        text = (
            "DELETE FROM {schema}.enrollments USING {schema}.people, "
            "unnest(%s::text[], %s::text[]) AS gone(name, path) "
            "WHERE person = people.id AND people.name = gone.name AND enrollments.path = gone.path"
        )
        names, paths = images.person.tolist(), images.path.tolist()
        return connection.execute(self.tables.statement(text), (names, paths)).rowcount

    def _entries_of(self, connection: Connection, paths: Sequence[str]) -> list[Listed]:
        """Enrolled images by their paths."""
        text = (
            "SELECT name, path FROM {schema}.enrollments JOIN {schema}.people ON person = people.id "
            "WHERE path = ANY(%s)"
        )
        entries = connection.execute(self.tables.statement(text), (list(paths),)).fetchall()
        enrolled = {path for _, path in entries}
        unknown = [Listed("", path, "") for path in paths if path not in enrolled]
        return [Listed(name, path, "") for name, path in entries] + unknown

    def _person_ids(self, connection: Connection, names: Sequence[str]) -> dict[str, int]:
        text = "SELECT name, id FROM {schema}.people WHERE name = ANY(%s)"
        return dict(connection.execute(self.tables.statement(text), (list(set(names)),)).fetchall())

    def _next_id(self, connection: Connection, table: str) -> int:
        text = "SELECT coalesce(max(id), 0) + 1 FROM {schema}.{table}"
        row = connection.execute(self.tables.statement(text, table=table)).fetchone()
        assert row is not None
        return int(row[0])

    def _count(self, connection: Connection, people: int, images: int, *, changes: int) -> None:
        text = "UPDATE {schema}.about SET people = %s, images = %s, changes = changes + %s"
        connection.execute(self.tables.statement(text), (people, images, changes))


def _numbered(
    names: Sequence[str], templates: NDArray[np.float32], first: int = 1
) -> Iterator[tuple[int, str, NDArray[np.float32]]]:
    return zip(range(first, first + len(names)), names, templates, strict=True)


def _number_or_null(value: float) -> float | None:
    return None if np.isnan(value) else value
