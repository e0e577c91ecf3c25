"""Splitting by identity, packing, several sources as one, a random order, unpacking: nothing is lost."""

import json
import os
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from facerts.curation.dedup import dedup
from facerts.curation.output_spec import OutputSpec
from facerts.curation.rearrange import pack, split, unpack
from facerts.datasets import Source, open_source
from facerts.errors import DataError, Error
from tests.contents import content, files_in, rows


def people(data):
    return set(open_source(data).identities)


@pytest.mark.parametrize(
    ("out", "shards", "read"),
    [("a", None, "a"), ("a.tar", None, "a.tar"), ("a", 3, "a/shard-*.tar")],
    ids=["records", "tar", "shards"],
)
def test_nobody_is_in_both_parts_and_nothing_is_lost(drawn_faces, tmp_path, out, shards, read):
    report = split(
        open_source(drawn_faces),
        OutputSpec(tmp_path / out, shards),
        OutputSpec(tmp_path / "b"),
        identities=3,
        seed=1,
    )
    one, other = str(tmp_path / read), tmp_path / "b"
    assert people(one) | people(other) == people(drawn_faces)
    assert not people(one) & people(other)
    assert len(people(other)) == 3
    assert content(one) + content(other) == content(drawn_faces)
    assert [part["images"] for part in report["written"]] == [40, 24]
    # In the file the paths are names: it may be shown to others.
    names = [{**part, "path": Path(part["path"]).name} for part in report["written"]]
    assert json.loads((tmp_path / "a.report.json").read_text()) == report | {
        "report": "a.report.json",
        "written": names,
    }


def test_a_dry_run_writes_its_report_alone(drawn_faces, tmp_path):
    out, held = OutputSpec(tmp_path / "a"), OutputSpec(tmp_path / "b")
    planned = split(open_source(drawn_faces), replace(out, dry_run=True), held, identities=2)
    assert files_in(tmp_path) == ["a.dry-run.json"]
    real = split(open_source(drawn_faces), out, held, identities=2)
    assert real["written"] == planned["written"]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "either --identities or --share"),
        ({"identities": 2, "share": 0.5}, "either --identities or --share"),
        ({"share": 1.0}, "not a share"),
        ({"identities": 8}, "some must be left"),
    ],
)
def test_a_split_that_makes_no_sense_is_refused(drawn_faces, tmp_path, options, problem):
    with pytest.raises(Error, match=problem):
        split(open_source(drawn_faces), OutputSpec(tmp_path / "a"), OutputSpec(tmp_path / "b"), **options)
    assert files_in(tmp_path) == []


def test_a_split_needs_identities(non_faces, tmp_path):
    with pytest.raises(DataError, match="needs identities"):
        split(open_source(non_faces), OutputSpec(tmp_path / "a"), OutputSpec(tmp_path / "b"), identities=1)


def parts(drawn_faces, folder):
    """The drawn faces in two folders, of which both have person_0003, under the same file names."""
    for person in sorted(drawn_faces.iterdir()):
        for number, image in enumerate(sorted(person.iterdir())):
            for part, there in (("one", person.name <= "person_0003"), ("two", person.name >= "person_0003")):
                both = person.name == "person_0003"
                if there and (not both or (number < 4) == (part == "one")):
                    place = folder / part / person.name / (f"{number % 4}.jpg" if both else image.name)
                    place.parent.mkdir(parents=True, exist_ok=True)
                    place.write_bytes(image.read_bytes())
    return folder / "one", folder / "two"


def test_identities_of_one_name_are_one_and_no_file_takes_another_s_place(drawn_faces, tmp_path):
    one, two = parts(drawn_faces, tmp_path)
    report = pack([one, two], OutputSpec(tmp_path / "all.tar"))
    assert content(tmp_path / "all.tar") == content(drawn_faces)
    assert [source["name"] for source in report["sources"]] == ["one", "two"]
    unpack(open_source(tmp_path / "all.tar"), tmp_path / "again")
    assert content(tmp_path / "again") == content(drawn_faces)
    shared = sorted(path.name for path in (tmp_path / "again" / "person_0003").iterdir())
    assert shared == [f"{part}_{number}.jpg" for part in ("one", "two") for number in range(4)]
    assert (tmp_path / "again" / "person_0001" / "0001.jpg").is_file()


