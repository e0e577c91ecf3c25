import numpy as np
import pytest

from facerts.datasets import open_benchmark, open_benchmarks
from facerts.datasets.synthetic import draw_face
from facerts.errors import DataError
from facerts.images import encode_jpeg

FACE = encode_jpeg(draw_face(0, 0))


def put(*paths):
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(FACE)


def write(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def change(path, old, new):
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def keys(benchmark, row):
    return [benchmark.images.key(int(index)) for index in benchmark.pairs[row]]


def subjects(benchmark):
    names = [benchmark.images.identities[label] for label in benchmark.images.labels]
    return [[names[first], names[second]] for first, second in benchmark.pairs.tolist()]


# Celebrities in Frontal-Profile


@pytest.fixture
def cfp(tmp_path):
    """Ten folds of two genuine pairs and one impostor pair, of ten people."""
    root = tmp_path / "cfp-dataset"
    frontal = [f"Data/Images/{who:03d}/frontal/{n:02d}.jpg" for who in range(1, 11) for n in (1, 2, 3)]
    profile = [f"Data/Images/{who:03d}/profile/{n:02d}.jpg" for who in range(1, 11) for n in (1, 2)]
    put(*(root / key for key in frontal + profile))
    for letter, images in (("F", frontal), ("P", profile)):
        lines = [f"{number} ../{key}" for number, key in enumerate(images, 1)]
        write(root / f"Protocol/Pair_list_{letter}.txt", lines)
    for fold in range(10):
        mine, other = 3 * fold, 3 * ((fold + 1) % 10)
        write(
            root / f"Protocol/Split/FF/{fold + 1:02d}/same.txt",
            [f"{mine + 1},{mine + 2}", f"{mine + 1},{mine + 3}"],
        )
        write(root / f"Protocol/Split/FF/{fold + 1:02d}/diff.txt", [f"{mine + 1},{other + 1}"])
        mine_p, other_p = 2 * fold, 2 * ((fold + 1) % 10)
        write(
            root / f"Protocol/Split/FP/{fold + 1:02d}/same.txt",
            [f"{mine + 1},{mine_p + 1}", f"{mine + 1},{mine_p + 2}"],
        )
        write(root / f"Protocol/Split/FP/{fold + 1:02d}/diff.txt", [f"{mine + 1},{other_p + 1}"])
    return root


def test_cfp_has_two_benchmarks_with_the_second_image_of_fp_in_profile(cfp):
    frontal, profile = open_benchmarks(cfp)
    assert (frontal.name, profile.name) == ("cfp_ff", "cfp_fp")
    assert keys(frontal, 4) == ["Data/Images/002/frontal/01.jpg", "Data/Images/002/frontal/03.jpg"]
    assert keys(profile, 4) == ["Data/Images/002/frontal/01.jpg", "Data/Images/002/profile/02.jpg"]
    assert keys(profile, 5) == ["Data/Images/002/frontal/01.jpg", "Data/Images/003/profile/01.jpg"]
    for benchmark in (frontal, profile):
        assert benchmark.same.tolist() == [True, True, False] * 10
        assert benchmark.folds.tolist() == [fold for fold in range(10) for _ in range(3)]
        assert [first == second for first, second in subjects(benchmark)] == benchmark.same.tolist()
        assert subjects(benchmark)[0] == ["001", "001"]
        assert benchmark.notes == ("There are 30 pairs here, but 7,000 in the published benchmark.",)
        assert benchmark.images.crop(0).shape == (112, 112, 3)


def test_a_folder_with_two_benchmarks_is_not_one(cfp):
    with pytest.raises(DataError, match=r"several benchmarks \(cfp_ff, cfp_fp\)"):
        open_benchmark(cfp)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            lambda root: (root / "Data/Images/002/profile/02.jpg").unlink(),
            r"1 of 30 images that FP lists are missing, the first is .*002/profile/02.jpg",
        ),
        (
            lambda root: change(root / "Protocol/Split/FF/03/same.txt", "7,9", "7;9"),
            r"03/same.txt, line 2: '7;9' is not two numbers",
        ),
        (
            lambda root: change(root / "Protocol/Split/FP/03/diff.txt", "7,7", "7,21"),
            r"03/diff.txt, line 1: Protocol/Pair_list_P.txt has no image '21'",
        ),
        (lambda root: (root / "Protocol/Split/FF/10/diff.txt").unlink(), r"10/diff.txt: cannot be read"),
        (
            lambda root: change(root / "Protocol/Pair_list_F.txt", "2 ../", "two ../"),
            r"Pair_list_F.txt, line 2: 'two .*' is not a number and a path",
        ),
        (
            lambda root: change(root / "Protocol/Pair_list_P.txt", "2 ../Data", "2 ../../Data"),
            r"Pair_list_P.txt, line 2: .* is not a number and a path",
        ),
        (
            lambda root: change(root / "Protocol/Pair_list_F.txt", "2 ../", "1 ../"),
            r"Pair_list_F.txt, line 2: the number 1 is listed twice",
        ),
    ],
    ids=["image", "comma", "number", "fold", "list", "outside", "twice"],
)
def test_a_broken_cfp_is_named(cfp, spoil, message):
    spoil(cfp)
    with pytest.raises(DataError, match=message):
        open_benchmarks(cfp)


