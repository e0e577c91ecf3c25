"""The tables of a gallery in PostgreSQL, in a schema of their own; docs/galleries.md describes them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from psycopg import sql
from psycopg.rows import dict_row
from typing_extensions import LiteralString

from facerts.errors import DataError
from facerts.galleries.postgres_connections import Connection, PostgresAddress
from facerts.galleries.store import GallerySummary

FORMAT = "facerts.postgres/1"
# Vectors of up to this size fit into a page, and are compared much faster where they lie in the rows themselves.
MAX_INLINE = 1900
# Chosen with tools/bench_gallery.py: below, all templates are compared within milliseconds, and exactly.
INDEX_FROM = 20_000
# An index is made in memory if it fits into that.
INDEX_MEMORY = "1GB"

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
COLUMNS = """
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


class PostgresTables:
    """The statements that know a gallery's tables.

    Args:
        address: of the gallery, whose name is that of the schema.
    """

    def __init__(self, address: PostgresAddress) -> None:
        self._address = address
        self._schema = sql.Identifier(address.gallery)
        self._checked: tuple[object, ...] = ()

    def statement(self, text: LiteralString, **values: int | str) -> sql.Composed:
        """A statement with the ``{schema}`` and names or numbers of ours in it; all other values are parameters."""
        ours = {name: sql.SQL(str(value)) for name, value in values.items()}
        return sql.SQL(text).format(schema=self._schema, **ours)

    def state(self, connection: Connection, *, lock: bool = False) -> GalleryState:
        """What the gallery says of itself.

        Args:
            lock: wait until no other transaction changes the gallery, and keep others from it until this one ends.
        """
        about = self._about(connection, lock=lock)
        # Once for each build, as it takes as long as a search.
        build = (about["tableoid"], about.get("size"), *about)
        if build != self._checked:
            self._check_columns(connection, about.get("size"))
            self._checked = build
        state = GalleryState(**{each.name: about[each.name] for each in fields(GalleryState)})
        if not 1 <= state.people <= state.images:
            raise self.broken(f"it counts {state.people:,} people and {state.images:,} images")
        return state

    def check(self, connection: Connection, state: GalleryState) -> None:
        """Check that the gallery has the columns, people and images that it says, which takes as long as all ids."""
        self._check_columns(connection, state.size)
        counted = state.people, state.people, state.images, state.images
        if connection.execute(self.statement(COUNTS)).fetchone() != counted:
            raise self.broken(
                f"it counts {state.people:,} people and {state.images:,} images, which is not what it has"
            )

    def broken(self, problem: object) -> DataError:
        """The error of a gallery that contradicts itself."""
        return DataError(f"{self._address.shown}: this gallery is broken: {problem}; build it again")

    def _check_columns(self, connection: Connection, size: object) -> None:
        """Check that no column is missing, of another type, or without a value where it needs one."""
        there = connection.execute(COLUMNS, (self._address.gallery, [*TABLES])).fetchall()
        for table, columns in TABLES.items():
            for column in columns.format(size=size).split(", "):
                if (table, column) not in there:
                    raise self.broken(f"its table {table} has no column {column}")

    def _about(self, connection: Connection, *, lock: bool = False) -> dict[str, Any]:
        """The row of the table ``about``."""
        # A transaction sees the database as it was at its first query, which must not be before the end of a build that
        # it has waited for.
        mode = "ROW SHARE" if lock else "ACCESS SHARE"
        connection.execute(self.statement("LOCK TABLE {schema}.about IN {mode} MODE", mode=mode))
        text: LiteralString = "SELECT tableoid, * FROM {schema}.about LIMIT 2 {lock}"
        with connection.cursor(row_factory=dict_row) as cursor:
            rows = cursor.execute(self.statement(text, lock="FOR UPDATE" if lock else "")).fetchall()
        if len(rows) != 1 or rows[0].get("format") != FORMAT:
            raise DataError(
                f"{self._address.shown}: not a gallery of format {FORMAT}; use the facerts that wrote it, or choose "
                "another name"
            )
        return rows[0]

    def create(self, connection: Connection, size: int) -> None:
        """Make empty tables for a gallery, which others cannot see before ``put_in_place``."""
        # Two processes that build the same gallery take turns.
        connection.execute(
            "SELECT pg_advisory_xact_lock(hashtext('facerts'), hashtext(%s))", (self._address.gallery,)
        )
        if not self._exists(connection, ""):
            connection.execute(self.statement("CREATE SCHEMA {schema}"))
        elif self._exists(connection, "about"):
            self._about(connection)
        elif other := next((name for name in TABLES if self._exists(connection, name)), None):
            raise DataError(
                f"{self._address.shown}: the schema of this name has a table {other} of something else; choose another "
                "name"
            )
        for table, columns in TABLES.items():
            text: LiteralString = "CREATE TABLE {schema}.{table} ({columns})"
            connection.execute(self.statement(text, table=f"new_{table}", columns=columns.format(size=size)))
        storage = "PLAIN" if size <= MAX_INLINE else "EXTERNAL"
        connection.execute(self.statement(DEFAULTS, storage=storage))

    def put_in_place(self, connection: Connection, size: int, *, index: bool) -> None:
        """Complete tables that have been filled, in place of the gallery that is there."""
        connection.execute(self.statement(CONSTRAINTS))
        if index:
            self.make_index(connection, size, prefix="new_")
        connection.execute(self.statement("ANALYZE {schema}.new_people, {schema}.new_enrollments"))
        if self._exists(connection, "about"):
            connection.execute(self.statement("LOCK TABLE {schema}.about"))
            self._about(connection)
            for name in reversed(TABLES):
                connection.execute(self.statement("DROP TABLE IF EXISTS {schema}.{table}", table=name))
        for name in TABLES:
            rename: LiteralString = "ALTER TABLE {schema}.{new} RENAME TO {table}"
            connection.execute(self.statement(rename, new=f"new_{name}", table=name))

    def make_index(self, connection: Connection, size: int, prefix: str = "") -> None:
        """Make the index that finds templates."""
        connection.execute(
            "SELECT set_config('maintenance_work_mem', %(memory)s, true) "
            "WHERE pg_size_bytes(current_setting('maintenance_work_mem')) < pg_size_bytes(%(memory)s)",
            {"memory": INDEX_MEMORY},
        )
        connection.execute(self.statement(TEMPLATE_INDEX, size=size, prefix=prefix))

    def _exists(self, connection: Connection, table: str) -> bool:
        """Whether a table is there; with an empty name, the schema."""
        text = "SELECT to_regclass(%s) IS NOT NULL" if table else "SELECT to_regnamespace(%s) IS NOT NULL"
        names = [self._address.gallery, table] if table else [self._address.gallery]
        row = connection.execute(text, (sql.Identifier(*names).as_string(connection),)).fetchone()
        return row == (True,)
