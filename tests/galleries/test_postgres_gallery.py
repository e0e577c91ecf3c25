"""A gallery in a database answers as one in a file does, whoever else writes to it, and whatever is killed."""

import json
import re
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

import facerts
from facerts.errors import DataError, Error, MissingExtraError, WriteError
from facerts.galleries import Decision, Gallery, Listed, Reason, postgres_store, postgres_tables
from facerts.galleries.postgres_store import PostgresStore
from facerts.galleries.postgres_tables import read_images, read_state, use_index
from tests.galleries.test_gallery import SIZE, draw, faces_of
from tests.postgres_server import postgres_server

numbers = count()


@pytest.fixture
def address(postgres):
    """Of a gallery that is not there yet."""
    return postgres.address(gallery=f"g{next(numbers)}")


@pytest.fixture
def gallery(address):
    with closing(Gallery(address)) as opened:
        yield opened


def store_of(gallery):
    return gallery._store


@pytest.fixture(scope="module")
def scorer(model):
    return facerts.load(model, detector="none", threads=1)


def schema_of(gallery):
    return gallery.name.rpartition("=")[2]


def assert_templates(server, gallery, expected):
    """The templates in the database are those of the images."""
    rows = server.execute(f'SELECT name, template::text FROM "{schema_of(gallery)}".people')
    stored = {name: np.array(json.loads(text)) for name, text in rows}
    assert set(stored) == set(expected.people.tolist())
    for name, template in zip(expected.people.tolist(), expected.templates, strict=True):
        np.testing.assert_allclose(stored[name], template, atol=1e-6)


def assert_equal(stored, expected, probes):
    """Everything that a gallery says is the same as in memory."""
    memory = Gallery(expected)
    read, wanted_images = stored.read(), memory.read()
    assert read.entries == wanted_images.entries
    for name in ("embedding", "quality", "percentile", "reasons"):
        np.testing.assert_array_equal(getattr(read, name), getattr(wanted_images, name))
    content = stored.summary()
    assert (content.people, content.images) == (len(wanted_images.people), len(expected))
    assert stored.image_counts() == memory.image_counts()
    for fpir in (0.3, 0.05, 0.001):
        threshold, wanted = stored.threshold(fpir), memory.threshold(fpir)
        assert threshold.cosine == pytest.approx(wanted.cosine, abs=1e-6)
        assert threshold.ci95 == pytest.approx(wanted.ci95, abs=1e-6)
        matches = stored.match(faces_of(probes), fpir=fpir, k=3)
        for match, same in zip(matches, memory.match(faces_of(probes), fpir=fpir, k=3), strict=True):
            assert (match.decision, match.person) == (same.decision, same.person)
            assert [name for name, _ in match.candidates] == [name for name, _ in same.candidates]
            assert [cosine for _, cosine in match.candidates] == pytest.approx(
                [cosine for _, cosine in same.candidates], abs=1e-6
            )
    assert stored.check() == memory.check()
    assert stored.best(2) == memory.best(2)


def test_a_database_answers_as_memory_does_after_every_change(postgres, gallery, tmp_path):
    first, more = draw(25, 4), draw(30, 6, seed=3)
    probes = np.concatenate([first.embedding[::4], draw(25, 1, seed=9).embedding])
    assert {match.decision for match in Gallery(first).match(faces_of(probes), fpir=0.05)} == {
        Decision.MATCH,
        Decision.UNKNOWN,
    }
    stores = [gallery, Gallery(tmp_path / "g.npz"), memory := Gallery(first)]
    findings = [Listed("p004", f"p004/{row}.jpg", Reason.POOR) for row in range(6)]
    # A path that several people have, a whole person, and what a check found but for the last image.
    changes = [
        lambda stored: stored.replace(first),
        lambda stored: stored.merge(more),
        lambda stored: stored.remove(people=["p003"], paths=["p007/1.jpg"]),
        lambda stored: stored.remove(findings=findings),
        lambda stored: stored.replace(more),
    ]
    for change in changes:
        outcomes = [change(stored) for stored in stores]
        assert outcomes[0] == outcomes[1] == outcomes[2]
        known = memory.read()
        for stored in stores[:2]:
            assert_equal(stored, known, probes)
        assert_templates(postgres, gallery, known)


