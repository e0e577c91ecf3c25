"""A gallery in PostgreSQL with pgvector: any number of people, and of processes that search and change it.

Writers of a gallery take turns: each first locks the one row of the table ``about``. What a writer does, templates
included, is one transaction, so readers see all of it or nothing, and a killed writer leaves nothing. Images are scored
before, so turns are short.

As in a file's gallery, the threshold of a search follows from images that are compared with the templates of all other
people, but the best scores of such a sample are stored: a search does not read the gallery. A score is gone with its
image, with its person, and with the person whom it found. Once more than a share ``STALE`` of the gallery's images was
added or removed, the next threshold takes a new sample.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from psycopg import Rollback
from typing_extensions import LiteralString

from facerts.errors import DataError, Error, WriteError
from facerts.galleries.enrollments import (
    KEPT_THRESHOLDS,
    MAX_SEARCHES,
    TOO_FEW,
    Enrollments,
    check_unit_length,
    nearest_other_rows,
    sampled_rows,
)
from facerts.galleries.postgres_connections import GalleryConnection, PostgresConnections, parse_address
from facerts.galleries.postgres_tables import (
    CANDIDATES,
    FORMAT,
    INDEX_FROM,
    GalleryState,
    check_tables,
    copy_images,
    copy_rows,
    create_tables,
    make_index,
    put_in_place,
    read_images,
    read_state,
    table_exists,
    use_index,
)
from facerts.galleries.store import NOBODY_LEFT, Edit, GallerySummary, Store
from facerts.galleries.unmated import MatchThresholds, SearchThreshold, search_threshold
from facerts.scoring.prepare import storable

STALE = 0.01
# Images that stand for all where there is an index. Strangers are searched for as others are, so that the share of them
# that is found is right whomever the index misses; that takes longer than in memory.
MAX_INDEXED = 2000
# The share of the scores that must be left, and what none of them reaches.
COMPLETE, IMPOSSIBLE = 0.9, 1.01
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
PEOPLE = {"name": "text", "template": "vector"}
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
CHOSEN = """
SELECT id, person, name FROM (
    SELECT enrollments.id, person, name, row_number() OVER (ORDER BY person, enrollments.id) - 1 AS row
    FROM {schema}.enrollments JOIN {schema}.people ON person = people.id
) AS numbered WHERE row IN (SELECT unnest(%s::bigint[])) ORDER BY id
"""
IMAGES = "SELECT person, embedding FROM {schema}.enrollments WHERE id = ANY(%s) ORDER BY id"
TEMPLATES = "SELECT id, template FROM {schema}.people ORDER BY id"
INDEXED_STRANGERS = """
SELECT enrollments.id, own.name, best.id, best.cosine
FROM {schema}.enrollments JOIN {schema}.people AS own ON person = own.id, LATERAL (
    SELECT id, -(template <#> embedding) AS cosine FROM (
        SELECT id, template FROM {schema}.people
        ORDER BY template::halfvec({size}) <#> embedding::halfvec({size}) LIMIT {candidates}
    ) AS near WHERE near.id <> person ORDER BY cosine DESC, id LIMIT 1
) AS best WHERE enrollments.id = ANY(%s) ORDER BY enrollments.id
"""
STORE_STRANGERS = """
INSERT INTO {schema}.strangers (enrollment, nearest, cosine)
SELECT enrollments.id, people.id, new.cosine FROM unnest(%s::bigint[], %s::bigint[], %s::real[])
AS new(enrollment, nearest, cosine)
JOIN {schema}.enrollments ON enrollments.id = new.enrollment JOIN {schema}.people ON people.id = new.nearest
"""
STORED_STRANGERS = """
SELECT name, cosine FROM {schema}.strangers
JOIN {schema}.enrollments ON enrollments.id = enrollment JOIN {schema}.people ON people.id = person
ORDER BY name COLLATE "C", enrollments.id
"""


class StrangerSample(NamedTuple):
    """A sample in the database: its number, the changes of the gallery before, and the threshold at a rate."""

    number: int
    changes: int
    threshold: Callable[..., SearchThreshold]


class PostgresStore(Store):
    """A database, in which each call sees what others have written; see ``parse_address`` for how it is named."""

    def __init__(self, address: str | Path) -> None:
        parsed = parse_address(address)
        self.name = parsed.shown
        self.connections = PostgresConnections(parsed)
        self._strangers: StrangerSample | None = None
        # Threads that need a new sample wait for one of them to take it.
        self._lock = threading.Lock()

    def close(self) -> None:
        self.connections.close()

    def exists(self) -> bool:
        with self.connections.transaction() as connection:
            return table_exists(connection, "about")

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
            return read_images(connection, state)

    @contextmanager
    def reserved(self, *, replace: bool) -> Iterator[None]:
        """See whether tables can be made; writers take turns only when their images have been scored."""
        if replace:
            with self.connections.transaction(read_only=False) as connection:
                create_tables(connection, size=1)
                raise Rollback
        yield

    def replace(self, images: Enrollments) -> None:
        size, names = images.size, images.people.tolist()
        with self.connections.transaction(read_only=False) as connection:
            create_tables(connection, size)
            copy_rows(connection, "new_people", PEOPLE, zip(names, images.templates, strict=True))
            # Rows of new tables are numbered from 1.
            copy_images(connection, "new_enrollments", images, (images.row + 1).tolist())
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
            before = read_images(connection, state, CONCERNED, ([*map(storable, people)], [*paths]))
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
            copy_rows(connection, "people", PEOPLE, added)
            touched = left & there & {*removed.person.tolist(), *new.person.tolist()}
            changed = [{"name": name, "template": templates[name]} for name in sorted(touched)]
            connection.cursor().executemany(connection.statement(TEMPLATE), changed)
            text = "SELECT name, id FROM {schema}.people WHERE name = ANY(%s)"
            ids = dict(connection.run(text, (new.people.tolist(),)).fetchall())
            copy_images(connection, "enrollments", new, [ids[name] for name in new.person.tolist()])
            count = state.people + len(left) - len(there)
            # Scores of strangers are gone with what was removed, so other processes read them again.
            connection.run(
                "UPDATE {schema}.about SET people = %s, images = %s, changes = changes + %s, sample = sample + %s",
                (count, images, len(removed) + len(new), int(not len(new))),
            )
            if not state.indexed and count >= INDEX_FROM:
                make_index(connection, state.size)
            return before, after, read_state(connection)

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

    def threshold(self, fpir: float, matching: MatchThresholds) -> SearchThreshold:
        with self._lock:
            return self._fitting_strangers().threshold(fpir, matching)

    def _fitting_strangers(self) -> StrangerSample:
        with self.connections.transaction() as connection:
            state, kept = read_state(connection), self._strangers
            if state.people < 2:
                raise DataError(TOO_FEW)
            if kept is None or kept.number != state.sample or _stale(kept.changes, state):
                kept = self._strangers = _stored(connection, state)
            if kept is not None:
                return kept
            strangers = _draw(connection, state)
        scores = [(name, cosine) for _, name, _, cosine in strangers]
        drawn = _sample(state.sample, state.changes, state.people, scores)
        try:
            self._store_strangers(state, strangers)
        except WriteError:
            # A role that may only read has to do with the memory of this process.
            self._strangers = drawn
        return drawn

    def _store_strangers(self, state: GalleryState, strangers: list[tuple[Any, ...]]) -> None:
        """Replace the sample in the database, unless another process has."""
        about = (
            "UPDATE {schema}.about SET sample = sample + 1, sample_changes = %s, sample_people = %s "
            "WHERE sample = %s AND model_sha256 = %s"
        )
        images, _, nearest, cosines = map(list, zip(*strangers, strict=True))
        with self.connections.transaction(read_only=False) as connection:
            read_state(connection, lock=True)
            values = (state.changes, state.people, state.sample, state.model_sha256)
            if connection.run(about, values).rowcount:
                connection.run("DELETE FROM {schema}.strangers")
                connection.run(STORE_STRANGERS, (images, nearest, cosines))


def _stored(connection: GalleryConnection, state: GalleryState) -> StrangerSample | None:
    """The sample in the database; None if there is none that fits."""
    changes, people = state.sample_changes, state.sample_people
    if changes is None or people is None or _stale(changes, state):
        return None
    scores = connection.run(STORED_STRANGERS).fetchall()
    # Where strangers found a person who was removed, their scores are gone.
    if len(scores) < COMPLETE * len(_rows(state)) or not all(abs(score) < IMPOSSIBLE for _, score in scores):
        return None
    return _sample(state.sample, changes, people, scores)


def _draw(connection: GalleryConnection, state: GalleryState) -> list[tuple[Any, ...]]:
    check_tables(connection, state)
    chosen = connection.run(CHOSEN, (_rows(state).tolist(),)).fetchall()
    ids, persons, names = zip(*chosen, strict=True)
    if state.indexed:
        use_index(connection, state.people)
        sizes = {"size": state.size, "candidates": CANDIDATES}
        return connection.run(INDEXED_STRANGERS, ([*ids],), binary=True, **sizes).fetchall()
    people, templates = _vectors(connection, TEMPLATES)
    _, embedding = _vectors(connection, IMAGES, ([*ids],))
    rows, scores = nearest_other_rows(templates, embedding, np.searchsorted(people, persons))
    return [*zip(ids, names, people[rows].tolist(), scores.tolist(), strict=True)]


def _vectors(
    connection: GalleryConnection, text: LiteralString, values: tuple[list[int]] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    rows = connection.run(text, values, binary=True).fetchall()
    vectors = np.stack([vector.to_numpy() for _, vector in rows])
    try:
        check_unit_length(vectors)
    except Error as error:
        raise connection.contradiction(error) from error
    return np.array([row for row, _ in rows]), vectors


def _sample(sample: int, changes: int, people: int, scores: Iterable[tuple[Any, ...]]) -> StrangerSample:
    """The sample of these names of people and scores of their images."""
    names, cosines = zip(*scores, strict=True)
    person = np.unique(np.array(names), return_inverse=True)[1]
    highest = np.array(cosines, dtype=np.float32)
    return StrangerSample(
        sample, changes, lru_cache(KEPT_THRESHOLDS)(partial(search_threshold, highest, person, people))
    )


def _rows(state: GalleryState) -> NDArray[np.int64]:
    return sampled_rows(state.images, MAX_INDEXED if state.indexed else MAX_SEARCHES)


def _stale(changes: int, state: GalleryState) -> bool:
    return state.changes - changes > STALE * state.images
