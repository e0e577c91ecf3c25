"""The tables of a gallery in PostgreSQL, in a schema of their own, and their rows: docs/galleries-postgres.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from psycopg import sql
from psycopg.rows import dict_row
from typing_extensions import LiteralString

from facerts.errors import DataError, Error
from facerts.galleries.enrollments import IMAGE_ARRAYS, Enrollments, check_faces
from facerts.galleries.person_name import person_name
from facerts.galleries.postgres_connections import GalleryConnection
from facerts.galleries.store import GallerySummary
from facerts.io.npz import typed_arrays

FORMAT = "facerts.postgres/1"
# Vectors of up to this size fit into a page, and are compared much faster where they lie in the rows themselves.
MAX_INLINE = 1900
# Chosen with tools/bench_scale.py gallery: below, all templates are compared within milliseconds, and exactly.
INDEX_FROM = 20_000
# An index is made in memory if it fits into that.
INDEX_MEMORY = "1GB"
# How far a search in the index looks: a thousandth of the people, within these; chosen likewise.
MIN_EF_SEARCH, MAX_EF_SEARCH = 400, 1000
# What the index finds, of which the templates themselves choose the best; of strangers as of others.
CANDIDATES = 10

# The columns of each table, as the catalog of the database describes them.
TABLES = {
    "about": "format text NOT NULL, model text NOT NULL, model_sha256 text NOT NULL, size integer NOT NULL, "
    "people bigint NOT NULL, images bigint NOT NULL, indexed boolean NOT NULL, changes bigint NOT NULL, "
    "sample bigint NOT NULL, sample_changes bigint, sample_people bigint",
    "people": "id bigint NOT NULL, name text NOT NULL, template vector({size}) NOT NULL",
    "enrollments": "id bigint NOT NULL, person bigint NOT NULL, path text NOT NULL, embedding vector({size}) NOT NULL, "
    "quality real, percentile real, reasons text NOT NULL",
    "strangers": "enrollment bigint NOT NULL, nearest bigint NOT NULL, cosine real NOT NULL",
}
# Rows that a server sends at a time.
BLOCK = 10_000
# The columns of an image, in the order of ``Enrollments``.
IMAGE_COLUMNS = {
    "path": "text",
    "embedding": "vector",
    "quality": "float4",
    "percentile": "float4",
    "reasons": "text",
}
THERE = """
SELECT relname, concat_ws(' ', attname, format_type(atttypid, atttypmod), CASE WHEN attnotnull THEN 'NOT NULL' END)
FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE nspname = %s AND relname = ANY(%s) AND attnum > 0 AND NOT attisdropped
"""
COUNTS = """
SELECT (SELECT count(*) FROM {schema}.people), count(DISTINCT people.id), count(people.id), count(*)
FROM {schema}.enrollments LEFT JOIN {schema}.people ON person = people.id
"""
DEFAULTS = """
ALTER TABLE {schema}.new_people ALTER id ADD GENERATED ALWAYS AS IDENTITY;
ALTER TABLE {schema}.new_enrollments ALTER id ADD GENERATED ALWAYS AS IDENTITY;
ALTER TABLE {schema}.new_people ALTER template SET STORAGE {storage};
"""
# Made when the tables have been filled. Names and paths may be longer than an ordinary index takes; a hash takes all.
CONSTRAINTS = """
ALTER TABLE {schema}.new_people ADD PRIMARY KEY (id);
ALTER TABLE {schema}.new_enrollments ADD PRIMARY KEY (id);
ALTER TABLE {schema}.new_strangers ADD PRIMARY KEY (enrollment);
ALTER TABLE {schema}.new_people ADD EXCLUDE USING hash (name WITH =);
CREATE INDEX ON {schema}.new_enrollments (person);
CREATE INDEX ON {schema}.new_enrollments USING hash (path);
CREATE INDEX ON {schema}.new_strangers (nearest);
ALTER TABLE {schema}.new_enrollments ADD FOREIGN KEY (person) REFERENCES {schema}.new_people ON DELETE CASCADE;
ALTER TABLE {schema}.new_strangers ADD FOREIGN KEY (enrollment) REFERENCES {schema}.new_enrollments ON DELETE CASCADE;
ALTER TABLE {schema}.new_strangers ADD FOREIGN KEY (nearest) REFERENCES {schema}.new_people ON DELETE CASCADE;
"""
# Numbers of 16 bits halve the index; what it finds is compared again with the templates themselves. With the
# defaults of pgvector, 16 and 64, the index misses several times as many people at the same ef_search.
TEMPLATE_INDEX = """
CREATE INDEX ON {schema}.{prefix}people USING hnsw ((template::halfvec({size})) halfvec_ip_ops)
WITH (m = 24, ef_construction = 128);
UPDATE {schema}.{prefix}about SET indexed = true;
"""


@dataclass(frozen=True)
class GalleryState(GallerySummary):
    """What a gallery says of itself.

    Attributes:
        indexed: whether an index finds templates.
        changes: number of images that were ever added or removed.
        sample: counts the changes of the sample of strangers, from a number that another build does not have.
        sample_changes: ``changes`` when strangers were sampled; None if they were not.
        sample_people: ``people`` then.
    """

    indexed: bool
    changes: int
    sample: int
    sample_changes: int | None
    sample_people: int | None


def read_state(connection: GalleryConnection, *, lock: bool = False) -> GalleryState:
    """What the gallery says of itself; with ``lock``, no other transaction changes it until this one ends."""
    about = _about(connection, lock=lock)
    # Once for each build, as it takes as long as a search.
    build = (about["tableoid"], about.get("size"), *about)
    if build != connection.checked:
        _check_columns(connection, about.get("size"))
        connection.checked = build
    state = GalleryState(**{each.name: about[each.name] for each in fields(GalleryState)})
    if not 1 <= state.people <= state.images:
        raise connection.contradiction(f"it counts {state.people:,} people and {state.images:,} images")
    return state


def check_tables(connection: GalleryConnection, state: GalleryState) -> None:
    """Check that the gallery has the columns, people and images that it says, which takes as long as all ids."""
    _check_columns(connection, state.size)
    counted = state.people, state.people, state.images, state.images
    if connection.run(COUNTS).fetchone() != counted:
        raise connection.contradiction(
            f"it counts {state.people:,} people and {state.images:,} images, which is not what it has"
        )


def _check_columns(connection: GalleryConnection, size: object) -> None:
    """Check that no column is missing, of another type, or without a value where it needs one."""
    there = connection.execute(THERE, (connection.address.gallery, [*TABLES])).fetchall()
    for table, columns in TABLES.items():
        for column in columns.format(size=size).split(", "):
            if (table, column) not in there:
                raise connection.contradiction(f"its table {table} has no column {column}")


def _about(connection: GalleryConnection, *, lock: bool = False) -> Mapping[str, Any]:
    # A transaction sees the database as it was at its first query, which must not be before the end of a build that it
    # has waited for.
    connection.run("LOCK TABLE {schema}.about IN {mode} MODE", mode="ROW SHARE" if lock else "ACCESS SHARE")
    text: LiteralString = "SELECT tableoid, * FROM {schema}.about LIMIT 2 {lock}"
    with connection.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(connection.statement(text, lock="FOR UPDATE" if lock else "")).fetchall()
    if len(rows) != 1 or rows[0].get("format") != FORMAT:
        raise DataError(
            f"{connection.address.shown}: not a gallery of format {FORMAT}; use the facerts that wrote it, or choose "
            "another name"
        )
    return rows[0]


def create_tables(connection: GalleryConnection, size: int) -> None:
    """Make empty tables for a gallery, which others cannot see before ``put_in_place``."""
    address = connection.address
    # Two processes that build the same gallery take turns.
    connection.execute("SELECT pg_advisory_xact_lock(hashtext('facerts'), hashtext(%s))", (address.gallery,))
    if not table_exists(connection):
        connection.run("CREATE SCHEMA {schema}")
    elif table_exists(connection, "about"):
        _about(connection)
    elif other := next((name for name in TABLES if table_exists(connection, name)), None):
        raise DataError(
            f"{address.shown}: the schema of this name has a table {other} of something else; choose another name"
        )
    for table, columns in TABLES.items():
        connection.run("CREATE TABLE {schema}.new_{table} ({columns})", table=table, columns=columns.format(size=size))
    connection.run(DEFAULTS, storage="PLAIN" if size <= MAX_INLINE else "EXTERNAL")


def put_in_place(connection: GalleryConnection, size: int, *, index: bool) -> None:
    """Complete tables that have been filled, in place of the gallery that is there."""
    connection.run(CONSTRAINTS)
    if index:
        make_index(connection, size, prefix="new_")
    connection.run("ANALYZE {schema}.new_people, {schema}.new_enrollments")
    if table_exists(connection, "about"):
        connection.run("LOCK TABLE {schema}.about")
        _about(connection)
        for name in reversed(TABLES):
            connection.run("DROP TABLE IF EXISTS {schema}.{table}", table=name)
    for name in TABLES:
        connection.run("ALTER TABLE {schema}.new_{table} RENAME TO {table}", table=name)


def make_index(connection: GalleryConnection, size: int, prefix: str = "") -> None:
    """Make the index that finds templates."""
    connection.execute(
        "SELECT set_config('maintenance_work_mem', %(memory)s, true) "
        "WHERE pg_size_bytes(current_setting('maintenance_work_mem')) < pg_size_bytes(%(memory)s)",
        {"memory": INDEX_MEMORY},
    )
    connection.run(TEMPLATE_INDEX, size=size, prefix=prefix)


def use_index(connection: GalleryConnection, people: int, candidates: int = CANDIDATES) -> None:
    """Let searches of this transaction use the index of templates."""
    # A search goes on beyond these if it has not found enough, as deleted templates stay in the index for a while.
    ef_search = min(max(MIN_EF_SEARCH, people // 1000, candidates), MAX_EF_SEARCH)
    connection.execute(
        "SELECT set_config('hnsw.ef_search', %s, true), set_config('hnsw.iterative_scan', 'relaxed_order', true), "
        "set_config('enable_seqscan', 'off', true)",
        (str(ef_search),),
    )


def read_images(
    connection: GalleryConnection,
    state: GalleryState,
    some: LiteralString = "",
    values: Sequence[object] | None = None,
) -> Enrollments:
    """The images of some people, or all, by person in the order in which they were enrolled."""
    chosen: LiteralString = " FROM {schema}.enrollments JOIN {schema}.people ON person = people.id " + some
    count = connection.run("SELECT count(*)" + chosen, values).fetchone()
    assert count is not None
    rows: list[tuple[Any, ...]] = []
    embedding = np.empty((count[0], state.size), dtype=np.float32)
    text = "SELECT name, {columns}" + chosen + " ORDER BY enrollments.id"
    statement = connection.statement(text, columns=", ".join(IMAGE_COLUMNS))
    with connection.cursor("images", binary=True) as cursor:
        cursor.itersize = BLOCK
        for name, path, vector, *others in cursor.execute(statement, values):
            embedding[len(rows)] = vector.to_numpy()
            rows.append((name, path, *others))
    images = Enrollments.of(rows, embedding, state.model, state.model_sha256)
    try:
        typed_arrays({name: getattr(images, name) for name in IMAGE_ARRAYS}, IMAGE_ARRAYS)
        check_faces(images.embedding, images.reasons)
        for name in images.people.tolist():
            if person_name(name) != name:
                raise Error(f"the name {name} is not in Unicode's NFC, or has spaces around it")
    except Error as error:
        raise connection.contradiction(error) from error
    return images.in_order()


def copy_images(connection: GalleryConnection, table: str, images: Enrollments, people: Sequence[int]) -> None:
    """Write images of the people with these ids."""
    quality, percentile = (
        [None if np.isnan(number) else number for number in numbers.tolist()]
        for numbers in (images.quality, images.percentile)
    )
    paths, reasons = images.path.tolist(), images.reasons.tolist()
    rows = zip(people, paths, images.embedding, quality, percentile, reasons, strict=True)
    copy_rows(connection, table, {"person": "int8", **IMAGE_COLUMNS}, rows)


def copy_rows(
    connection: GalleryConnection, table: str, columns: Mapping[str, str], rows: Iterable[tuple[Any, ...]]
) -> None:
    """Write rows of columns of these types."""
    text: LiteralString = "COPY {schema}.{table} ({columns}) FROM STDIN (FORMAT BINARY)"
    statement = connection.statement(text, table=table, columns=", ".join(columns))
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        copy.set_types([*columns.values()])
        for row in rows:
            copy.write_row(row)


def table_exists(connection: GalleryConnection, *table: str) -> bool:
    """Whether a table is there; without a name, the schema."""
    name = sql.Identifier(connection.address.gallery, *table).as_string(connection)
    text = "SELECT to_regclass(%s) IS NOT NULL" if table else "SELECT to_regnamespace(%s) IS NOT NULL"
    return connection.execute(text, (name,)).fetchone() == (True,)
