import numpy as np
import pytest

from facerts.datasets import open_benchmark, open_source, pair_benchmark, pairs_from_identities
from facerts.datasets.bin_set import write_bin
from facerts.datasets.pair_layouts import load_bin, save_bin
from facerts.datasets.synthetic import draw_face
from facerts.errors import DataError
from facerts.images import encode_png

FACE = encode_png(draw_face(0, 0))


@pytest.fixture
def lfw(tmp_path):
    """Two folds of two genuine and two impostor pairs."""
    folder = tmp_path / "small_lfw"
    for person in ("Ann_A", "Bob", "Cy", "Di"):
        (folder / person).mkdir(parents=True)
        for number in (1, 2):
            (folder / person / f"{person}_{number:04d}.jpg").write_bytes(FACE)
    lines = ["2\t2"]
    for first, second in (("Ann_A", "Bob"), ("Cy", "Di")):
        lines += [f"{first}\t1\t2", f"{second}\t1\t2", f"{first}\t1\t{second}\t2", f"{first}\t2\t{second}\t1"]
    (folder / "pairs.txt").write_text("\n".join(lines) + "\n")
    return folder


def test_lfw_pairs_match_the_list(lfw):
    benchmark = open_benchmark(lfw)
    assert benchmark.name == "small_lfw"
    assert benchmark.same.tolist() == [True, True, False, False] * 2
    assert benchmark.folds.tolist() == [0] * 4 + [1] * 4
    keys = [[benchmark.images.key(int(i)) for i in pair] for pair in benchmark.pairs]
    assert keys[0] == ["Ann_A/Ann_A_0001.jpg", "Ann_A/Ann_A_0002.jpg"]
    assert keys[6] == ["Cy/Cy_0001.jpg", "Di/Di_0002.jpg"]
    assert len(benchmark.images.identities) == 4


@pytest.mark.slow
def test_the_real_lfw_has_its_published_numbers(facerts_data):
    benchmark = open_benchmark(facerts_data / "lfw")
    assert (len(benchmark.same), int(benchmark.same.sum()), len(benchmark.images)) == (6000, 3000, 7701)
    assert np.bincount(benchmark.folds).tolist() == [600] * 10


def bin_content(pairs):
    return [FACE + bytes([n % 256]) for n in range(2 * pairs)], [n % 2 == 0 for n in range(pairs)]


def test_bin_sets_round_trip(tmp_path):
    images, same = bin_content(25)
    write_bin(tmp_path / "small.bin", images, same)
    benchmark = load_bin(tmp_path / "small.bin")
    assert [benchmark.images.read(i) for i in range(50)] == images
    assert benchmark.same.tolist() == same
    assert benchmark.pairs[3].tolist() == [6, 7]
    assert sorted(np.bincount(benchmark.folds).tolist()) == [2] * 5 + [3] * 5
    assert (np.diff(benchmark.folds) >= 0).all()


def test_too_few_pairs_for_ten_folds_are_refused(tmp_path):
    write_bin(tmp_path / "few.bin", *bin_content(4))
    with pytest.raises(DataError, match="4 pairs are too few for 10 folds"):
        load_bin(tmp_path / "few.bin")


def test_uneven_folds_cannot_become_a_bin_set(drawn_faces, tmp_path):
    benchmark = pairs_from_identities(open_source(drawn_faces), genuine=40, impostors=40, seed=1)
    with pytest.raises(DataError, match="10 equal folds"):
        save_bin(benchmark, tmp_path / "x.bin")


def test_a_missing_path_is_refused(tmp_path):
    with pytest.raises(DataError, match="no such verification benchmark"):
        open_benchmark(tmp_path / "nothing.bin")


def write_people(folder, people, images):
    for person in range(people):
        (folder / f"person {person}").mkdir(parents=True)
        for number in range(images):
            (folder / f"person {person}" / f"{number}.png").write_bytes(FACE)
    return folder


def test_a_folder_by_person_is_a_benchmark_of_pairs_whose_note_says_how_many(tmp_path):
    folder = write_people(tmp_path / "people", 6, 3)
    benchmark, again = open_benchmark(folder), open_benchmark(folder)
    np.testing.assert_array_equal(benchmark.pairs, again.pairs)
    labels = benchmark.images.labels
    assert len(labels) == 18
    assert len({tuple(sorted(pair)) for pair in benchmark.pairs.tolist()}) == len(benchmark.pairs)
    of_pairs = labels[benchmark.pairs]
    np.testing.assert_array_equal(of_pairs[:, 0] == of_pairs[:, 1], benchmark.same)
    for person in range(6):
        assert len(set(benchmark.folds[(of_pairs == person).any(axis=1)])) == 1
    # Three folds of two people: 9 impostor pairs in each.
    (note,) = benchmark.notes
    assert "all 18 genuine pairs and 27 of 135 impostor pairs of its 6 people" in note


def test_of_many_people_some_are_drawn(tmp_path, monkeypatch):
    folder = write_people(tmp_path / "people", 9, 3)
    (folder / "person 8" / "2.png").unlink()
    monkeypatch.setattr(pair_benchmark, "MAX_IMAGES", 20)
    monkeypatch.setattr(pair_benchmark, "PAIRS", 4)
    benchmark = open_benchmark(folder)
    assert len(benchmark.images) in (18, 20)
    assert benchmark.same.sum() == (~benchmark.same).sum() == 4
    drawn, pairs = benchmark.notes
    assert "of 9 people were drawn with seed 0, for at most 20 of 26 images" in drawn
    assert "4 of 1" in pairs


def test_images_without_people_and_too_few_people_are_no_benchmark(tmp_path):
    (tmp_path / "one.png").write_bytes(FACE)
    with pytest.raises(DataError, match="not in folders by person"):
        open_benchmark(tmp_path)
    with pytest.raises(DataError, match="at least four"):
        open_benchmark(write_people(tmp_path / "people", 3, 2))
