import json

import numpy as np
import pytest

from facerts.curation.output_spec import OutputSpec
from facerts.curation.rearrange import pack
from facerts.datasets import open_source
from facerts.datasets.synthetic import (
    SyntheticSource,
    draw_face,
    draw_non_face,
    write_non_faces,
    write_synthetic_faces,
)
from facerts.images import encode_jpeg
from tests.command import run


def test_the_same_arguments_draw_the_same_image():
    assert np.array_equal(draw_face(4, 2, seed=1), draw_face(4, 2, seed=1))
    assert np.array_equal(draw_non_face(3), draw_non_face(3))
    images = {draw_face(*key).tobytes() for key in ((0, 0), (0, 1), (1, 0))} | {
        draw_face(0, 0, seed=1).tobytes(),
        draw_non_face(0).tobytes(),
    }
    assert len(images) == 5


def test_a_share_of_the_written_faces_is_degraded(tmp_path):
    for name, degraded in (("none", 0.0), ("half", 0.5), ("again", 0.5), ("all", 1.0)):
        write_synthetic_faces(tmp_path / name, identities=4, images=8, seed=2, degraded=degraded)
    none, half, again, every = (
        [path.read_bytes() for path in sorted((tmp_path / name).rglob("*.jpg"))]
        for name in ("none", "half", "again", "all")
    )
    assert none[9] == encode_jpeg(draw_face(1, 1, seed=2), 90)
    assert half == again
    # Whether an image is degraded does not depend on the share, except that it grows.
    assert 8 <= sum(a != b for a, b in zip(none, half, strict=True)) <= 24
    assert sum(a != b for a, b in zip(none, every, strict=True)) == 32
    assert all(image in (before, after) for before, image, after in zip(none, half, every, strict=True))


def test_non_faces_of_some_kinds_are_written(tmp_path):
    write_non_faces(tmp_path / "all", images=8)
    write_non_faces(tmp_path / "some", images=4, kinds=("stripes", "clouds"))
    names = [f"thing_{number:04d}.jpg" for number in (1, 3, 5, 7)]
    assert sorted(path.name for path in (tmp_path / "some").iterdir()) == names
    assert len(list((tmp_path / "all").iterdir())) == 8
    assert all((tmp_path / "some" / name).read_bytes() == (tmp_path / "all" / name).read_bytes() for name in names)
    with pytest.raises(ValueError, match=r"cats.*shapes, stripes, checks, clouds"):
        write_non_faces(tmp_path / "none", images=1, kinds=("cats",))


def test_a_synthetic_source_has_any_number_of_identities_from_few_people(tmp_path):
    source = SyntheticSource(50, 3, people=20, seed=4)
    assert len(source) == 150
    assert source.labels.tolist() == [identity for identity in range(50) for _ in range(3)]
    assert source.read(7 * 3 + 1) == source.read(27 * 3 + 1) == encode_jpeg(draw_face(7, 1, seed=4), 90)
    images = {source.read(index) for index in range(150)}
    assert len(images) == 20 * 3
    pack([source], OutputSpec(tmp_path / "packed"))
    packed = open_source(tmp_path / "packed")
    assert len(packed.identities) == 50
    assert [packed.read(index) for index in range(150)] == [source.read(index) for index in range(150)]


def test_the_command_writes_records_and_shards(tmp_path, capsys):
    for layout, shards in (("rec", []), ("tar", ["--shards", "2"])):
        out = tmp_path / layout
        options = ["--identities", "12", "--images", "2", "--people", "5", "--json", *shards]
        assert run("data", "generate", "--out", out, *options) == 0
        (written,) = json.loads(capsys.readouterr().out)["written"]
        assert (written["images"], written["identities"]) == (24, 12)
        source = open_source(out if layout == "rec" else str(out / "*.tar"))
        assert sorted(source.read(i) for i in range(24)) == sorted(
            SyntheticSource(12, 2, people=5).read(i) for i in range(24)
        )
