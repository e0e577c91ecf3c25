"""The threshold of a search in a database, from a sample of searches for strangers that the database keeps.

As in a file's gallery, images are compared with the templates of all other people, but the best scores are stored: a
search does not read the gallery. A score is gone with its image, with its person, and with the person whom it found.
Once more than a share ``STALE`` of the gallery's images was added or removed, the next threshold takes a new sample.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeAlias

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
from facerts.galleries.postgres_connections import GalleryConnection, PostgresConnections
from facerts.galleries.postgres_tables import CANDIDATES, GalleryState, check_tables, read_state, use_index
from facerts.galleries.unmated import SearchThreshold, search_threshold

STALE = 0.01
# Images that stand for all where there is an index. Strangers are searched for as others are, so that the share of them
# that is found is right whomever the index misses; that takes longer than in memory.
MAX_INDEXED = 2000
# The share of the scores that must be left, and what none of them reaches.
COMPLETE, IMPOSSIBLE = 0.9, 1.01
CHOSEN = """
SELECT id, person, name FROM (
    SELECT enrollments.id, person, name, row_number() OVER (ORDER BY person, enrollments.id) - 1 AS row
    FROM {schema}.enrollments JOIN {schema}.people ON person = people.id
) AS numbered WHERE row IN (SELECT unnest(%s::bigint[])) ORDER BY id
"""
IMAGES = "SELECT person, embedding FROM {schema}.enrollments WHERE id = ANY(%s) ORDER BY id"
TEMPLATES = "SELECT id, template FROM {schema}.people ORDER BY id"
INDEXED = """
SELECT enrollments.id, own.name, best.id, best.cosine
FROM {schema}.enrollments JOIN {schema}.people AS own ON person = own.id, LATERAL (
    SELECT id, -(template <#> embedding) AS cosine FROM (
        SELECT id, template FROM {schema}.people
        ORDER BY template::halfvec({size}) <#> embedding::halfvec({size}) LIMIT {candidates}
    ) AS near WHERE near.id <> person ORDER BY cosine DESC, id LIMIT 1
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


# An image, the name of its person, the most similar other person, and the cosine to that person's template.
Stranger: TypeAlias = tuple[int, str, int, float]


class StrangerSample(NamedTuple):
    """Scores of searches for strangers.

    Attributes:
        sample: the number of the sample in the database.
        changes: the changes of the gallery before it was taken.
        threshold: the threshold at a rate.
    """

    sample: int
    changes: int
    threshold: Callable[[float], SearchThreshold]


class PostgresStrangers:
    """Thresholds of a gallery; threads may share it."""

    def __init__(self, connections: PostgresConnections) -> None:
        self._connections = connections
        self._kept: StrangerSample | None = None
        # Threads that need a new sample wait for one of them to take it.
        self._lock = threading.Lock()

    def threshold(self, fpir: float) -> SearchThreshold:
        """The minimum cosine of a match at a false positive identification rate."""
        with self._lock:
            return self._fitting_sample().threshold(fpir)

    def _fitting_sample(self) -> StrangerSample:
        with self._connections.transaction() as connection:
            state, kept = read_state(connection), self._kept
            if state.people < 2:
                raise DataError(TOO_FEW)
            if kept is None or kept.sample != state.sample or _stale(kept.changes, state):
                kept = self._kept = _stored(connection, state)
            if kept is not None:
                return kept
            strangers = _draw(connection, state)
        scores = [(name, cosine) for _, name, _, cosine in strangers]
        drawn = _sample(state.sample, state.changes, state.people, scores)
        try:
            self._store(state, strangers)
        except WriteError:
            # A role that may only read has to do with the memory of this process.
            self._kept = drawn
        return drawn

    def _store(self, state: GalleryState, strangers: list[Stranger]) -> None:
        """Replace the sample in the database, unless another process has."""
        about = (
            "UPDATE {schema}.about SET sample = sample + 1, sample_changes = %s, sample_people = %s "
            "WHERE sample = %s AND model_sha256 = %s"
        )
        images, _, nearest, cosines = map(list, zip(*strangers, strict=True))
        with self._connections.transaction(read_only=False) as connection:
            read_state(connection, lock=True)
            values = (state.changes, state.people, state.sample, state.model_sha256)
            if connection.run(about, values).rowcount:
                connection.run("DELETE FROM {schema}.strangers")
                connection.run(STORE, (images, nearest, cosines))


def _stored(connection: GalleryConnection, state: GalleryState) -> StrangerSample | None:
    """The sample in the database; None if there is none that fits."""
    changes, people = state.sample_changes, state.sample_people
    if changes is None or people is None or _stale(changes, state):
        return None
    scores = connection.run(STORED).fetchall()
    # Where strangers found a person who was removed, their scores are gone.
    if len(scores) < COMPLETE * len(_rows(state)) or not all(abs(score) < IMPOSSIBLE for _, score in scores):
        return None
    return _sample(state.sample, changes, people, scores)


def _draw(connection: GalleryConnection, state: GalleryState) -> list[Stranger]:
    check_tables(connection, state)
    chosen = connection.run(CHOSEN, (_rows(state).tolist(),)).fetchall()
    ids = [image for image, _, _ in chosen]
    if state.indexed:
        use_index(connection, state.people)
        return connection.run(INDEXED, (ids,), binary=True, size=state.size, candidates=CANDIDATES).fetchall()
    people, templates = _vectors(connection, TEMPLATES)
    _, embedding = _vectors(connection, IMAGES, (ids,))
    own = np.searchsorted(people, [person for _, person, _ in chosen])
    rows, scores = nearest_other_rows(templates, embedding, own)
    return [
        (image, name, nearest, cosine)
        for (image, _, name), nearest, cosine in zip(
            chosen, people[rows].tolist(), scores.tolist(), strict=True
        )
    ]


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
    """Rows of the images of a sample."""
    return sampled_rows(state.images, MAX_INDEXED if state.indexed else MAX_SEARCHES)


def _stale(changes: int, state: GalleryState) -> bool:
    return state.changes - changes > STALE * state.images