def test_the_index_is_made_when_there_are_many_people_and_finds_nearly_all(postgres, gallery, monkeypatch):
    monkeypatch.setattr(postgres_store, "INDEX_FROM", 2000)
    monkeypatch.setattr(postgres_store, "MAX_INDEXED", 20_000)
    first, more = draw(1990, 2), draw(20, 2, seed=4)
    gallery.replace(first)
    gallery.merge(replace(more, person=np.char.add("q", more.person)))
    indexes = f"SELECT indexdef FROM pg_indexes WHERE schemaname = '{schema_of(gallery)}'"
    assert sum("hnsw" in row[0] for row in postgres.execute(indexes)) == 1
    everybody = gallery.read()
    probes = np.concatenate([first.embedding[::20], draw(200, 1, seed=7).embedding])
    store = store_of(gallery)
    found, exact = store.search(probes, 3), everybody.search(probes, 3)
    assert np.mean([a[0][0] == b[0][0] for a, b in zip(found, exact, strict=True)]) > 0.98
    assert np.mean([a[2][0] == b[2][0] for a, b in zip(found, exact, strict=True)]) > 0.98
    for near, right in zip(map(dict, found), map(dict, exact), strict=True):
        shared = near.keys() & right.keys()
        assert [near[name] for name in shared] == pytest.approx([right[name] for name in shared], abs=1e-6)
    assert gallery.threshold(0.01).cosine == pytest.approx(everybody.threshold(0.01).cosine, abs=2e-3)
    # It is the index that was asked: the plan does not sort all people.
    with store.connections.transaction() as connection:
        use_index(connection, 2000)
        statement = connection.statement("EXPLAIN " + postgres_store.INDEXED, size=SIZE)
        plan = connection.execute(statement, {"probe": probes[0], "k": 3, "candidates": 10}).fetchall()
    assert any("Index Scan using" in row[0] and "template" in row[0] for row in plan)
    # People who were removed stay in the index for a while, but are not found, nor do they take another's place.
    gone = first.people.tolist()[:1900]
    gallery.remove(people=gone)
    (names,) = store.search(first.templates[:1], 60)
    assert len(names) == 60
    assert not {name for name, _ in names} & set(gone)


def test_the_threshold_is_kept_until_a_hundredth_of_the_images_has_changed(gallery, address, monkeypatch):
    drawn = Mock(wraps=postgres_store._draw)
    monkeypatch.setattr(postgres_store, "_draw", drawn)

    def asked():
        with closing(Gallery(address)) as opened:
            threshold = opened.threshold(0.01).cosine
            assert opened.threshold(0.01).cosine == threshold
            return threshold

    images = draw(100, 3)
    gallery.replace(images.take(images.person < "p098"))
    first = asked()
    assert asked() == first
    assert drawn.call_count == 1
    # Two of 294 images are within the hundredth, four are not.
    own = images.take(images.person >= "p098")
    gallery.merge(own.take(np.arange(2)))
    assert asked() == first
    assert drawn.call_count == 1
    gallery.merge(own.take(np.arange(2, 4)))
    assert asked() == pytest.approx(gallery.read().threshold(0.01).cosine, abs=1e-6)
    assert drawn.call_count == 2
    # A second name of a person, and what it did to the threshold, are gone at once.
    clean = asked()
    gallery.merge(replace(images.take(np.arange(2)), person=np.full(2, "double")))
    gallery.merge(own.take(np.arange(4, 6)))
    assert asked() > clean + 0.03
    assert drawn.call_count == 3
    gallery.remove(people=["double"])
    assert asked() == pytest.approx(clean, abs=0.01)
    assert drawn.call_count == 3


