"""Lists of pairs, in the layouts that people have them in."""

import numpy as np
import pytest

from facerts.datasets import load_pair_list
from facerts.datasets.synthetic import draw_face
from facerts.errors import DataError
from facerts.images import encode_jpeg
from facerts.scoring.pair_list import read_pair_list

A, B, C = "Ann/Ann_0001.jpg", "Ann/Ann_0002.jpg", "m.0 Bob/m.0 Bob_0004.jpg"
C2 = "m.0/m.0_0004.jpg"  # without a space

NAMED = "first,second,same,first_subject,second_subject"

# The name of each list, and its lines of a genuine and an impostor pair, below its first lines.
READ = {
    "LFW's, with tabs": ("rfw.txt", "", "Ann\t1\t2", "Ann\t1\tm.0 Bob\t4"),
    "LFW's, with spaces and both numbers": ("pairs.txt", "6 1", "Ann 1 2", "Ann 1 m.0 4"),
    "LFW's, with one number": ("devtest", "6", "Ann 1 2", "Ann 1 m.0 4"),
    "LFW's, with commas": ("lfw.csv", "", "Ann,1,2", "Ann,1,m.0 Bob,4"),
    "the label last": ("pairs.lst", "", f"{A} {B} 1", f"{A} {C2} 0"),
    "the label first, 1 and -1": ("pairs.txt", "", f"1\t{A}\t{B}", f"-1\t{A}\t{C}"),
    "semicolons, yes and no": ("pairs.csv", "", f"{A};{B};yes", f"{A};{C};No"),
    "commas in a .txt, same and different": ("pairs.txt", "", f"{A}, {B}, same", f"{A}, {C}, different"),
    "image1, image2, issame": ("a.csv", "image1,image2,issame", f"{A},{B},True", f'{A},"{C}",False'),
    "an index, and any order": (
        "b.csv",
        ",label,img_2,Img_1,age",
        f"0,genuine,{B},{A},4",
        f"1,IMPOSTOR,{C},{A},5",
    ),
    "path1, path2 and folds from 1": (
        "c.tsv",
        "target\tfold\tpath1\tpath2",
        f"1\t1\t{A}\t{B}",
        f"0\t10\t{A}\t{C}",
    ),
    "folds and people": (
        "e.csv",
        "same,fold,first,first_subject,second,second_subject",
        f"1,7,{A},Ann,{B},Ann",
        f"0,2,{A},Ann,{C},Bob",
    ),
    "people of some pairs": ("f.csv", f"{NAMED}", f"{A},{B},1,Ann,Ann", f"{A},{C},0,,"),
    "spaces and names": ("d.txt", "is_same first_file second_file", f"match {A} {B}", f"mismatch {A} {C2}"),
}

GOOD = [f"{A} {B} 1", f"{A} {C2} 0"] * 8
REFUSED = {
    "a label that is none": (
        [*GOOD, f"{A} {B} maybe"],
        r"line 17: lines 1 to 16 read as PATH PATH LABEL with labels 1 and 0; this one has label 'maybe'; write 1",
    ),
    "another layout": (
        [*GOOD, f"1 {A} {B}"],
        r"line 17: lines 1 to 16 read as .* has label 'Ann/Ann_0002\.jpg'",
    ),
    "another number of columns": ([*GOOD, A], r"line 17: .* does not have 3 columns, but 1"),
    "two columns of labels": (
        ["1 x 1"] * 12,
        "read as PATH PATH LABEL and as LABEL PATH PATH; begin it with a line",
    ),
    "LFW's, or labeled": (["Ann 2 1"] * 12, "read as PATH PATH LABEL and as NAME N M .*first,second,same"),
    "0 beside -1": ([*GOOD, f"{A} {C2} -1"], r"line 17: .* this one has label '-1'; write either 0 or -1"),
    "an unknown layout": (
        ["a b", "c d"],
        r"line 1: 'a b' is neither PATH PATH LABEL, LABEL PATH PATH, NAME N M",
    ),
    "unknown names": (
        ["one,other,kin", *[f"{A},{B},1"] * 12],
        r"line 1: the list reads .* without a line of column",
    ),
    "no label": (
        ["img1,img2", *[f"{A},{B}"] * 12],
        r"line 1: one column must be same, but 0 of 'img1,img2' are",
    ),
    "two first paths": (
        ["img1,path1,img2,y", "a,b,c,1"],
        r"line 1: one column must be first, but 2 of 'img1",
    ),
    "LFW's, cut": (
        ["10 3", *["Ann 1 2"] * 12],
        "12 pairs, but its first line announces 10 3; it is truncated",
    ),
    "LFW's, another line": (
        ["Ann 1 4", "Ann 1 2", "Ann x 2"],
        r"line 3: lines 1 to 2 read as NAME .* has 'x' in place",
    ),
    "a missing image": (
        [*GOOD, f"{A} b.jpg 1"],
        r"1 of 4 images that pairs\.txt lists are missing, the first is b",
    ),
    "nothing": ([], "the list has no pairs"),
    "too few": (GOOD[:2], "2 pairs are too few for 10 folds"),
    "a column too many": (["first,second,same", f"{A},{B},1,1"], "line 2: .* does not have 3 columns, but 4"),
    "no path": (["first,second,same", f",{B},1"], "line 2: .* lacks a path"),
    "half a quote": (["first,second,same", f'"{A},{B},1'], "line 2: .* has a quote without an end"),
    "no fold": (["first,second,same,fold", f"{A},{B},1,"], "line 2: .* has fold ''; write a whole number"),
    "one fold": (
        ["first,second,same,fold", f"{A},{B},1,1"],
        "the number of folds is 1; use 2 to 10, or none",
    ),
    "names that contradict the label": (
        [NAMED, f"{A},{B},0,Ann,Ann"],
        "line 2: .* has label '0', which contradicts the people's names",
    ),
    "names that contradict one another": (
        [NAMED, *[f"{A},{B},1,Ann,Ann"] * 10, f"{A},{B},1,Bob,Bob"],
        f"line 12: {A} is of Bob here, but of Ann above",
    ),
}