def test_with_prefixes_identities_of_one_name_are_two(drawn_faces, tmp_path):
    one, two = parts(drawn_faces, tmp_path)
    pack([one, two], OutputSpec(tmp_path / "all"), prefix_sources=True)
    expected = {(f"{part.name}_{identity}", data) for part in (one, two) for identity, data in content(part)}
    assert set(content(tmp_path / "all")) == expected
    assert len(people(tmp_path / "all")) == 9


def test_sources_of_one_name_get_different_prefixes(drawn_faces, tmp_path):
    for number in (1, 2):
        split(
            open_source(drawn_faces),
            OutputSpec(tmp_path / f"s{number}" / "faces", 2),
            OutputSpec(tmp_path / f"h{number}.tar"),
            identities=6,
            seed=number,
        )
    shards = [str(tmp_path / f"s{number}" / "faces" / "shard-*.tar") for number in (1, 2)]
    report = pack(shards, OutputSpec(tmp_path / "all.tar"), prefix_sources=True)
    assert [source["name"] for source in report["sources"]] == ["shard", "shard_2"]
    assert len(people(tmp_path / "all.tar")) == 4


def test_people_who_have_only_numbers_are_not_taken_for_each_other(drawn_faces, tmp_path):
    for part in ("x", "y"):
        pack([drawn_faces], OutputSpec(tmp_path / part / "set"))
        (tmp_path / part / "set" / "train.lst").unlink()
    both = [tmp_path / "x" / "set", tmp_path / "y" / "set"]
    with pytest.raises(DataError, match="2 record sets are called set"):
        pack(both, OutputSpec(tmp_path / "all"))
    pack(both, OutputSpec(tmp_path / "all"), prefix_sources=True)
    assert len(people(tmp_path / "all")) == 16
    # Records without names of files are still found in a tar file, where names decide what is an image.
    pack([both[0]], OutputSpec(tmp_path / "one.tar"))
    assert sorted(data for *_, data in rows(tmp_path / "one.tar")) == sorted(data for *_, data in rows(both[0]))


def test_sources_with_and_without_identities_do_not_mix(drawn_faces, non_faces, tmp_path):
    with pytest.raises(DataError, match="things has no identities"):
        pack([drawn_faces, non_faces], OutputSpec(tmp_path / "all.tar"))
    with pytest.raises(Error, match="needs identities"):
        pack([non_faces], OutputSpec(tmp_path / "all"))
    pack([non_faces, non_faces], OutputSpec(tmp_path / "all", 2), shuffle_seed=0)
    assert content(str(tmp_path / "all" / "*.tar")) == content(non_faces) + content(non_faces)


def test_names_may_be_anything_that_files_are_called(drawn_faces, tmp_path):
    image = (drawn_faces / "person_0001" / "0001.jpg").read_bytes()
    odd = [b"line\nbreak", b"tab\tbed", "Zo\u00eb \u674e".encode(), b"no \xff text"]
    for name in odd:
        folder = os.path.join(os.fsencode(tmp_path), b"faces", name)
        os.makedirs(folder)
        for number in (b"1", b"2"):
            with open(os.path.join(folder, number + b"\n.jpg"), "wb") as file:
                file.write(image + number)
    source = open_source(tmp_path / "faces")
    for form in ("a", "b.tar"):
        pack([tmp_path / "faces"], OutputSpec(tmp_path / form))
        read = open_source(tmp_path / form)
        assert sorted(data for *_, data in rows(read)) == sorted(data for *_, data in rows(source))
        assert len(read.identities) == 4
        assert "Zo\u00eb \u674e" in read.identities
    assert set(open_source(tmp_path / "b.tar").identities) == {os.fsdecode(name) for name in odd}
    (tmp_path / "faces" / os.fsdecode(odd[3]) / "3.jpg").write_bytes(image + b"1")
    dedup(open_source(tmp_path / "faces"), OutputSpec(tmp_path / "once.tar"))
    (row,) = json.loads((tmp_path / "once.report.json").read_text())["dropped"]["list"]
    assert row["identity"] == os.fsdecode(odd[3])


def test_forms_that_cannot_be_are_refused(drawn_faces, tmp_path):
    with pytest.raises(Error, match="is one tar file"):
        OutputSpec(tmp_path / "a.tar", 2)
    with pytest.raises(Error, match="64 images cannot fill 65 shards"):
        pack([drawn_faces], OutputSpec(tmp_path / "a", 65))
    assert files_in(tmp_path) == []