def role(server, name, schema, rights):
    """The gallery of a schema for a new role with these rights on its tables."""
    server.execute(f"CREATE ROLE {name} LOGIN; GRANT USAGE ON SCHEMA {schema} TO {name}")
    server.execute(f"GRANT {rights} ON ALL TABLES IN SCHEMA {schema} TO {name}")
    return Gallery(server.address(user=name, gallery=schema))


def test_a_role_that_may_only_read_searches_all_the_same(postgres, gallery):
    known = draw(20, 3)
    gallery.replace(known)
    reader = role(postgres, "reader", schema_of(gallery), "SELECT")
    for _ in range(2):
        assert reader.threshold(0.1).cosine == pytest.approx(known.threshold(0.1).cosine, abs=1e-6)
    assert postgres.execute(f"SELECT count(*) FROM {schema_of(gallery)}.strangers") == [(0,)]
    with pytest.raises(WriteError, match=r"permission denied .*give the role the rights"):
        reader.merge(known)
    other = Gallery(postgres.address(user="reader", gallery="none"))
    with pytest.raises(WriteError, match="permission denied for database"):
        other.replace(known)


def test_a_role_needs_no_more_rights_than_documented(postgres):
    postgres.execute("CREATE ROLE owner LOGIN; CREATE SCHEMA theirs AUTHORIZATION owner")
    owner = Gallery(postgres.address(user="owner", gallery="theirs"))
    owner.replace(draw(20, 3))
    writer = role(postgres, "writer", "theirs", "SELECT, INSERT, UPDATE, DELETE")
    writer.merge(draw(22, 3))
    writer.remove(people=["p021"])
    assert writer.threshold(0.1) == owner.threshold(0.1)
    assert postgres.execute("SELECT count(*) FROM theirs.strangers") == [(63,)]


def test_many_writers_leave_right_templates_and_readers_see_whole_states(postgres, gallery, address):
    images = draw(12, 24)
    start = images.take(np.arange(len(images)) % 24 < 2)
    gallery.replace(start)
    # Each writer adds images of everybody, and removes some that it has added.
    parts = [images.take(np.arange(len(images)) % 24 == row) for row in range(2, 24)]
    stop = threading.Event()
    states = []

    def write(row):
        part = parts[row]
        with closing(Gallery(address)) as own:
            own.merge(part.take(np.random.default_rng(row).permutation(12)))
            if row % 3 == 0:
                own.remove(paths=part.path[:4].tolist())

    def read():
        reader = PostgresStore(address)
        while not stop.is_set():
            with reader.connections.transaction() as connection:
                state = read_state(connection)
                seen = read_images(connection, state)
                text = "SELECT name, template FROM {schema}.people ORDER BY name"
                rows = connection.run(text, binary=True).fetchall()
            assert (state.people, state.images) == (len(seen.people), len(seen))
            np.testing.assert_allclose(np.stack([row[1].to_numpy() for row in rows]), seen.templates, atol=1e-6)
            states.append(state.images)
        reader.close()

    with ThreadPoolExecutor(9) as threads:
        reading = threads.submit(read)
        writing = [threads.submit(write, row) for row in range(len(parts))]
        try:
            for done in writing:
                done.result(60)
        finally:
            stop.set()
        reading.result(60)
    expected = Gallery(start)
    for row, part in enumerate(parts):
        expected.merge(part.take(np.arange(4 if row % 3 == 0 else 0, 12)))
    assert sorted(gallery.read().entries) == sorted(expected.read().entries)
    assert len(set(states)) > 1
    assert_templates(postgres, gallery, expected.read())


TABLES = "SELECT count(*) FROM pg_tables WHERE schemaname = '{}'"
KILLED = """
import sys, time
from facerts.galleries import Gallery, postgres_store
from tests.galleries.test_gallery import draw

def wait(*arguments, **options):
    print("half", flush=True)
    time.sleep(600)

address, change, moment = sys.argv[1:]
setattr(postgres_store, moment, wait)
getattr(Gallery(address), change)(draw(30, 5, seed=2))
"""


