import pickle

import pytest

from facerts.datasets import open_source
from facerts.datasets import records as records_module
from facerts.datasets.recordio import pack_labeled, write_record
from facerts.errors import DataError


def write_set(folder, records, name="train"):
    folder.mkdir(exist_ok=True)
    with (folder / f"{name}.rec").open("wb") as rec, (folder / f"{name}.idx").open("w") as idx:
        for key, payload in records.items():
            write_record(rec, idx, key, payload)
    return folder


def standard_layout(labels, per_image=None):
    """Header, images and identity records as in insightface's sets, with images grouped by label."""
    images = len(labels)
    people = sorted(set(labels))
    table = {0: pack_labeled((float(images + 1), float(images + 1 + len(people))), 0, b"")}
    for key, label in enumerate(labels, 1):
        own = (float(label), *per_image) if per_image else float(label)
        table[key] = pack_labeled(own, key, b"image %d" % key)
    for number, person in enumerate(people):
        first = labels.index(person) + 1
        bounds = (float(first), float(first + labels.count(person)))
        table[images + 1 + number] = pack_labeled(bounds, images + 1 + number, b"")
    return table


@pytest.mark.parametrize("per_image", [None, (5.0,), (1.0, 2.0, 3.0)])
def test_the_standard_layout_gives_images_and_labels(tmp_path, per_image):
    source = open_source(write_set(tmp_path / "casia", standard_layout([0, 0, 0, 1, 2, 2], per_image)))
    assert source.name == "casia"
    assert len(source) == 6
    assert source.labels.tolist() == [0, 0, 0, 1, 2, 2]
    assert [source.read(i) for i in range(6)] == [b"image %d" % key for key in range(1, 7)]


def test_labels_with_gaps_are_renumbered(tmp_path):
    # The identity records are numbered without gaps, but the images' own labels are not: the latter count.
    source = open_source(write_set(tmp_path / "gaps", standard_layout([3, 3, 7, 40, 40])))
    assert source.labels.tolist() == [0, 0, 1, 2, 2]
    assert source.identities == ["gaps_0000003", "gaps_0000007", "gaps_0000040"]


def test_without_a_header_every_record_is_an_image(tmp_path):
    table = {key: pack_labeled(float(key % 3), key, b"%d" % key) for key in range(9)}
    source = open_source(write_set(tmp_path / "plain", table))
    assert source.labels.tolist() == [0, 1, 2] * 3


def test_labels_beyond_float32_precision_are_read_from_the_images(tmp_path, monkeypatch):
    # Pretend that float32 is exact only up to 4: ranges beyond are not trusted, but labels must still be right.
    monkeypatch.setattr(records_module, "EXACT_IN_FLOAT32", 4)
    table = standard_layout([0, 0, 1, 1, 1, 2, 2])
    table[0] = pack_labeled((9.0, 12.0), 0, b"")  # rounded: the first identity record is 8
    source = open_source(write_set(tmp_path / "large", table))
    assert source.labels.tolist() == [0, 0, 1, 1, 1, 2, 2]
    assert len(source) == 7


def test_an_invalid_label_is_refused_with_its_record(tmp_path):
    table = standard_layout([0, 1])
    table[2] = pack_labeled(float("nan"), 2, b"x")
    with pytest.raises(DataError, match="record 2: the label is not a valid number"):
        open_source(write_set(tmp_path / "nan", table))


def test_a_list_of_another_length_is_refused(tmp_path):
    folder = write_set(tmp_path / "listed", standard_layout([0, 1]))
    (folder / "train.lst").write_text("1\t0\ta/1.jpg\n")
    with pytest.raises(DataError, match="1 lines for 2 images"):
        open_source(folder)


def test_a_folder_with_two_record_files_is_refused(tmp_path):
    folder = write_set(tmp_path / "two", standard_layout([0, 1]), "one")
    write_set(folder, standard_layout([0, 1]), "other")
    with pytest.raises(DataError, match="give one of them"):
        open_source(folder)
    assert len(open_source(folder / "other.rec")) == 2


def test_a_source_can_be_sent_to_another_process(tmp_path):
    source = open_source(write_set(tmp_path / "sent", standard_layout([0, 0, 1])))
    source.read(1)
    assert pickle.loads(pickle.dumps(source)).read(2) == b"image 3"