# Cross-age and cross-pose LFW


@pytest.fixture(params=["CALFW", "CPLFW"])
def cross(request, tmp_path):
    """Ten people, two genuine pairs and one impostor pair in each of ten folds."""
    root = tmp_path / "cross"
    lines = []
    for fold in range(1, 11):
        first, second, third = (f"Ann_{fold}_{number:04d}.jpg" for number in (1, 2, 3))
        stranger = f"Ann_{fold % 10 + 1}_0001.jpg"
        put(*(root / "aligned images" / name for name in (first, second, third)))
        lines += [f"{first} {fold}", f"{second} {fold}", f"{first} {fold}", f"{third} {fold}"]
        lines += [f"{second} 0", f"{stranger} 0"]
    write(root / f"pairs_{request.param}.txt", lines)
    return root


def listing(root):
    return next(root.glob("pairs_*.txt"))


def test_cross_lfw_has_listed_folds_for_genuine_pairs_and_runs_for_impostors(cross):
    benchmark = open_benchmark(cross)
    assert benchmark.name == listing(cross).stem.removeprefix("pairs_").lower()
    assert benchmark.same.tolist() == [True, True, False] * 10
    assert benchmark.folds.tolist() == [fold for fold in range(10) for _ in range(3)]
    assert keys(benchmark, 2) == ["aligned images/Ann_1_0002.jpg", "aligned images/Ann_2_0001.jpg"]
    assert subjects(benchmark)[2] == ["Ann_1", "Ann_2"]
    assert benchmark.notes == ("There are 30 pairs here, but 6,000 in the published benchmark.",)


def test_cross_lfw_without_folds_gets_equal_runs_and_a_note(cross):
    lines = [line.split() for line in listing(cross).read_text().splitlines()]
    write(listing(cross), [f"{name} {min(int(label), 1)}" for name, label in lines])
    benchmark = open_benchmark(cross)
    assert np.bincount(benchmark.folds[benchmark.same]).tolist() == [2] * 10
    assert np.bincount(benchmark.folds[~benchmark.same]).tolist() == [1] * 10
    assert any("has no folds" in note for note in benchmark.notes)


def test_a_label_that_contradicts_the_names_gives_a_note(cross):
    change(listing(cross), "Ann_2_0003.jpg 2", "Ann_3_0003.jpg 2")
    notes = open_benchmark(cross).notes
    assert any(note.startswith("In 1 of 30 pairs") for note in notes)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("Ann_2_0002.jpg 2", "Ann_2_0002.jpg 3", "line 8: fold 3, but the pair's first line has 2"),
        ("Ann_2_0002.jpg 2", "Ann_2_0002.jpg 11", "line 8: .* a fold from 0 to 10"),
        ("Ann_2_0002.jpg 2", "Ann.jpg 2", "line 8: 'Ann.jpg 2' is not"),
        ("Ann_2_0002.jpg 2", "Ann_2_0009.jpg 2", r"1 of 31 images .* aligned images/Ann_2_0009.jpg"),
        ("Ann_10_0002.jpg 0\nAnn_1_0001.jpg 0\n", "", r"pairs_C\wLFW\.txt: 9 pairs are too few for 10 folds"),
        ("Ann_10_0002.jpg 0\nAnn_1_0001.jpg 0\n", "Ann_10_0002.jpg 0\n", "59 lines, but a pair has two"),
    ],
)
def test_a_broken_cross_lfw_is_named(cross, old, new, message):
    change(listing(cross), old, new)
    with pytest.raises(DataError, match=message):
        open_benchmark(cross)