@pytest.mark.parametrize(("change", "moment"), [("merge", "copy_images"), ("replace", "put_in_place")])
def test_a_writer_that_is_killed_leaves_nothing_and_keeps_nobody(postgres, gallery, address, change, moment):
    known = draw(20, 3)
    gallery.replace(known)
    command = [sys.executable, "-c", KILLED, address, change, moment]
    writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])
    assert writer.stdout.readline() == "half\n"
    assert gallery.read().entries == known.entries
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    assert_equal(gallery, known, draw(10, 1).embedding)
    assert postgres.execute(TABLES.format(schema_of(gallery))) == [(4,)]
    expected = Gallery(known)
    for each in (gallery, expected):
        each.merge(draw(30, 5, seed=2))
    assert_equal(gallery, expected.read(), draw(10, 1).embedding)


NAMES = ["O'Hara", 'a "quoted" name', "Robert'); DROP TABLE people; --", "x" * 200]
NAMES += ["%s %(k)s {schema}", "\\x00", "né 人 🙂"]
TEXTS = [*NAMES, "a\0b", "\udcff", "x" * 20_000, " ", "\n"]


def test_people_images_and_galleries_may_have_any_name(postgres):
    paths = [f"{TEXTS[row % len(TEXTS)]}{row}" for row in range(4 * len(NAMES))]
    odd = replace(draw(len(NAMES), 4), person=np.array(NAMES).repeat(4), path=np.array(paths))
    expected = Gallery(odd).read()
    for name in ("it's", 'a"b', "x; DROP TABLE y", "é" * 31, "Upper", "new_people", "a%2Bb"):
        gallery = Gallery(postgres.address(gallery=name.replace(";", "%3B").replace(" ", "+")))
        gallery.replace(odd)
        assert gallery.read().entries == expected.entries
        gallery.merge(odd)
        assert_equal(gallery, expected, odd.templates)
        removed = gallery.remove(people=NAMES[:2], paths=paths[20:22])
        assert removed.gone == tuple(sorted(NAMES[:2]))
        assert len(removed.entries) == 10
        gallery.close()


def test_without_the_packages_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "facerts.galleries.postgres_store", None)
    with pytest.raises(MissingExtraError, match=r"pip install '\.\[postgres\]'"):
        Gallery("postgresql://user@host/database")


SECRET = "s3cr3t"


@pytest.mark.parametrize(
    "address",
    [
        f"postgresql://u:{SECRET}@[::1/d",
        f"postgresql://u:p@{SECRET}@host/d",
        f"postgresql://u:p/{SECRET}@host/d",
        f"postgresql://u:p#{SECRET}@host/d",
        f"postgresql://u@host/d?{SECRET}",
        f"postgresql://u@host/d?passwort={SECRET}",
        f"postgresql:/u:{SECRET}@host/d",
        f"postgres://u:{SECRET}%@host/d",
        f"postgresql://u:{SECRET}%00@host/d",
        f"postgresql://u:{SECRET}@host/d?gallery=" + "x" * 64,
        f"postgresql://u:{SECRET}@host/d?gallery=",
        f"postgresql://u:{SECRET}@host/d?gallery=pg_x",
        f"postgresql://u:{SECRET}@host/d?gallery=%25s",
        f"postgresql://u:{SECRET}@host/d?gallery=public",
        f"postgresql://u:{SECRET}@host/d?gallery=a%00b",
        Path(f"postgresql://u:{SECRET}@host/d"),
    ],
)
def test_a_broken_address_is_an_error_without_its_password(address):
    with pytest.raises(Error) as raised:
        Gallery(address)
    chain = [raised.value, raised.value.__cause__]
    assert not any(SECRET in str(error) for error in chain)
    assert "postgresql://user@host" in str(raised.value) or "choose a name" in str(raised.value)


