from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import ndimage

from facerts.benchmarks import PairBenchmark
from facerts.datasets import open_source
from facerts.datasets.landmarks import LandmarkedFiles
from facerts.detection.detector import Detection
from facerts.evaluation.baselines import (
    BASELINES,
    crop_scores,
    detector_score,
    face_sizes,
    neighbor_similarity,
    sharpness,
)
from facerts.evaluation.benchmark_runs import run_pairs
from facerts.evaluation.corruption_benchmark import corruptions_of
from facerts.evaluation.evaluation_options import EvaluationOptions, measured_outputs
from facerts.evaluation.image_scores import image_arrays, image_scores
from facerts.evaluation.ood import run_ood
from facerts.evaluation.rejection import calibration_of, reject_of
from facerts.evaluation.result_folder import load_result
from facerts.images.corruptions import gaussian_blur
from tests.evaluation.conftest import Brightest, Plain

# Gray of ITU-R BT.601, and the Laplacian of four neighbors.
GREY = (0.299, 0.587, 0.114)
LAPLACIAN = [[0, 1, 0], [1, -4, 1], [0, 1, 0]]


def unit(vectors: NDArray[np.floating]) -> NDArray[np.float32]:
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), dtype=np.float32)


def test_sharpness_is_the_variance_of_a_slow_laplacian(crops: NDArray[np.uint8]) -> None:
    expected = []
    for crop in crops:
        gray = np.rint(crop @ np.array(GREY))
        expected.append(ndimage.convolve(gray, np.array(LAPLACIAN), mode="mirror").var())
    np.testing.assert_allclose(sharpness(crops), expected, rtol=5e-3)


def test_sharpness_falls_with_blur_and_is_nothing_without_edges(crops: NDArray[np.uint8]) -> None:
    blurred = [np.stack([gaussian_blur(crop, radius) for crop in crops]) for radius in (0.0, 1.0, 2.0)]
    steps = [sharpness(step) for step in blurred]
    assert (steps[0] > steps[1]).all()
    assert (steps[1] > steps[2]).all()
    assert sharpness(np.full((2, 112, 112, 3), 90, dtype=np.uint8)).tolist() == [0, 0]


def test_the_surest_face_is_the_detectors_score_and_no_face_is_0() -> None:
    def detector(image: NDArray[np.uint8]) -> list[Detection]:
        """As many faces as the crop's color says, the largest first, which is not the surest."""
        scores = [0.3, 0.8, 0.5][: int(image[0, 0, 0])]
        return [Detection(np.zeros(4), np.zeros((5, 2)), score) for score in scores]

    crops = np.zeros((4, 112, 112, 3), dtype=np.uint8)
    crops[:, ..., 0] = np.array([1, 3, 0, 2])[:, None, None]
    scores = detector_score(detector)(crops)
    np.testing.assert_allclose(scores, [0.3, 0.8, 0.0, 0.8], atol=1e-6)
    assert scores.dtype == np.float32


def test_the_detector_is_a_baseline_only_where_there_is_one() -> None:
    assert list(crop_scores(None)) == ["sharpness"]
    assert list(crop_scores(Brightest())) == ["sharpness", "det_score"]


def test_face_sizes_are_the_distances_between_the_eyes_before_alignment(drawn_faces: Path) -> None:
    keys = [open_source(drawn_faces).key(row) for row in range(3)]
    points = np.random.default_rng(0).uniform(20, 90, (3, 5, 2))
    points[1, :2] = [[10, 10], [13, 14]]
    sizes = face_sizes(LandmarkedFiles("x", drawn_faces, keys, points))
    assert sizes is not None
    assert sizes.dtype == np.float32
    assert sizes[1] == 5.0
    np.testing.assert_allclose(sizes, np.linalg.norm(points[:, 0] - points[:, 1], axis=1), rtol=1e-5)
    assert face_sizes(open_source(drawn_faces)) is None


@pytest.mark.parametrize(("known", "k"), [(40, 10), (40, 1), (4, 10)])
def test_neighbors_are_those_of_a_full_sort(known: int, k: int) -> None:
    random = np.random.default_rng(1)
    reference, asked = unit(random.normal(size=(known, 8))), unit(random.normal(size=(25, 8)))
    ordered = np.sort(asked.astype(np.float64) @ reference.T.astype(np.float64), axis=1)[:, ::-1]
    found = neighbor_similarity(asked, reference, k)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, ordered[:, :k].mean(axis=1), atol=1e-6)