def shuffled(source, seed):
    """The order as it is promised: image i at place i of the seed's permutation."""
    given = rows(source)
    places = np.random.default_rng(seed).permutation(len(given))
    return [given[index] for index in np.argsort(places)]


@pytest.mark.parametrize(
    ("out", "shards"),
    [("s", 1), ("s", 5), ("s.tar", None), ("s", None)],
    ids=["shard", "shards", "tar", "records"],
)
def test_the_order_is_the_seed_s_whatever_the_form(drawn_faces, tmp_path, out, shards):
    source = open_source(drawn_faces)
    pack([source], OutputSpec(tmp_path / out, shards), shuffle_seed=7)
    read = open_source(str(tmp_path / out / "shard-*.tar") if shards else tmp_path / out)
    assert rows(read) == shuffled(source, 7)
    assert {path.name for path in tmp_path.iterdir()} == {out, "s.report.json"}


def test_a_mixed_record_set_says_who_is_who_in_each_record(drawn_faces, tmp_path):
    source = open_source(drawn_faces)
    pack([source], OutputSpec(tmp_path / "s"), shuffle_seed=3)
    (tmp_path / "s" / "train.lst").unlink()
    read = open_source(tmp_path / "s")
    assert (np.diff(read.labels) < 0).any()  # not grouped
    assert [f"person_{label:04d}" for label in read.labels] == [row[0] for row in shuffled(source, 3)]


def test_images_that_cannot_be_decoded_are_left_out_and_named(drawn_faces, tmp_path):
    faces = tmp_path / "faces"
    unpack(open_source(drawn_faces), faces)
    broken = faces / "person_0003" / "0002.jpg"
    broken.write_bytes(broken.read_bytes()[:200])
    (faces / "person_0004" / "loop.jpg").symlink_to("loop.jpg")
    # An identity of broken images alone leaves no gap.
    for image in (faces / "person_0005").iterdir():
        image.write_bytes(b"not an image")
    report = pack([faces], OutputSpec(tmp_path / "rec"), check=True)
    dropped = {row["image"]: row["error"] for row in report["dropped"]["list"]}
    assert len(dropped) == report["dropped"]["by_reason"]["cannot be read"] == 1 + 1 + 8
    assert "truncated" in dropped[str(broken)]
    assert "Too many levels of symbolic links" in dropped[str(faces / "person_0004" / "loop.jpg")]
    records = open_source(tmp_path / "rec")
    assert len(records) == 64 - 1 - 8
    assert (tmp_path / "rec" / "property").read_text() == "7,112,112\n"
    assert "person_0005" not in records.identities
    assert set(records.labels.tolist()) == set(range(7))


def test_a_hostile_tar_member_stays_inside(tmp_path, drawn_faces):
    image = next(drawn_faces.rglob("*.jpg"))
    with tarfile.open(tmp_path / "evil.tar", "w") as tar:
        tar.add(image, arcname="../../escaped/x.jpg")
        tar.add(image, arcname="/absolute/y.jpg")
    unpack(open_source(tmp_path / "evil.tar"), tmp_path / "deep" / "down" / "out")
    assert not (tmp_path / "escaped").exists()
    assert sorted(p.name for p in (tmp_path / "deep" / "down" / "out").rglob("*.jpg")) == ["x.jpg", "y.jpg"]


def test_images_of_one_name_are_not_overwritten(tmp_path, drawn_faces):
    first, second = sorted(drawn_faces.rglob("*.jpg"))[:2]
    with tarfile.open(tmp_path / "twice.tar", "w") as tar:
        tar.add(first, arcname="a/1.jpg")
        tar.add(second, arcname="a/1.jpg")
    with pytest.raises(DataError, match="two images are called a/1"):
        unpack(open_source(tmp_path / "twice.tar"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_unpacking_into_a_folder_that_exists_is_refused(drawn_faces, tmp_path):
    with pytest.raises(Error, match="already"):
        unpack(open_source(drawn_faces), tmp_path)


def test_a_name_that_points_outside_stays_inside(tmp_path):
    class Hostile(Source):
        name, labels, identities = "hostile", np.zeros(1, dtype=np.int64), ["../../evil"]

        def __len__(self):
            return 1

        def key(self, index: int):
            return "1.jpg"

        def read(self, index: int):
            return b"x"

    unpack(Hostile(), tmp_path / "deep" / "down" / "out")
    (image,) = tmp_path.rglob("*.jpg")
    assert image.parent.parent == tmp_path / "deep" / "down" / "out"