def test_who_cannot_connect_reads_why_but_no_password(postgres, tmp_path):
    postgres.execute(f"CREATE ROLE guarded LOGIN PASSWORD '{SECRET}'")
    folder, failed = postgres.folder, "password authentication failed"
    for address, problem in (
        (f"postgresql://guarded:wrong-{SECRET}@/postgres?host={folder}", failed),
        (f"postgresql://guarded@/postgres?host={folder}&password=wrong-{SECRET}", failed),
        (f"postgresql://guarded@/postgres?host={folder}", "no password supplied"),
        (f"postgresql://nobody:{SECRET}@/postgres?host={folder}", 'role "nobody" does not exist'),
        (f"postgresql://postgres:{SECRET}@/nowhere?host={folder}", 'database "nowhere" does not exist'),
        (f"postgresql://u:{SECRET}@/d?host={tmp_path}", "No such file"),
        (f"postgresql://u:{SECRET}@127.0.0.1:1/d", "refused"),
        (f"postgresql://u:{SECRET}@127.0.0.1:port/d", 'invalid integer value "port"'),
        (f"postgresql://u:{SECRET}@name.invalid/d", "could not translate|resolve|not known"),
    ):
        gallery = Gallery(address)
        for use in (gallery.summary, gallery.read, lambda known=gallery: known.merge(draw(1, 1))):
            with pytest.raises(Error, match=problem) as raised:
                use()
            assert SECRET not in str(raised.value)
            assert str(raised.value).startswith(gallery.name.split("?")[0])
            assert "check the address" in str(raised.value)
        assert SECRET not in repr(vars(gallery))
    right = Gallery(f"postgresql://guarded:{SECRET}@/postgres?host={folder}&gallery=none")
    with pytest.raises(DataError, match=r"there is no gallery of this name.*facerts gallery build") as raised:
        right.summary()
    assert SECRET not in str(raised.value) + right.name


def test_a_database_without_what_a_gallery_needs_is_refused(postgres):
    known = draw(3, 2)
    bare = postgres.create_database("bare", extension=False)
    with pytest.raises(Error, match=r"lacks pgvector.*CREATE EXTENSION vector"):
        Gallery(bare).replace(known)
    old = postgres.create_database("old")
    postgres.execute("UPDATE pg_extension SET extversion = '0.7.4' WHERE extname = 'vector'", "old")
    with pytest.raises(Error, match=r"pgvector 0\.7\.4, and galleries need 0\.8 or later.*ALTER EXTENSION"):
        Gallery(old).replace(known)
    hidden = postgres.create_database("hidden", extension=False)
    postgres.execute("CREATE SCHEMA apart", "hidden")
    postgres.execute("CREATE EXTENSION vector SCHEMA apart", "hidden")
    with pytest.raises(Error, match=r"not searched.*search_path"):
        Gallery(hidden).replace(known)
    latin = postgres.create_database("latin", options="ENCODING 'LATIN1' TEMPLATE template0")
    with pytest.raises(Error, match=r"encoding LATIN1.*ENCODING 'UTF8'"):
        Gallery(latin).replace(known)


def test_tables_of_others_are_left_alone(postgres, gallery):
    known = draw(3, 2)
    gallery.replace(known)
    name = schema_of(gallery)
    postgres.execute(f"UPDATE {name}.about SET format = 'facerts.postgres/2'")
    for use in (gallery.summary, lambda: gallery.merge(known), lambda: gallery.replace(known)):
        with pytest.raises(DataError, match=r"not a gallery of format facerts\.postgres/1"):
            use()
    postgres.execute(f"CREATE SCHEMA {name}_theirs; CREATE TABLE {name}_theirs.people (x int)")
    theirs = Gallery(postgres.address(gallery=f"{name}_theirs"))
    with pytest.raises(DataError, match=r"a table people of something else; choose another name"):
        theirs.replace(known)
    with pytest.raises(DataError, match="no gallery of this name"):
        theirs.summary()
    postgres.execute(f"DROP TABLE {name}_theirs.people")
    theirs.replace(known)
    # What depends on a gallery is not dropped with it.
    postgres.execute(f"CREATE VIEW {name}_theirs.names AS SELECT name FROM {name}_theirs.people")
    with pytest.raises(Error, match=r"cannot drop .*nothing was changed"):
        theirs.replace(known)
    assert postgres.execute(f"SELECT count(*) FROM {name}_theirs.names") == [(3,)]
    postgres.execute(f"CREATE SCHEMA {name}_odd; CREATE TABLE {name}_odd.about (x int)")
    odd = Gallery(postgres.address(gallery=f"{name}_odd"))
    for use in (odd.summary, lambda: odd.replace(known)):
        with pytest.raises(DataError, match="not a gallery of format"):
            use()