@pytest.fixture
def images(tmp_path):
    for key in (A, B, C, C2):
        (tmp_path / "images" / key).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "images" / key).write_bytes(encode_jpeg(draw_face(0, 0)))
    return tmp_path / "images"


@pytest.mark.parametrize("layout", READ)
def test_a_list_is_read_in_its_layout(images, layout):
    name, head, genuine, impostor = READ[layout]
    path = images.parent / name
    path.write_text("\r\n".join([head, *[genuine, impostor] * 6]), encoding="utf-8-sig")
    benchmark = load_pair_list(path, images)
    assert benchmark.same.tolist() == [True, False] * 6
    keys = [[benchmark.images.key(int(row)) for row in pair] for pair in benchmark.pairs[:2]]
    assert keys[0] == [A, B]
    assert keys[1] in ([A, C], [A, C2])
    assert benchmark.name == path.stem
    if "fold" not in head and head != "6 1":
        assert sorted(np.bincount(benchmark.folds).tolist()) == [1] * 8 + [2] * 2
        assert (np.diff(benchmark.folds) >= 0).all()
    assert (benchmark.images.labels is not None) == ("LFW" in layout or layout == "folds and people")
    if benchmark.images.labels is not None:
        people = [benchmark.images.identities[benchmark.images.labels[row]] for row in benchmark.pairs[1]]
        assert people[0] == "Ann"
        assert people[1] in ("Bob", "m.0", "m.0 Bob")
    notes = {
        "an index, and any order": ("Columns age of b.csv are not used.",),
        "people of some pairs": ("6 of 12 pairs do not name their people, so people are ignored.",),
    }
    assert benchmark.notes == notes.get(layout, ())
    assert [(pair.first, pair.same) for pair in read_pair_list(path, images)] == [
        (str(images / A), True),
        (str(images / A), False),
    ] * 6


@pytest.mark.parametrize("fault", REFUSED)
def test_a_list_that_is_not_understood_is_refused_with_its_line(images, fault):
    lines, message = REFUSED[fault]
    path = images / "pairs.txt"
    path.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(DataError, match=message):
        load_pair_list(path)


@pytest.mark.parametrize(
    ("lines", "folds"),
    [
        (["2 3", *["Ann 1 2"] * 3, *["Ann 1 m.0 4"] * 9], [0] * 6 + [1] * 6),
        # As in LFW's development lists, all genuine pairs come first.
        (["20", *["Ann 1 2"] * 20, *["Ann 1 m.0 4"] * 20], [*np.arange(10).repeat(2)] * 2),
        (["first,second,same,fold", f"{A},{B},1,1", f"{A},{C},0,10", f"{A},{C},0,1"], [0, 1, 0]),
    ],
)
def test_folds_are_those_of_the_list_or_have_pairs_of_both_kinds(images, lines, folds):
    (images / "pairs.txt").write_text("\n".join(lines), encoding="utf-8")
    assert load_pair_list(images / "pairs.txt").folds.tolist() == folds


def test_paths_are_relative_to_a_folder(images):
    path = images.parent / "pairs.txt"
    path.write_text("\n".join(GOOD), encoding="utf-8")
    with pytest.raises(DataError, match=r"3 of 3 images that pairs\.txt lists are missing"):
        load_pair_list(path)
    with pytest.raises(DataError, match=r"Ann_0001\.jpg: not a folder; name the one"):
        load_pair_list(path, images / A)
