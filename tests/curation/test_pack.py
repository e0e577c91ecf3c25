from __future__ import annotations

import tarfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from facerts.curation.pack import pack_records, pack_shards, unpack
from facerts.datasets import Source, open_source
from facerts.errors import DataError, Error
from tests.contents import rows


def content(source: Source) -> Counter[tuple[str, str, bytes]]:
    """Identity, file name and bytes of every image, whatever the order."""
    return Counter(rows(source))


def test_folder_to_records_to_folder_loses_nothing(drawn_faces: Path, tmp_path: Path) -> None:
    folder = open_source(drawn_faces)
    packed = pack_records(folder, tmp_path / "rec")
    assert (packed.images, packed.identities, packed.left_out) == (64, 8, [])
    assert (tmp_path / "rec" / "property").read_text() == "8,112,112\n"
    records = open_source(tmp_path / "rec")
    assert content(records) == content(folder)
    unpack(records, tmp_path / "again")
    assert content(open_source(tmp_path / "again")) == content(folder)


def test_folder_to_shards_to_records_loses_nothing(drawn_faces: Path, tmp_path: Path) -> None:
    folder = open_source(drawn_faces)
    packed = pack_shards(folder, tmp_path / "tar", images_per_shard=25)
    assert [path.name for path in packed.files] == [f"shard-00000{n}.tar" for n in range(3)]
    shards = open_source(str(tmp_path / "tar" / "*.tar"))
    assert content(shards) == content(folder)
    with pytest.raises(Error, match="has shards already"):
        pack_shards(folder, tmp_path / "tar", images_per_shard=40)
    pack_records(shards, tmp_path / "rec")
    assert content(open_source(tmp_path / "rec")) == content(folder)


def test_a_broken_image_is_left_out_and_named(drawn_faces: Path, tmp_path: Path) -> None:
    broken = tmp_path / "faces"
    unpack(open_source(drawn_faces), broken)
    victim = sorted((broken / "person_0003").iterdir())[2]
    victim.write_bytes(victim.read_bytes()[:200])
    (broken / "person_0004" / "empty.jpg").write_bytes(b"")
    packed = pack_records(open_source(broken), tmp_path / "rec")
    assert packed.images == len(open_source(tmp_path / "rec")) == 63
    assert len(packed.left_out) == 2
    assert any(victim.name in problem for problem in packed.left_out)
    (broken / "person_0004" / "loop.jpg").symlink_to("loop.jpg")
    left_out = pack_records(open_source(broken), tmp_path / "again").left_out
    assert left_out[-1].endswith("loop.jpg: cannot be read (Too many levels of symbolic links)")
    # An identity of broken images alone leaves no gap.
    for image in (broken / "person_0003").iterdir():
        image.write_bytes(b"not an image")
    assert pack_records(open_source(broken), tmp_path / "gone").identities == 7
    records = open_source(tmp_path / "gone")
    assert "person_0003" not in records.identities
    assert records.labels is not None
    assert set(records.labels.tolist()) == set(range(7))


def test_images_without_identities_are_refused_as_records(non_faces: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="needs identities"):
        pack_records(open_source(non_faces), tmp_path / "rec")
    assert pack_shards(open_source(non_faces), tmp_path / "tar").images == 24


def test_nothing_decodable_writes_nothing(tmp_path: Path) -> None:
    for person in ("a", "b"):
        (tmp_path / "bad" / person).mkdir(parents=True)
        (tmp_path / "bad" / person / "1.jpg").write_bytes(b"no")
    with pytest.raises(DataError, match="none of its images can be decoded"):
        pack_records(open_source(tmp_path / "bad"), tmp_path / "rec")
    assert not any((tmp_path / "rec").iterdir())


def test_unpacking_into_a_folder_that_exists_is_refused(drawn_faces: Path, tmp_path: Path) -> None:
    with pytest.raises(Error, match="exists"):
        unpack(open_source(drawn_faces), tmp_path)


def test_a_name_that_points_outside_stays_inside(tmp_path: Path) -> None:
    class Hostile(Source):
        name, labels, identities = "hostile", np.zeros(1, dtype=np.int64), ["../../evil"]

        def __len__(self) -> int:
            return 1

        def key(self, index: int) -> str:
            return "1.jpg"

        def read(self, index: int) -> bytes:
            return b"x"

    unpack(Hostile(), tmp_path / "deep" / "down" / "out")
    (image,) = tmp_path.rglob("*.jpg")
    assert image.parent.parent == tmp_path / "deep" / "down" / "out"


def test_a_hostile_tar_member_stays_inside(tmp_path: Path, drawn_faces: Path) -> None:
    image = next(drawn_faces.rglob("*.jpg"))
    with tarfile.open(tmp_path / "evil.tar", "w") as tar:
        tar.add(image, arcname="../../escaped/x.jpg")
        tar.add(image, arcname="/absolute/y.jpg")
    unpack(open_source(tmp_path / "evil.tar"), tmp_path / "deep" / "down" / "out")
    assert not (tmp_path / "escaped").exists()
    assert sorted(p.name for p in (tmp_path / "deep" / "down" / "out").rglob("*.jpg")) == ["x.jpg", "y.jpg"]


def test_images_of_one_name_are_not_overwritten(tmp_path: Path, drawn_faces: Path) -> None:
    first, second = sorted(drawn_faces.rglob("*.jpg"))[:2]
    with tarfile.open(tmp_path / "twice.tar", "w") as tar:
        tar.add(first, arcname="a/1.jpg")
        tar.add(second, arcname="a/1.jpg")
    with pytest.raises(DataError, match="two images are called a/1"):
        unpack(open_source(tmp_path / "twice.tar"), tmp_path / "out")
    assert not (tmp_path / "out").exists()
