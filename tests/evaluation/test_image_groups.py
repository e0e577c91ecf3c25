"""Which image is in which group: tables, ranges, and what is wrong with them."""

import os

import pytest

from facerts.errors import DataError, Error
from facerts.evaluation.image_groups import in_order, read_groups
from facerts.io.csv_file import MAX_BYTES


def table(folder, text):
    path = folder / "groups.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def test_a_table_names_images_by_their_keys_or_by_paths_that_end_with_them(tmp_path):
    text = "image,sex,camera\n/data/faces/ann/1.jpg,woman,\nann\\2.jpg, woman ,door\nbob/1.jpg,man,door\nno.jpg,,\n"
    values, notes = read_groups(table(tmp_path, "\ufeff" + text)).of(["ann/1.jpg", "bob/1.jpg", "ann/2.jpg"])
    assert {name: column.tolist() for name, column in values.items()} == {
        "sex": ["woman", "man", "woman"],
        "camera": ["", "door", "door"],
    }
    assert notes == [
        "groups.csv: 1 of 4 rows name no image.",
        "camera is unknown for 1 of 3 images, the first is ann/1.jpg.",
    ]


def test_a_row_belongs_to_the_longest_key_that_its_name_ends_with(tmp_path):
    path = table(tmp_path, "image,sex\nx/ann/1.jpg,woman\n1.jpg,man\n")
    values, notes = read_groups(path).of(["1.jpg", "ann/1.jpg"])
    assert values["sex"].tolist() == ["man", "woman"]
    assert notes == []


def test_rows_that_agree_count_as_one_and_others_are_refused(tmp_path):
    same = table(tmp_path, "image,sex\na/1.jpg,man\nb/1.jpg,man\n")
    assert read_groups(same).of(["1.jpg"]) == ({"sex": ["man"]}, [])
    different = table(tmp_path, "image,sex\na/1.jpg,man\n\nb/1.jpg,woman\n")
    with pytest.raises(DataError, match=r"rows 1 and 2 say different things about 1\.jpg"):
        read_groups(different).of(["1.jpg"])


@pytest.mark.parametrize(
    ("values", "edges", "expected"),
    [
        (
            ["12", "13", "19", "20", "60", "-3"],
            "13,20,60",
            ["below 13", "13 to 19", "13 to 19", "20 to 59", "60 and above", "below 13"],
        ),
        (["12.9", "13", "20"], "13, 20", ["below 13", "[13, 20)", "20 and above"]),
        (["1", "2", "3"], "2,3", ["below 2", "2", "3 and above"]),
        (["1", "2"], "1.5", ["below 1.5", "1.5 and above"]),
        (["0", "1"], "0.5,1", ["below 0.5", "1 and above"]),
    ],
)
def test_numbers_are_put_into_ranges(tmp_path, values, edges, expected):
    rows = "".join(f"{row}.jpg,{value}\n" for row, value in enumerate(values))
    groups = read_groups(table(tmp_path, f"image,age\n{rows}"), [f"age={edges}"])
    assert groups.of([f"{row}.jpg" for row in range(len(values))])[0]["age"].tolist() == expected


def test_groups_are_listed_as_people_would():
    ages = ["100 and above", "9 to 99", "below 9"]
    assert in_order([*ages, *ages]) == ages[::-1]
    assert in_order(["[2.5, 10)", "10 and above", "below 2.5", "[10, 20)"])[:2] == ["below 2.5", "[2.5, 10)"]
    assert in_order(["woman", "man"]) == ["man", "woman"]
    assert in_order(["10", "9"]) == ["9", "10"]


def test_too_many_groups_ask_for_edges(tmp_path):
    def of(values, edges=()):
        rows = "".join(f"{row}.jpg,{value}\n" for row, value in enumerate(values))
        groups = read_groups(table(tmp_path, f"image,age\n{rows}"), edges)
        return len(set(groups.of([f"{row}.jpg" for row in range(len(values))])[0]["age"].tolist()))

    assert of([str(age) for age in range(20)]) == 20
    with pytest.raises(DataError, match=r"age has 21 different numbers; give edges \(--group-edges age=…\)"):
        of([str(age) for age in range(21)])
    assert of([f"v{age}" for age in range(50)]) == 50
    with pytest.raises(DataError, match="age has 51 groups, 50 at most; give edges"):
        of([f"v{age}" for age in range(51)])
    assert of([str(age) for age in range(99)], ("age=50",)) == 2
    with pytest.raises(DataError, match=r"age of 1\.jpg is 'old', not a number"):
        of(["3", "old"], ("age=50",))
    with pytest.raises(DataError, match="'nan', not a number"):
        of(["nan"], ("age=50",))


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        (["sex=3"], "no attribute 'sex', only age"),
        (["age=3", "age=4"], "'age' twice"),
        (["age"], "not ATTRIBUTE=NUMBER"),
        (["age=3,x"], "not ATTRIBUTE=NUMBER"),
        (["age="], "not ATTRIBUTE=NUMBER"),
        (["age=1e5"], "not ATTRIBUTE=NUMBER"),
        (["age=20,13"], "must ascend"),
        (["age=13,13"], "must ascend"),
        (["age=" + ",".join(map(str, range(50)))], "49 numbers at most"),
    ],
)
def test_malformed_options_say_what_to_write(tmp_path, edges, message):
    ages = table(tmp_path, "image,age\n1.jpg,3\n")
    with pytest.raises(Error, match=message):
        read_groups(ages, edges)
    with pytest.raises(DataError, match=r"no\.csv: cannot be read"):
        read_groups(tmp_path / "no.csv")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the header must be image"),
        (b"image\n1.jpg\n", "the header must be image"),
        (b"name,age\n1.jpg,3\n", "the header must be image"),
        (b"image,,age\n1.jpg,,3\n", "the header must be image"),
        (b"image," + b",".join(b"a%d" % n for n in range(51)) + b"\n", "at most 50 attributes"),
        (b"image," + b"a" * 101 + b"\n", "at most 50 attributes, with printable names of at most 100"),
        (b"image,a\x07\n", "printable names"),
        (b"image,age\n", "no rows below the header"),
        (b"image,age\n1.jpg,3,4\n", "line 2: 3 fields, but the header has 2"),
        (b"image,age\n1.jpg," + b"3" * 200_000, "not a CSV file in UTF-8"),
        (b"image,age\n2.jpg,3\n", r"no row names an image; the first row is 2\.jpg, an image is 1\.jpg"),
        (b"image,age\n1.jpg," + b"x" * 101 + b"\n", r"age of 1\.jpg has 101 characters"),
    ],
)
def test_broken_tables_are_refused(tmp_path, content, message):
    with pytest.raises(DataError, match=message):
        read_groups(table(tmp_path, content)).of(["1.jpg"])


def test_endless_files_are_not_read(tmp_path):
    path = table(tmp_path, "image,age\n1.jpg,3\n")
    os.truncate(path, MAX_BYTES + 1)  # a hole, so that it takes no disk space
    with pytest.raises(DataError, match=r"groups\.csv: larger than 256 MiB"):
        read_groups(path)


def test_names_of_groups_have_no_control_characters(tmp_path):
    values, _ = read_groups(table(tmp_path, "image,age\n1.jpg,\x1b[31m3\n")).of(["1.jpg"])
    assert values["age"].tolist() == ["\\x1b[31m3"]


def test_no_images_have_no_groups(tmp_path):
    values, notes = read_groups(table(tmp_path, "image,age\n1.jpg,3\n")).of([])
    assert {name: len(column) for name, column in values.items()} == {"age": 0}
    assert notes == ["groups.csv: 1 of 1 rows name no image."]
