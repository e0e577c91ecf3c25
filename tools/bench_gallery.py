"""Galleries of many people in PostgreSQL: how long they take to build and to search, and whom the index misses.

    python tools/bench_gallery.py postgresql://user@host/database?gallery=bench --people 10000 100000

For each number of people: rows and index are written (seconds, bytes); then people are searched for one at a time, in
memory with NumPy, as a gallery in a file does, exactly in the database, and in its index at several ef_search. Recall@1
is the share of probes for which a search names the same person as NumPy. Half of the probes are of people in the
gallery, half of strangers, whose most similar person is harder to find.

All is drawn. Templates are normally distributed and put on the unit sphere. The variance of dimension i is
proportional to a power of i, and a part of it is common to each thousand people, so that some people are much alike. A
probe has a cosine of 0.4 to 0.9 to its person's template. The spread of the cosines between people is printed.

Each person has one image. The gallery of the address is replaced, and stays. ``python -m tests.postgres_server`` runs a
server to measure with.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial

import numpy as np
from bench import machine, parser_of, seconds_of
from numpy.typing import NDArray

from facerts.galleries import Enrollments, postgres_store
from facerts.galleries import postgres_tables as tables
from facerts.galleries.postgres_store import PostgresStore

Vectors = NDArray[np.float32]
Search = Callable[[Vectors], str]

# The variances fall so that people are as much alike as 721 real ones are to the model that ships, whose cosines have a
# standard deviation of 0.109 in 128 dimensions.
DECAY, GROUP_SHARE, GROUP = -0.5, 0.2, 1000
COSINES = (0.4, 0.9)
# Where the exact search of the database takes long, only some probes are searched for.
EXACT_ROWS = 20_000_000
EXACT_THRESHOLD = 200_000
OPTIONS = {
    "--people": ([10_000], "numbers of people"),
    "--size": (128, "numbers of an embedding"),
    "--probes": (1000, "number of searches behind a median"),
    "--ef-search": ([100, 200, 400, 800], "how far searches in the index look"),
    "--seed": (0, "of all that is drawn"),
}


def main() -> None:
    parser = parser_of(__doc__, OPTIONS)
    parser.add_argument("address", help="of the database, with the name of a gallery that may be replaced")
    options = parser.parse_args()
    print(f"{machine()}; embeddings of {options.size} numbers; searches take milliseconds")
    store = PostgresStore(options.address)
    for people in options.people:
        random = np.random.default_rng(options.seed)
        templates, strangers = draw_people(random, people, options.size, options.probes // 2)
        probes = np.concatenate([draw_probes(random, templates, options.probes // 2), strangers])
        measure(store, templates, probes, options.ef_search)
    store.close()


def measure(store: PostgresStore, templates: Vectors, probes: Vectors, ef_search: list[int]) -> None:
    alike = (probes[len(probes) // 2 :] @ templates[:1000].T).std()
    print(f"\n{len(templates):,} people, whose cosines have a standard deviation of {alike:.3f}\n")
    everybody = images_of(templates)
    # The index is timed by itself.
    index_from, postgres_store.INDEX_FROM = postgres_store.INDEX_FROM, len(templates) + 1
    rows = seconds_of(lambda: store.replace(everybody))
    postgres_store.INDEX_FROM = index_from
    named = partial(everybody.search, k=1)
    right = [found[0][0] for found in named(probes)]
    print("| search | median | 95% | recall@1, enrolled | recall@1, strangers |\n| --- | --- | --- | --- | --- |")
    report("NumPy, in memory", named, probes, right)
    step = max(1, len(templates) * len(probes) // EXACT_ROWS)
    report("PostgreSQL, exact", partial(store.search, k=1), probes[::step], right[::step])
    index = seconds_of(lambda: make_index(store))
    usual = tables.MIN_EF_SEARCH, tables.MAX_EF_SEARCH
    for ef in ef_search:
        tables.MIN_EF_SEARCH = tables.MAX_EF_SEARCH = ef
        report(f"PostgreSQL, ef_search {ef}", partial(store.search, k=1), probes, right)
    tables.MIN_EF_SEARCH, tables.MAX_EF_SEARCH = usual
    threshold = seconds_of(lambda: store.threshold(0.01))
    again = seconds_of(lambda: store.threshold(0.01))
    print(f"\nrows {rows:,.1f} s; index {index:,.1f} s; threshold {threshold:,.1f} s, then {again:.4f} s")
    exact = f", exactly {everybody.threshold(0.01).cosine:.4f}" if len(templates) <= EXACT_THRESHOLD else ""
    print(f"threshold at FPIR 0.01: {store.threshold(0.01).cosine:.4f}{exact}")
    print("; ".join(f"{name} {size / 2**20:,.0f} MiB" for name, size in sizes(store).items()), flush=True)


def draw_people(random: np.random.Generator, people: int, size: int, strangers: int) -> tuple[Vectors, Vectors]:
    """Templates of people and of strangers, of unit length."""
    deviation = (np.arange(1, size + 1) ** (DECAY / 2)).astype(np.float32)
    total = people + strangers
    centers = random.standard_normal((-(-total // GROUP), size), dtype=np.float32)
    vectors = random.standard_normal((total, size), dtype=np.float32) * np.float32(np.sqrt(1 - GROUP_SHARE))
    vectors += np.float32(np.sqrt(GROUP_SHARE)) * centers[random.permutation(total) // GROUP]
    drawn = unit(vectors * deviation)
    return drawn[:people], drawn[people:]


def draw_probes(random: np.random.Generator, templates: Vectors, probes: int) -> Vectors:
    """Images of some of the people."""
    chosen = templates[random.integers(len(templates), size=probes)]
    noise = random.standard_normal(chosen.shape, dtype=np.float32)
    noise -= np.sum(noise * chosen, axis=1, keepdims=True) * chosen
    cosine = random.uniform(*COSINES, size=(probes, 1)).astype(np.float32)
    return cosine * chosen + np.sqrt(1 - cosine**2) * unit(noise)


def unit(vectors: Vectors) -> Vectors:
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), dtype=np.float32)


def images_of(templates: Vectors) -> Enrollments:
    names = np.array([f"{row:07d}" for row in range(len(templates))])
    unknown = np.full(len(names), np.nan, dtype=np.float32)
    none = np.full(len(names), "")
    return Enrollments(names, names, templates, unknown, unknown, none, "drawn", "0" * 64)


def report(
    name: str,
    search: Callable[[Vectors], list[list[tuple[str, float]]]],
    probes: Vectors,
    right: list[str],
) -> None:
    """A row of the table; the first half of the probes are of people in the gallery."""
    search(probes[:20])
    seconds, same = [], []
    for probe, person in zip(probes, right, strict=True):
        began = time.perf_counter()
        ((best,),) = search(probe[None])
        seconds.append(time.perf_counter() - began)
        same.append(best[0] == person)
    half = len(same) // 2
    middle, high = statistics.median(seconds), statistics.quantiles(seconds, n=20)[-1]
    shares = f"{np.mean(same[:half]):.4f} | {np.mean(same[half:]):.4f}"
    print(f"| {name} | {1000 * middle:.2f} | {1000 * high:.2f} | {shares} |", flush=True)


def make_index(store: PostgresStore) -> None:
    with store.connections.transaction(read_only=False) as connection:
        tables.make_index(connection, tables.read_state(connection).size)


def sizes(store: PostgresStore) -> dict[str, int]:
    """Bytes of tables and of the index of templates."""
    text = (
        "SELECT relname, CASE relkind WHEN 'r' THEN pg_total_relation_size(oid) ELSE pg_relation_size(oid) END "
        "FROM pg_class WHERE oid IN ('{schema}.people'::regclass, '{schema}.enrollments'::regclass) OR oid IN "
        "(SELECT indexrelid FROM pg_index WHERE indrelid = '{schema}.people'::regclass) ORDER BY relname"
    )
    with store.connections.transaction() as connection:
        return dict(connection.run(text).fetchall())


if __name__ == "__main__":
    main()
