import io
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest

from facerts.curation.output_spec import OutputSpec
from facerts.curation.rearrange import pack
from facerts.datasets import Subset, open_images, open_source
from facerts.datasets.bin_set import write_bin
from facerts.datasets.sampler import hold_out_identities
from facerts.datasets.synthetic import SyntheticSource
from facerts.errors import DataError, ImageError
from facerts.images import encode_png


def shard(path, members, mode="w"):
    with tarfile.open(path, mode) as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def test_a_folder_by_identity(drawn_faces):
    source = open_source(drawn_faces)
    assert (len(source), len(source.identities)) == (64, 8)
    assert source.key(9) == "person_0001/0001.jpg"
    assert source.labels[9] == 1
    assert source.read(9) == (drawn_faces / "person_0001" / "0001.jpg").read_bytes()
    assert source.location(9) == str(drawn_faces / "person_0001" / "0001.jpg")


def test_a_folder_of_both_kinds_is_refused_for_training_and_read_for_scoring(tmp_path):
    (tmp_path / "person").mkdir()
    (tmp_path / "person" / "1.jpg").write_bytes(b"1")
    (tmp_path / "2.jpg").write_bytes(b"2")
    with pytest.raises(DataError, match="both images and subfolders with images"):
        open_source(tmp_path)
    images = open_images(tmp_path)
    assert [images.key(i) for i in range(2)] == ["2.jpg", "person/1.jpg"]


def test_hidden_and_other_files_are_skipped(tmp_path):
    (tmp_path / "a").mkdir()
    for name in (".hidden.jpg", "notes.txt", "Thumbs.db", "ok.JPG"):
        (tmp_path / "a" / name).write_bytes(b"x")
    assert [open_source(tmp_path).key(0)] == ["a/ok.JPG"]


@pytest.mark.parametrize("opener", [open_source, open_images])
def test_folders_of_systems_are_skipped_and_counted_unless_they_are_given(tmp_path, opener, capsys):
    folders = ("zoe", "__MACOSX", "zoe/@eaDir/1.jpg", ".thumbnails", "zoe/.@__thumb", "#recycle")
    for folder in folders:
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "1.jpg").write_bytes(b"image")
    (tmp_path / "__MACOSX" / "._1.jpg").write_bytes(b"no image")
    (tmp_path / "lost+found").mkdir()
    source = opener(tmp_path)
    assert [source.key(index) for index in range(len(source))] == ["zoe/1.jpg"]
    assert f"{tmp_path}: skipped 5 images in 5 folders of" in capsys.readouterr().err
    assert len(opener(tmp_path / "__MACOSX")) == 1
    assert not capsys.readouterr().err


def test_names_of_people_that_differ_only_in_form_are_warned_of_once(tmp_path, capsys):
    members = {f"{name}/1.jpg": b"" for name in ("Zo\xeb", "Zoe\u0308", "Anna", "anna", "Ann")}
    source = open_source([shard(tmp_path / "a.tar", members), shard(tmp_path / "b.tar", {"ANNA/1.jpg": b""})])
    assert len(source.identities) == 6
    expected = "normalization: ANNA and Anna and anna; Zoe\u0308 (decomposed) and Zo\xeb; if"
    error = capsys.readouterr().err
    assert (error.count("warning"), expected in error) == (1, True)


@pytest.mark.parametrize("folder", ["", "person"])
def test_what_cannot_be_read_is_listed_and_the_error_comes_with_reading(tmp_path, folder):
    inside = tmp_path / folder
    inside.mkdir(exist_ok=True)
    (inside / "a.jpg").write_bytes(b"image")
    for name, target in {"gone": "nowhere", "loop": "loop.jpg"}.items():
        (inside / f"{name}.jpg").symlink_to(target)
    os.mkfifo(inside / "pipe.jpg")
    (tmp_path / "folders").symlink_to("folders")
    keys = [str(Path(folder, name)) for name in ("a.jpg", "gone.jpg", "loop.jpg", "pipe.jpg")]
    for opened in (open_source(tmp_path), open_images(tmp_path)):
        assert [opened.key(index) for index in range(len(opened))] == keys
        for index, problem in enumerate(["No such file", "symbolic links", "not a file"], 1):
            with pytest.raises(DataError, match=problem):
                opened.read(index)


def test_images_of_an_identity_are_ordered_by_path_and_links_below_it_not_followed(tmp_path):
    for name in ("p/a-b.jpg", "p/a/b.jpg", "p/a.jpg", "q/1.jpg"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"image")
    (tmp_path / "p" / "up").symlink_to("..")
    (tmp_path / "r").symlink_to("q")
    source = open_source(tmp_path)
    keys = [source.key(index) for index in range(len(source))]
    assert keys == ["p/a/b.jpg", "p/a-b.jpg", "p/a.jpg", "q/1.jpg", "r/1.jpg"]


@pytest.mark.parametrize("opener", [open_source, open_images])
def test_an_empty_folder_is_refused(tmp_path, opener):
    with pytest.raises(DataError, match="no images found"):
        opener(tmp_path)


def test_missing_and_unknown_paths_are_named(tmp_path):
    with pytest.raises(DataError, match="nothing matches"):
        open_source(tmp_path / "none-*.tar")
    with pytest.raises(DataError, match="no such file or folder"):
        open_source(tmp_path / "none")
    (tmp_path / "x.xyz").write_bytes(b"")
    with pytest.raises(DataError, match=r"x\.xyz: not a source"):
        open_source(tmp_path / "x.xyz")


