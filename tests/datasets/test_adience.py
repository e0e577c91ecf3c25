"""Adience, drawn in its layout."""

import csv

import pytest

from facerts.datasets import open_source
from facerts.datasets.adience import write_adience_groups
from facerts.datasets.synthetic import draw_face
from facerts.errors import DataError
from facerts.images import encode_jpeg

HEADER = "user_id\toriginal_image\tface_id\tage\tgender\tx\ty\tdx\tdy\ttilt_ang\tfiducial_yaw_angle\tfiducial_score"
LINES = {
    0: ["30@N03\ta_o.jpg\t1\t(25, 32)\tf", "30@N03\tb_o.jpg\t1\t35\tm", "30@N03\ta_o.jpg\t7\tNone\tu"],
    1: ["77@N06\t1_o.jpg\t2050\t(60, 100)\tm"],
    2: [],
    3: ['77@N06\t"2.jpg\t2050\t(0, 2)\t'],
    4: ["77@N06\t1_o.jpg\t2050\t(60, 100)\tm"],
}
KEYS = [
    *("30@N03/landmark_aligned_face.1.a_o.jpg", "30@N03/landmark_aligned_face.1.b_o.jpg"),
    *("30@N03/landmark_aligned_face.7.a_o.jpg", "77@N06/landmark_aligned_face.2050.1_o.jpg"),
    '77@N06/landmark_aligned_face.2050."2.jpg',
]


@pytest.fixture
def adience(tmp_path):
    for fold, lines in LINES.items():
        rest = "\t0\t414\t1086\t1383\t-115\t30\t17"
        text = "\n".join([HEADER, *[line + rest for line in lines]])
        (tmp_path / f"fold_{fold}_data.txt").write_text(text + "\n")
    for row, key in enumerate(KEYS):
        for path in (tmp_path / "aligned" / key, tmp_path / "faces" / key.replace("landmark", "coarse_tilt")):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(encode_jpeg(draw_face(row, 0)))
    return tmp_path


def test_adience_is_labeled_by_person_in_the_order_of_the_folds(adience):
    source = open_source(adience)
    assert [source.key(row) for row in range(len(source))] == [f"aligned/{key}" for key in KEYS]
    assert [source.identities[label] for label in source.labels] == ["1", "1", "7", "2050", "2050"]
    assert source.read(3) == encode_jpeg(draw_face(3, 0))


def test_coarse_crops_are_read_where_there_are_no_better_ones(adience):
    (adience / "aligned").rename(adience / "elsewhere")
    assert open_source(adience).key(0) == "faces/30@N03/coarse_tilt_aligned_face.1.a_o.jpg"
    (adience / "faces").rename(adience / "other")
    with pytest.raises(DataError, match=r"neither aligned nor faces, the images of fold_0_data\.txt"):
        open_source(adience)


def test_ages_and_genders_are_written_as_groups_of_images(adience, tmp_path):
    table = tmp_path / "groups.csv"
    write_adience_groups(adience, table)
    with table.open(newline="") as file:
        rows = list(csv.reader(file))
    groups = [["25 to 32", "female"], ["35", "male"], ["", ""], ["60 to 100", "male"], ["0 to 2", ""]]
    assert rows == [
        ["image", "age", "gender"],
        *[[f"aligned/{key}", *group] for key, group in zip(KEYS, groups, strict=True)],
    ]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("face_id", "face", r"fold_0_data\.txt, line 1: no column face_id"),
        ("30@N03\tb_o.jpg\t1\t", "30@N03\tb_o.jpg\tx\t", r"fold_0_data\.txt, line 3: not a user, an image"),
        ("30@N03\tb_o.jpg", "30@N03\t../b.jpg", r"fold_0_data\.txt, line 3: not a user, an image"),
        ("30@N03\tb_o.jpg", "..\tb.jpg", r"fold_0_data\.txt, line 3: not a user, an image"),
        ("b_o.jpg", "c_o.jpg", r"1 of 5 images that fold_0_data\.txt to fold_4_data\.txt list are missing"),
    ],
)
def test_a_broken_adience_is_named(adience, old, new, message):
    listing = adience / "fold_0_data.txt"
    text = listing.read_text()
    assert old in text
    listing.write_text(text.replace(old, new))
    with pytest.raises(DataError, match=message):
        open_source(adience)


def test_a_missing_or_unreadable_list_is_named(adience):
    (adience / "fold_3_data.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match=r"fold_3_data\.txt: not UTF-8 text"):
        open_source(adience)
    (adience / "fold_2_data.txt").unlink()
    with pytest.raises(DataError, match=r"fold_2_data\.txt: cannot be read"):
        open_source(adience)