@pytest.mark.slow
def test_scores_that_need_no_training_stand_beside_the_models_own(
    plain: Plain, named: Path, drawn_faces: Path, non_faces: Path, tmp_path: Path
) -> None:
    reference = open_source(drawn_faces)
    options = EvaluationOptions(fmr=0.01, detector=Brightest(), reference=reference)
    run_pairs(plain, ["verification", "reject"], [named], tmp_path, options)
    run_ood(plain, [str(drawn_faces)], [str(non_faces)], tmp_path, options)
    content, arrays = load_result(tmp_path)
    expected = ["quality", "norm", "sharpness", "det_score", "neighbors"]
    assert list(dict.fromkeys(curve.by for curve in content.reject["named"])) == expected
    assert list(content.calibration["named"].by) == expected
    assert list(content.ood.by) == expected
    images = open_source(named.parent)
    crops = {images.key(row): images.crop(row) for row in range(len(images))}
    ordered = np.stack([crops[name] for name in arrays["verification/named/names"]])
    np.testing.assert_allclose(arrays["verification/named/sharpness"], sharpness(ordered), rtol=1e-5)
    np.testing.assert_array_equal(
        arrays["verification/named/det_score"], detector_score(Brightest())(ordered)
    )
    things = open_source(non_faces)
    apart = np.stack([things.crop(row) for row in range(len(things))])
    known = plain(np.stack([reference.crop(row) for row in range(len(reference))])).embedding
    ordered_things = np.sort(plain(apart).embedding @ known.T, axis=1)[:, ::-1]
    np.testing.assert_allclose(arrays["ood/things/neighbors"], ordered_things[:, :10].mean(axis=1), atol=1e-5)
    np.testing.assert_allclose(arrays["ood/things/sharpness"], sharpness(apart), rtol=1e-5)
    # The reference are the faces themselves, so that each is its own nearest neighbor.
    assert content.ood.by["neighbors"].auroc > 0.8


def test_the_flip_of_the_references_is_that_of_the_pictures(
    plain: Plain, named: Path, drawn_faces: Path, tmp_path: Path
) -> None:
    reference = open_source(drawn_faces)
    known = np.stack([reference.crop(row) for row in range(len(reference))])
    for flip in (False, True):
        options = EvaluationOptions(flip=flip, reference=reference, keep_crops=False)
        run_pairs(plain, ["verification"], [named], tmp_path / str(flip), options)
        arrays = load_result(tmp_path / str(flip))[1]
        images = open_source(named.parent)
        crops = {images.key(row): images.crop(row) for row in range(len(images))}
        own = np.stack([crops[name] for name in arrays["verification/named/names"]])
        vectors = [plain(given).embedding for given in (own, known)]
        if flip:
            turned = [plain(np.ascontiguousarray(given[:, :, ::-1])).embedding for given in (own, known)]
            vectors = [unit(one + other) for one, other in zip(vectors, turned, strict=True)]
        nearest = np.sort(vectors[0] @ vectors[1].T, axis=1)[:, -10:].mean(axis=1)
        np.testing.assert_allclose(arrays["verification/named/neighbors"], nearest, atol=1e-5)


def test_face_size_is_a_baseline_where_the_points_are_known(plain: Plain, drawn_faces: Path) -> None:
    folder = open_source(drawn_faces)
    keys = [folder.key(row) for row in range(len(folder))]
    random = np.random.default_rng(0)
    template = np.array([[38.3, 51.7], [73.5, 51.5], [56.0, 71.7], [41.5, 92.4], [70.7, 92.2]])
    points = template + random.normal(size=(len(keys), 5, 2))
    images = LandmarkedFiles("points", drawn_faces, keys, points, [key.split("/")[0] for key in keys])
    first, second = np.triu_indices(len(keys), 1)
    pairs = np.stack([first, second], axis=1)
    assert images.labels is not None
    same = images.labels[first] == images.labels[second]
    benchmark = PairBenchmark("points", images, pairs, same, np.arange(len(pairs)) % 10)
    outputs = measured_outputs(plain, images, EvaluationOptions(), flip=False)
    assert list(image_scores(outputs)) == ["quality", "norm", "sharpness", "face_size"]
    assert "face_size" in image_arrays(outputs, keys)
    curves = reject_of(outputs, benchmark, fmr=0.01)
    assert [c.by for c in curves if c.convention == "fixed"][-1] == "face_size"
    assert "face_size" in calibration_of(outputs, benchmark, fmr=0.01).by
    assert set(BASELINES) >= {"sharpness", "face_size"}


def test_a_ladder_has_the_baselines_of_crops(plain: Plain, drawn_faces: Path) -> None:
    section, _ = corruptions_of(plain, open_source(drawn_faces), images=4, detector=Brightest())
    assert list(section.kinds["blur"].by) == ["quality", "norm", "sharpness", "det_score"]
    assert section.kinds["blur"].by["sharpness"].monotone


def test_a_score_that_is_the_same_everywhere_is_no_better_than_chance(
    plain: Plain, named: Path, tmp_path: Path
) -> None:
    class Blind:
        def __call__(self, image: NDArray[np.uint8]) -> list[Detection]:
            return []

    run_pairs(plain, ["reject"], [named], tmp_path, EvaluationOptions(fmr=0.01, detector_baseline=Blind()))
    content = load_result(tmp_path)[0]
    assert content.calibration["named"].by["det_score"].spearman == 0.0
    for curve in content.reject["named"]:
        if curve.by == "det_score":
            assert curve.fnmr == pytest.approx([curve.random_area] * len(curve.fnmr))