# AgeDB


@pytest.fixture
def agedb(tmp_path):
    """Two men, each at two ages."""
    root = tmp_path / "AgeDB"
    put(*(root / f"{number}_Person{number // 2}_{20 + 30 * (number % 2)}_m.jpg" for number in range(4)))
    return root


def test_agedb_pairs_are_read_from_a_list(agedb):
    same = "0_Person0_20_m.jpg 1_Person0_50_m.jpg 1"
    write(agedb / "pairs.txt", [same, "0_Person0_20_m.jpg 3_Person1_50_m.jpg 0"] * 10)
    benchmark = open_benchmark(agedb)
    assert benchmark.name == "agedb_30"
    assert benchmark.same.tolist() == [True, False] * 10
    assert benchmark.folds.tolist() == [fold for fold in range(10) for _ in range(2)]
    assert subjects(benchmark)[:2] == [["Person0", "Person0"], ["Person0", "Person1"]]
    assert benchmark.notes == ()


def test_agedb_without_its_list_or_with_a_wrong_one_is_refused(agedb):
    with pytest.raises(DataError, match=r"AgeDB's images with no list of pairs; put the list .* beside them"):
        open_benchmark(agedb)
    put(agedb / "me.jpg")
    write(agedb / "pairs.txt", ["0_Person0_20_m.jpg me.jpg 0"] * 20)
    with pytest.raises(DataError, match=r"me\.jpg: AgeDB's images have names like"):
        open_benchmark(agedb)
    write(agedb / "more.csv", [])
    with pytest.raises(DataError, match=r"2 lists \(more\.csv, pairs\.txt\)"):
        open_benchmark(agedb)


# Cross-quality LFW.


@pytest.fixture
def xqlfw(tmp_path):
    lines = [f"{name}\t1\t12" for name in ("Ann_Lee", "Bob")] + ["Ann_Lee\t12\tBob\t1", "Bob\t12\tAnn_Lee\t1"]
    write(tmp_path / "xqlfw_pairs.txt", ["2\t1", *lines])
    images = [f"{name}/{name}_{number:04d}.jpg" for name in ("Ann_Lee", "Bob") for number in (1, 12)]
    put(*(tmp_path / "lfw_original_imgs_min_qual0.85variant11" / key for key in images))
    return tmp_path


def test_xqlfw_is_read_from_its_photos_or_else_its_aligned_crops(xqlfw):
    photos = open_benchmark(xqlfw)
    assert photos.name == "xqlfw"
    assert photos.same.tolist() == [True, True, False, False]
    assert subjects(photos) == [["Ann_Lee"] * 2, ["Bob"] * 2, ["Ann_Lee", "Bob"], ["Bob", "Ann_Lee"]]
    first = photos.images.location(photos.pairs[2, 0])
    assert first == str(xqlfw / "lfw_original_imgs_min_qual0.85variant11/Ann_Lee/Ann_Lee_0012.jpg")
    put(*(xqlfw / "xqlfw_aligned_112" / photos.images.key(row) for row in range(4)))
    crops = open_benchmark(xqlfw)
    assert crops.images.location(0) == str(xqlfw / "xqlfw_aligned_112/Ann_Lee/Ann_Lee_0001.jpg")
    np.testing.assert_array_equal(crops.pairs, photos.pairs)


def test_a_broken_xqlfw_is_named(xqlfw):
    images = xqlfw / "lfw_original_imgs_min_qual0.85variant11"
    (images / "Bob/Bob_0012.jpg").unlink()
    with pytest.raises(DataError, match=r"1 of 4 images that xqlfw_pairs\.txt lists are missing"):
        open_benchmark(xqlfw)
    change(xqlfw / "xqlfw_pairs.txt", "Bob\t1\t12", "Bob\t1\ttwelve")
    with pytest.raises(DataError, match=r"xqlfw_pairs\.txt, line 3: .* has 'twelve' in place"):
        open_benchmark(xqlfw)
    images.rename(xqlfw / "elsewhere")
    with pytest.raises(DataError, match="neither xqlfw_aligned_112 nor lfw_original"):
        open_benchmark(xqlfw)