# What others may do to the tables of 8 people with 3 images each, and what is said of it.
BROKEN = {
    "UPDATE {0}.about SET images = 25": "counts 8 people and 25 images",
    "UPDATE {0}.about SET people = -1": "counts -1 people",
    "UPDATE {0}.about SET size = 63": r"table people has no column template vector\(63\) NOT NULL",
    "INSERT INTO {0}.about SELECT * FROM {0}.about": "not a gallery of format",
    "DELETE FROM {0}.enrollments": "counts 8 people and 24 images",
    "DELETE FROM {0}.people WHERE id = 3": "counts 8 people and 24 images",
    "ALTER TABLE {0}.enrollments DROP CONSTRAINT new_enrollments_person_fkey; "
    "UPDATE {0}.enrollments SET person = 99 WHERE id = 3": "counts 8 people and 24 images",
    "ALTER TABLE {0}.enrollments DROP COLUMN reasons": "table enrollments has no column reasons text NOT NULL",
    "ALTER TABLE {0}.enrollments ALTER path DROP NOT NULL; "
    "UPDATE {0}.enrollments SET path = NULL WHERE id = 3": "table enrollments has no column path text NOT NULL",
    "ALTER TABLE {0}.people ALTER template TYPE vector(3) USING '[1,0,0]'": (
        r"table people has no column template vector\(64\) NOT NULL"
    ),
    "UPDATE {0}.enrollments SET embedding = embedding + embedding WHERE id = 3": "not of unit length",
    "UPDATE {0}.people SET template = template + template": "not of unit length",
    "UPDATE {0}.enrollments SET quality = 'Infinity' WHERE id = 3": "'quality' has inf",
    "UPDATE {0}.enrollments SET reasons = 'evil' WHERE id = 3": "reasons of a face are 'evil'",
    "UPDATE {0}.people SET name = '' WHERE id = 3": "a name must not be empty",
    "UPDATE {0}.people SET name = 'e' || chr(769) WHERE id = 3": "is not in Unicode's NFC",
}


@pytest.mark.parametrize(("change", "problem"), BROKEN.items())
def test_a_gallery_that_contradicts_itself_is_broken_until_it_is_built_again(postgres, gallery, change, problem):
    known = draw(8, 3)
    gallery.replace(known)
    for _ in range(2):  # drawn, then read and kept
        gallery.threshold(0.1)
    postgres.execute(f"DELETE FROM {schema_of(gallery)}.strangers")
    postgres.execute(change.format(schema_of(gallery)))
    fresh = Gallery(gallery.name)

    def match(opened=fresh):
        return opened.match(faces_of(known.templates), fpir=0.1, k=2)

    pattern = rf"^{re.escape(gallery.name)}: .*({problem}).*; (build it again|use the facerts that wrote it)"
    uses = [match if "SET template" in change else fresh.read]
    if "counts" in problem:
        uses = [fresh.image_counts, fresh.read, match]
    elif "has no column" in problem:
        uses = [fresh.summary, gallery.read]
    for use in uses:
        with pytest.raises(DataError, match=pattern):
            use()
    for opened in (gallery, fresh):
        for use in (
            opened.summary,
            lambda opened=opened: match(opened),
            lambda opened=opened: opened.merge(known),
            lambda opened=opened: opened.remove(people=["p002"]),
        ):
            with suppress(Error):
                use()
    if "not a gallery of format" not in problem:
        gallery.replace(known)
        assert_equal(gallery, known, known.templates)


