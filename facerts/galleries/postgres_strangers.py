"""The threshold of a search in a database, from a sample of searches for strangers that the database keeps.

As in a file's gallery, images are compared with the templates of all other people, but the best scores are stored: a
search does not read the gallery. A score is gone with its image, with its person, and with the person whom it found.
Once more than a share ``STALE`` of the gallery's images was added or removed, the next threshold takes a new sample.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray
from typing_extensions import LiteralString

from facerts.errors import DataError, Error, WriteError
from facerts.galleries.enrollments import (
    KEPT_THRESHOLDS,
    MAX_SEARCHES,
    TOO_FEW,
    check_unit_length,
    nearest_other_rows,
    sampled_rows,
)
from facerts.galleries.postgres_connections import (
    CANDIDATES,
    Connection,
    PostgresConnections,
    default_ef_search,
    set_index_search,
)
from facerts.galleries.postgres_tables import GalleryState, PostgresTables
from facerts.galleries.unmated import SearchThreshold, search_threshold

STALE = 0.01
# Images that stand for all where there is an index. Strangers are searched for as others are, so that the share of them
# that is found is right whomever the index misses; that takes longer than in memory.
MAX_INDEXED = 2000
# The share of the scores that must be left, and what none of them reaches.
COMPLETE, IMPOSSIBLE = 0.9, 1.01
IDS = "SELECT id FROM {schema}.enrollments ORDER BY person, id"
PEOPLE = """
SELECT enrollments.id, person, name FROM {schema}.enrollments JOIN {schema}.people ON person = people.id
WHERE enrollments.id = ANY(%s) ORDER BY enrollments.id
"""
IMAGES = "SELECT person, embedding FROM {schema}.enrollments WHERE id = ANY(%s) ORDER BY id"
TEMPLATES = "SELECT id, template FROM {schema}.people ORDER BY id"
INDEXED = """
SELECT enrollments.id, best.id, best.cosine FROM {schema}.enrollments, LATERAL (
    SELECT id, -(template <#> embedding) AS cosine FROM (
        SELECT id, template FROM {schema}.people
        ORDER BY template::halfvec({size}) <#> embedding::halfvec({size}) LIMIT {candidates}
    ) AS near WHERE near.id <> enrollments.person ORDER BY cosine DESC, id LIMIT 1
) AS best WHERE enrollments.id = ANY(%s) ORDER BY enrollments.id
"""
STORE = """
INSERT INTO {schema}.strangers (enrollment, nearest, cosine)
SELECT enrollments.id, people.id, new.cosine FROM unnest(%s::bigint[], %s::bigint[], %s::real[])
AS new(enrollment, nearest, cosine)
JOIN {schema}.enrollments ON enrollments.id = new.enrollment JOIN {schema}.people ON people.id = new.nearest
"""
STORED = """
SELECT name, cosine FROM {schema}.strangers
JOIN {schema}.enrollments ON enrollments.id = enrollment JOIN {schema}.people ON people.id = person
ORDER BY name COLLATE "C", enrollments.id
"""


@dataclass(frozen=True)
class StrangerSample:
    """Scores of searches for strangers.

    Attributes:
        sample: the number of the sample in the database.
        changes: the changes of the gallery before it was taken.
        threshold: the threshold at a rate.
    """

    sample: int
    changes: int
    threshold: Callable[[float], SearchThreshold]

    def fits(self, state: GalleryState) -> bool:
        """Whether the gallery has not changed too much since."""
        return self.sample == state.sample and not _stale(self.changes, state)


class PostgresStrangers:
    """Thresholds of a gallery; threads may share it."""

    def __init__(self, connections: PostgresConnections, tables: PostgresTables) -> None:
        self._connections = connections
        self._tables = tables
        self._kept: StrangerSample | None = None
        # Threads that need a new sample wait for one of them to take it.
        self._lock = threading.Lock()

    def threshold(self, fpir: float) -> SearchThreshold:
        """The minimum cosine of a match at a false positive identification rate."""
        with self._lock:
            return self._fitting_sample().threshold(fpir)

    def _fitting_sample(self) -> StrangerSample:
        with self._connections.reading() as connection:
            state = self._tables.state(connection)
            if state.people < 2:
                raise DataError(TOO_FEW)
            if self._kept is None or not self._kept.fits(state):
                self._kept = self._stored(connection, state)
            if self._kept is not None:
                return self._kept
            enrollments, names, nearest, scores = self._draw(connection, state)
        drawn = _sample(state.sample, state.changes, state.people, names, scores)
        try:
            self._store(state, enrollments, nearest, scores)
        except WriteError:
            # A role that may only read has to do with the memory of this process.
            self._kept = drawn
        return drawn

    def _stored(self, connection: Connection, state: GalleryState) -> StrangerSample | None:
        """The sample in the database; None if there is none that fits."""
        changes, people = state.sample_changes, state.sample_people
        if changes is None or people is None or _stale(changes, state):
            return None
        rows = connection.execute(self._tables.statement(STORED)).fetchall()
        # Where strangers found a person who was removed, their scores are gone.
        if len(rows) < COMPLETE * len(_rows(state)) or not all(abs(score) < IMPOSSIBLE for _, score in rows):
            return None
        names, scores = zip(*rows, strict=True)
        return _sample(state.sample, changes, people, names, np.array(scores, dtype=np.float32))

    def _draw(
        self, connection: Connection, state: GalleryState
    ) -> tuple[list[int], list[str], list[int], NDArray[np.float32]]:
        """Images, their people, and the most similar other people with their cosines."""
        self._tables.check(connection, state)
        everything = connection.execute(self._tables.statement(IDS)).fetchall()
        ids = [everything[row][0] for row in _rows(state)]
        chosen = connection.execute(self._tables.statement(PEOPLE), (ids,)).fetchall()
        if state.indexed:
            set_index_search(connection, default_ef_search(state.people))
            statement = self._tables.statement(INDEXED, size=state.size, candidates=CANDIDATES)
            found = {
                image: (person, cosine)
                for image, person, cosine in connection.execute(statement, (ids,), binary=True)
            }
            chosen = [row for row in chosen if row[0] in found]
            nearest = [found[image][0] for image, _, _ in chosen]
            scores = np.array([found[image][1] for image, _, _ in chosen], dtype=np.float32)
        else:
            people, templates = self._vectors(connection, TEMPLATES)
            _, embedding = self._vectors(connection, IMAGES, ids)
            own = np.searchsorted(people, [person for _, person, _ in chosen])
            rows, scores = nearest_other_rows(templates, embedding, own)
            nearest = people[rows].tolist()
        return [row[0] for row in chosen], [row[2] for row in chosen], nearest, scores

    def _store(
        self, state: GalleryState, enrollments: list[int], nearest: list[int], scores: NDArray[np.float32]
    ) -> None:
        """Replace the sample in the database, unless another process has."""
        about = (
            "UPDATE {schema}.about SET sample = sample + 1, sample_changes = %s, sample_people = %s "
            "WHERE sample = %s AND model_sha256 = %s"
        )
        with self._connections.writing() as connection:
            self._tables.state(connection, lock=True)
            values = (state.changes, state.people, state.sample, state.model_sha256)
            if connection.execute(self._tables.statement(about), values).rowcount:
                connection.execute(self._tables.statement("DELETE FROM {schema}.strangers"))
                connection.execute(self._tables.statement(STORE), (enrollments, nearest, scores.tolist()))

    def _vectors(
        self, connection: Connection, text: LiteralString, *values: object
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        rows = connection.execute(self._tables.statement(text), values or None, binary=True).fetchall()
        vectors = np.stack([row[1].to_numpy() for row in rows])
        try:
            check_unit_length(vectors)
        except Error as error:
            raise self._tables.broken(error) from error
        return np.array([row[0] for row in rows]), vectors


def _sample(
    sample: int, changes: int, people: int, names: Sequence[str], scores: NDArray[np.float32]
) -> StrangerSample:
    person = np.unique(np.array(names), return_inverse=True)[1]
    threshold = lru_cache(KEPT_THRESHOLDS)(partial(search_threshold, scores, person, people))
    return StrangerSample(sample, changes, threshold)


def _rows(state: GalleryState) -> NDArray[np.int64]:
    """Rows of the images of a sample."""
    return sampled_rows(state.images, MAX_INDEXED if state.indexed else MAX_SEARCHES)


def _stale(changes: int, state: GalleryState) -> bool:
    return state.changes - changes > STALE * state.images
