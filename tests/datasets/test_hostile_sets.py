"""Data sets that claim data they do not have: refused with a clear error, in bounded memory and time."""

import tarfile

import pytest

from facerts.datasets import adience, open_images, open_source
from facerts.datasets.synthetic import draw_face
from facerts.errors import DataError
from facerts.images import MAX_BYTES, encode_jpeg
from tests.contents import write_each
from tests.hostile import archives, lists, pickles, records
from tests.hostile.sandbox import read_bounded

FACE = encode_jpeg(draw_face(0, 0))


def write_set(folder, content):
    folder.mkdir()
    for ending, data in content._asdict().items():
        if data is not None:
            (folder / f"train.{ending}").write_bytes(data)
    return folder / "train.rec"


# What can be read all the same.
READ_TAR = {
    "a name with NUL",
    "a name outside the archive",
    "a size that is not a number",  # tarfile falls back to the header's size
}
READ_BIN = {"images that are 100 GB"}  # the same image may be listed many times


@pytest.mark.parametrize(
    ("hostile", "suffix", "read"),
    [(archives.HOSTILE, ".tar", READ_TAR), (pickles.HOSTILE, ".bin", READ_BIN)],
    ids=["tar", "bin"],
)
def test_hostile_files_are_refused_within_bounds(tmp_path, hostile, suffix, read):
    paths = write_each(tmp_path, hostile, suffix)
    messages = read_bounded("source", paths).values()
    assert {what for what, message in zip(hostile, messages, strict=True) if not message} == read
    for message, path in zip(messages, paths, strict=True):
        assert not message or message.startswith(f"{path}: ")


def test_hostile_record_sets_are_refused_within_bounds(tmp_path):
    paths = [write_set(tmp_path / str(number), content) for number, content in enumerate(records.HOSTILE.values())]
    messages = dict(zip(records.HOSTILE, read_bounded("source", paths).values(), strict=True))
    assert {what for what, message in messages.items() if not message} == {
        "keys of 10^40",
        "a length of 2^29",  # of the header record, of which only the first bytes are read
        "names of any bytes",
    }
    for message, path in zip(messages.values(), paths, strict=True):
        assert not message or message.startswith(str(path.parent))


@pytest.mark.parametrize(
    ("kind", "name", "columns", "refused"),
    [
        ("report", "check.csv", ("person", "path"), ""),
        ("pairs", "pairs.csv", ("first", "second", "same"), "images that pairs.csv lists are missing"),
        ("pairs", "pairs.csv", ("first", "same", "second"), "line 2: the list reads as PATH LABEL PATH - -"),
        ("adience", adience.FOLDS[0], adience.COLUMNS, ""),
    ],
)
def test_the_columns_of_a_table_are_not_read_for_each_row(tmp_path, kind, name, columns, refused):
    (tmp_path / "aligned").mkdir()
    for fold in adience.FOLDS[1:]:
        (tmp_path / fold).write_text("\t".join(columns))
    path = tmp_path / name
    path.write_bytes(lists.wide_table(columns, "," if path.suffix == ".csv" else "\t"))
    (message,) = read_bounded(kind, [path], memory=256 << 20, seconds=20).values()
    assert refused in message if refused else not message, message[:200]


@pytest.mark.slow
def test_a_bad_line_of_a_list_fails_alone(tmp_path):
    (tmp_path / "there.jpg").write_bytes(FACE)
    for number, content in enumerate(lists.HOSTILE.values()):
        (tmp_path / f"{number}.txt").write_bytes(content)
        source = open_images(tmp_path / f"{number}.txt")
        for index in range(min(len(source) - 1, 10)):
            with pytest.raises(DataError):
                source.read(index)
        assert source.read(len(source) - 1) == FACE
    read_bounded("source", [tmp_path / f"{number}.txt" for number in range(len(lists.HOSTILE))])


@pytest.mark.parametrize("content", lists.REFUSED.values(), ids=lists.REFUSED)
def test_a_file_that_is_not_a_list_is_refused(tmp_path, content):
    (tmp_path / "there.jpg").write_bytes(FACE)
    (tmp_path / "list.txt").write_bytes(content)
    with pytest.raises(DataError, match=r"list\.txt: the list is (empty|UTF-16)"):
        open_images(tmp_path / "list.txt")


def test_a_list_may_contain_file_names_that_are_not_utf8(tmp_path):
    (tmp_path / "Größe.jpg").write_bytes(FACE)
    with open(bytes(tmp_path) + "/Jürgen.jpg".encode("latin1"), "wb") as file:
        file.write(FACE)
    (tmp_path / "list.txt").write_bytes("\ufeffGröße.jpg\n".encode() + "Jürgen.jpg\n".encode("latin1"))
    source = open_source(tmp_path / "list.txt")
    assert [source.read(index) for index in range(2)] == [FACE, FACE]


def test_a_member_of_three_gigabytes_fails_alone(tmp_path):
    size = 3 << 30
    with (tmp_path / "large.tar").open("wb") as file:
        file.write(archives.header("a/1.jpg", size))
        file.seek(size, 1)  # a hole, so that it takes no disk space
        file.write(archives.member("a/2.jpg", FACE) + archives.END)
    source = open_source(tmp_path / "large.tar")
    with pytest.raises(DataError, match=rf"a/1\.jpg .*{size:,} bytes, more than the limit of {MAX_BYTES:,}"):
        source.read(0)
    assert source.read(1) == FACE


def test_data_after_the_last_indexed_record_is_not_read(tmp_path):
    path = write_set(tmp_path / "set", records.records(records.labeled(0.0, FACE)))
    with path.open("r+b") as file:
        file.truncate(3 << 30)
    assert read_bounded("source", [path]) == {path: ""}
    assert open_source(path).read(0) == FACE


def test_ordinary_tar_files_of_every_format_are_read(tmp_path):
    long = f"{'person ' * 20}/{'x' * 120}.jpg"
    for form in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        with tarfile.open(tmp_path / "t.tar", "w", format=form) as archive:
            for name in ("Jürgen/1.jpg", "b/2.jpg") if form == tarfile.USTAR_FORMAT else (long, "Jürgen/1.jpg"):
                member = tarfile.TarInfo(name)
                member.size = len(FACE)
                with (tmp_path / "face").open("w+b") as file:
                    file.write(FACE)
                    file.seek(0)
                    archive.addfile(member, file)
        source = open_source(tmp_path / "t.tar")
        assert [source.read(index) for index in range(2)] == [FACE, FACE]
        assert "Jürgen/1.jpg" in {source.key(index) for index in range(2)}