def test_further_columns_and_impossible_scores_of_strangers_do_not_matter(postgres, gallery):
    known = draw(8, 3)
    gallery.replace(known)
    gallery.threshold(0.1)
    for table in postgres_tables.TABLES:
        postgres.execute(f"ALTER TABLE {schema_of(gallery)}.{table} ADD COLUMN more int")
    postgres.execute(f"UPDATE {schema_of(gallery)}.strangers SET cosine = 'NaN' WHERE enrollment = 3")
    assert_equal(Gallery(gallery.name), known, known.templates)
    gallery.merge(known)


def test_a_build_that_cannot_be_written_ends_before_images_are_scored(postgres, address, scorer, monkeypatch):
    monkeypatch.setattr("facerts.galleries.gallery.enroll", Mock(side_effect=AssertionError))
    name = address.rpartition("=")[2]
    postgres.execute("CREATE ROLE nobodys LOGIN")
    with pytest.raises(WriteError, match="permission denied"):
        Gallery.create(postgres.address(user="nobodys", gallery=name), scorer, "people")
    postgres.execute(f"CREATE SCHEMA {name}; CREATE TABLE {name}.strangers (x int)")
    with pytest.raises(DataError, match="a table strangers of something else"):
        Gallery.create(address, scorer, "people")
    postgres.execute(f"DROP SCHEMA {name} CASCADE")
    with pytest.raises(AssertionError):
        Gallery.create(address, scorer, "people")
    # Nothing is left of the attempt.
    assert postgres.execute(f"SELECT to_regnamespace('{name}')") == [(None,)]


def test_two_builds_of_one_name_leave_one_gallery(postgres, gallery, address):
    several = [draw(4 + row, 2, seed=row) for row in range(6)]
    with ThreadPoolExecutor(6) as threads:
        list(threads.map(lambda built: Gallery(address).replace(built), several))
    assert gallery.read().entries in [built.entries for built in several]
    assert postgres.execute(TABLES.format(schema_of(gallery))) == [(4,)]


def test_a_server_that_is_gone_is_an_error_and_one_that_is_back_is_used(monkeypatch):
    with postgres_server() as server:
        server.execute("CREATE EXTENSION vector")
        gallery = Gallery(server.address())
        known = draw(20, 3)
        gallery.replace(known)
        probes = faces_of(known.templates)
        gallery.match(probes)

        def in_the_middle(connection):
            state = read_state(connection)
            server.stop(signal.SIGQUIT)
            return state

        with monkeypatch.context() as patch:
            patch.setattr(postgres_store, "read_state", in_the_middle)
            with pytest.raises(
                Error, match=r"^postgresql://postgres@/postgres\?host=.*cannot be reached .*server runs"
            ):
                store_of(gallery).search(known.templates, 1)
        with pytest.raises(Error, match="cannot be reached"):
            gallery.match(probes)
        server.start()
        assert [match.person for match in gallery.match(probes)] == known.people.tolist()
        # A connection that was lost while nobody used it is replaced.
        server.stop()
        server.start()
        assert [match.person for match in gallery.match(probes)] == known.people.tolist()
        gallery.close()


def test_threads_search_and_change_a_gallery_while_it_is_built_again(gallery, address):
    several = [draw(20 + row, 3) for row in range(12)]
    gallery.replace(several[0])
    stop = threading.Event()

    def search():
        matches = gallery.match(faces_of(several[0].templates[:3]), fpir=0.1)
        assert [match.person for match in matches] == ["p000", "p001", "p002"]

    def repeated(use):
        times = 0
        while not stop.is_set():
            use()
            times += 1
        return times

    with closing(Gallery(address)) as other, ThreadPoolExecutor(6) as threads:
        uses = (search, lambda: gallery.merge(several[0]), search, lambda: gallery.merge(several[0]))
        done = [threads.submit(repeated, use) for use in uses]
        try:
            for built in several:
                other.replace(built)
        finally:
            stop.set()
        assert all(each.result(60) > 0 for each in done)