@pytest.mark.parametrize("opener", [open_source, open_images])
def test_a_pipe_is_not_waited_for(tmp_path, opener):
    for suffix in ("tar", "bin", "txt", "rec"):
        os.mkfifo(tmp_path / f"pipe.{suffix}")
        with pytest.raises(DataError, match=rf"pipe\.{suffix}: not a file or folder"):
            opener(str(tmp_path / f"*.{suffix}"))
    os.mkfifo(tmp_path / "pipe.jpg")
    assert len(opener(str(tmp_path / "*.jpg"))) == 1


def test_the_error_on_a_missing_image_names_the_line_of_the_list(tmp_path):
    (tmp_path / "a.jpg").write_bytes(b"a")
    (tmp_path / "list.txt").write_text("a.jpg\n\nb.jpg\n")
    with pytest.raises(DataError, match=r"line 2: no file .*b\.jpg"):
        open_source(tmp_path / "list.txt")
    (tmp_path / "b.jpg").write_bytes(b"b")
    source = open_source(tmp_path / "list.txt")
    assert [source.read(i) for i in range(2)] == [b"a", b"b"]
    (tmp_path / "empty.txt").write_text("\n")
    with pytest.raises(DataError, match="the list is empty"):
        open_source(tmp_path / "empty.txt")


def test_a_shard_is_read_by_offset(tmp_path):
    members = {f"p{n // 3}/{n}.jpg": bytes([n]) * (n + 1) for n in range(9)} | {"p0/readme.txt": b"not an image"}
    source = open_source(shard(tmp_path / "s.tar", members))
    assert len(source) == 9
    assert source.labels.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    for index in np.random.default_rng(0).permutation(9):
        assert source.read(int(index)) == members[source.key(int(index))]


def test_identities_may_span_several_shards(tmp_path):
    shard(tmp_path / "s-0.tar", {"a/1.jpg": b"1", "b/1.jpg": b"2"})
    shard(tmp_path / "s-1.tar", {"b/2.jpg": b"3", "c/1.jpg": b"4"})
    source = open_source(tmp_path / "s-*.tar")
    assert list(source.identities) == ["a", "b", "c"]
    assert source.labels.tolist() == [0, 1, 1, 2]
    assert [source.read(i) for i in (0, 3, -1)] == [b"1", b"4", b"4"]


@pytest.mark.parametrize("damage", ["truncated", "compressed", "text", "no images"])
def test_a_broken_shard_is_named(tmp_path, damage):
    path = tmp_path / "s.tar"
    members = {"a/1.jpg": bytes(3000), "a/2.jpg": bytes(3000)}
    if damage == "compressed":
        shard(path, members, "w:gz")
    elif damage == "no images":
        shard(path, {"a/readme.txt": b"x"})
    else:
        shard(path, members)
        content = path.read_bytes()
        path.write_bytes(content[: 512 + 3072 + 700] if damage == "truncated" else b"hello" * 500)
    with pytest.raises(DataError, match=r"s\.tar"):
        open_source(path)


def test_a_subset_renumbers_its_labels(drawn_faces):
    source = open_source(drawn_faces)
    subset = Subset(source, [60, 9, 61])
    assert subset.labels.tolist() == [1, 0, 1]
    assert list(subset.identities) == ["person_0001", "person_0007"]
    assert subset.read(1) == source.read(9)
    assert subset.location(1) == source.location(9)


def test_every_source_knows_the_files_of_its_images(drawn_faces, tmp_path):
    face = (drawn_faces / "person_0000" / "0000.jpg").read_bytes()
    tar = shard(tmp_path / "a.tar", {"x/1.jpg": face, "x/2.jpg": face})
    write_bin(tmp_path / "b.bin", [face, face], [True])
    pack([drawn_faces], OutputSpec(tmp_path / "rec"))
    (tmp_path / "list.txt").write_text("gone.jpg\nb.bin\n")
    single = drawn_faces / "person_0001" / "0001.jpg"
    for spec, files in (
        (drawn_faces, [drawn_faces / "person_0000" / "0000.jpg", drawn_faces / "person_0000" / "0001.jpg"]),
        (tar, [tar, tar]),
        (tmp_path / "b.bin", [tmp_path / "b.bin"] * 2),
        (tmp_path / "rec", [tmp_path / "rec" / "train.rec"] * 2),
        (tmp_path / "list.txt", [tmp_path / "gone.jpg", tmp_path / "b.bin"]),
        ([single, tar], [single, tar, tar]),
    ):
        source = open_images(spec)
        assert [source.file_of(index) for index in range(len(files))] == files
    assert Subset(open_source([single, tar]), [2, 0]).file_of(1) == single
    assert SyntheticSource(2, 2).file_of(0) is None


def test_a_broken_crop_is_named(tmp_path):
    (tmp_path / "tiny.png").write_bytes(encode_png(np.zeros((3, 3, 3), dtype=np.uint8)))
    with pytest.raises(ImageError, match=rf"^{tmp_path}/tiny\.png: 3 x 3 pixels are too few"):
        open_source(tmp_path).crop(0)


def test_held_out_identities_are_in_one_part_only(drawn_faces):
    source = open_source(drawn_faces)
    kept, held = hold_out_identities(source, 3, seed=4)
    assert set(kept.identities) | set(held.identities) == set(source.identities)
    assert not set(kept.identities) & set(held.identities)
    assert (len(kept), len(held)) == (40, 24)
    with pytest.raises(DataError, match="cannot hold out 8 identities of 8"):
        hold_out_identities(source, 8, seed=4)
