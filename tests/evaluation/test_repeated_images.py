import os

import cv2
import numpy as np
import pytest

from facerts.datasets import PairBenchmark, open_images, open_source
from facerts.datasets.fingerprint import hash_images
from facerts.datasets.listed_pairs import load_pair_list
from facerts.datasets.pair_benchmark import repeated_images
from facerts.embedding.embed import outputs_of
from facerts.evaluation import embed_source
from facerts.evaluation.benchmark_runs import run_pairs
from facerts.evaluation.evaluation_options import EvaluationOptions
from facerts.evaluation.result_folder import load_result
from tests.evaluation.conftest import Images, Plain


def folder_of(path, **files):
    path.mkdir(parents=True)
    for name, data in files.items():
        (path / f"{name}.jpg").write_bytes(data)
    return open_images(path)


def pairs_of(source, pairs, same, folds):
    return PairBenchmark("set", source, np.array(pairs), np.array(same, dtype=bool), np.array(folds))


def test_equal_bytes_are_found_whatever_their_names(tmp_path):
    source = folder_of(tmp_path / "x", a=b"one", b=b"two", c=b"one", d=b"", e=b"two", f=b"one", g=b"")
    assert hash_images(source).first.tolist() == [0, 1, 0, 3, 1, 0, 3]


def test_the_hash_knows_names_bytes_and_order_alone(tmp_path):
    content = {"a": b"one", "b": b"two"}
    given = hash_images(folder_of(tmp_path / "given", **content)).sha256
    assert len(given) == 64
    assert hash_images(folder_of(tmp_path / "elsewhere", **content)).sha256 == given
    others = {
        "exchanged": {"a": b"two", "b": b"one"},
        "renamed": {"a": b"one", "c": b"two"},
        "fewer": {"a": b"one"},
        "moved": {"a": b"onet", "b": b"wo"},
    }
    hashes = {hash_images(folder_of(tmp_path / name, **files)).sha256 for name, files in others.items()}
    assert len(hashes | {given}) == 5


def test_a_name_that_is_not_valid_text_is_hashed(tmp_path):
    (tmp_path / os.fsdecode(b"\xff.jpg")).write_bytes(b"one")
    assert len(hash_images(open_images(tmp_path)).sha256) == 64


@pytest.mark.parametrize(
    ("pairs", "same", "notes"),
    [
        (
            [(0, 1), (1, 2), (3, 3), (0, 3)],
            [1, 1, 1, 0],
            ("2 genuine pairs consist of the same image twice, the first is b.jpg.",),
        ),
        (
            [(0, 3), (1, 2), (0, 1), (3, 3)],
            [1, 0, 0, 0],
            ("2 impostor pairs consist of the same image twice, the first is b.jpg: they are mislabeled.",),
        ),
        ([(0, 1), (0, 2), (0, 3), (1, 3)], [1, 0, 0, 0], ()),
    ],
    ids=["genuine", "impostor", "neither"],
)
def test_one_image_twice_in_a_pair_is_noted(tmp_path, pairs, same, notes):
    source = folder_of(tmp_path / "x", a=b"1", b=b"2", c=b"2", d=b"3")
    assert repeated_images(pairs_of(source, pairs, same, [0] * 4), hash_images(source).first) == notes


def test_an_image_in_several_folds_is_noted_with_the_folds(tmp_path):
    source = folder_of(tmp_path / "x", a=b"1", b=b"2", c=b"3", d=b"2", e=b"4", f=b"3")
    pairs = [(0, 1), (0, 2), (4, 3), (4, 5), (0, 3)]
    benchmark = pairs_of(source, pairs, [1, 0, 1, 0, 0], [7, 7, 2, 2, 7])
    (note,) = repeated_images(benchmark, hash_images(source).first)
    assert note.startswith("2 images occur in more than one fold, the first is b.jpg in folds 2, 7: ")


@pytest.mark.parametrize("flip", [False, True])
def test_repeated_images_go_through_the_embedder_once_and_all_have_outputs(plain, drawn_faces, flip):
    faces = open_source(drawn_faces)
    crops = np.stack([faces.crop(row) for row in (5, 9, 5, 20, 9, 5, 33)])
    source = Images(crops)
    first = hash_images(source).first
    assert first.tolist() == [0, 1, 0, 3, 1, 0, 6]
    outputs = outputs_of(
        plain,
        source,
        flip=flip,
        first=first,
        batch_size=3,
        progress=False,
        also={"mean": lambda crops: crops.mean(axis=(1, 2, 3), dtype=np.float32)},
    )
    assert plain.batches == ([3, 3, 1, 1] if flip else [3, 1])
    expected = embed_source(Plain(), source, flip=flip, progress=False)
    for name in ("embedding", "norm", "quality", "uncertainty"):
        np.testing.assert_allclose(getattr(outputs, name), getattr(expected, name), atol=1e-6)
    np.testing.assert_allclose(outputs.extras["mean"], crops.mean(axis=(1, 2, 3)), rtol=1e-5)


def test_a_result_keeps_the_crops_of_the_worst_pairs_unless_told_not_to(plain, named, tmp_path):
    run_pairs(plain, ["verification"], [named], tmp_path / "with")
    run_pairs(plain, ["verification"], [named], tmp_path / "without", EvaluationOptions(keep_crops=False))
    content, arrays = load_result(tmp_path / "with")
    bare, fewer = load_result(tmp_path / "without")
    assert content.of_kind("verification") == bare.of_kind("verification")
    shown = {f"verification/named/{key}" for key in ("shown_rows", "shown_jpeg", "shown_ends")}
    assert arrays.keys() - fewer.keys() == shown
    scores, same = arrays["verification/named/scores"], arrays["verification/named/same"]
    pairs = arrays["verification/named/pairs"]
    worst = [np.flatnonzero(same)[scores[same].argmin()], np.flatnonzero(~same)[scores[~same].argmax()]]
    rows = arrays["verification/named/shown_rows"]
    assert np.isin(pairs[worst], rows).all()
    for name in ("quality", "norm", "sharpness"):
        values = arrays[f"verification/named/{name}"]
        assert {values.argmin(), values.argmax()} <= set(rows.tolist())
    images = load_pair_list(named).images
    end = arrays["verification/named/shown_ends"][0]
    image = cv2.imdecode(arrays["verification/named/shown_jpeg"][:end], cv2.IMREAD_COLOR)[..., ::-1]
    assert np.abs(image.astype(int) - images.crop(int(rows[0]))).mean() < 4
