import numpy as np
import pytest
from scipy import ndimage

from facerts.datasets import open_source
from facerts.datasets.folder import LandmarkedFiles
from facerts.detection.detector import Detection
from facerts.embedding.combined import CombinedEmbedder
from facerts.evaluation.baselines import detector_score, face_sizes, neighbor_similarity, sharpness
from facerts.evaluation.benchmark_runs import run_pairs
from facerts.evaluation.evaluation_options import EvaluationOptions
from facerts.evaluation.ood import run_ood
from facerts.evaluation.result_folder import load_result
from facerts.onnx.contract import QUANTILES, SCHEMA, Calibration, Description
from tests.evaluation.conftest import Plain, unit

# Gray of ITU-R BT.601, and the Laplacian of four neighbors.
GREY = (0.299, 0.587, 0.114)
LAPLACIAN = [[0, 1, 0], [1, -4, 1], [0, 1, 0]]


def test_sharpness_is_the_variance_of_a_slow_laplacian(crops):
    expected = []
    for crop in crops:
        gray = np.rint(crop @ np.array(GREY))
        expected.append(ndimage.convolve(gray, np.array(LAPLACIAN), mode="mirror").var())
    np.testing.assert_allclose(sharpness(crops), expected, rtol=5e-3)


def test_the_surest_face_is_the_detectors_score_and_no_face_is_0():
    def detector(image):
        """As many faces as the crop's color says, the largest first, which is not the surest."""
        scores = [0.3, 0.8, 0.5][: int(image[0, 0, 0])]
        return [Detection(np.zeros(4), np.zeros((5, 2)), score) for score in scores]

    crops = np.zeros((4, 112, 112, 3), dtype=np.uint8)
    crops[:, ..., 0] = np.array([1, 3, 0, 2])[:, None, None]
    scores = detector_score(detector)(crops)
    np.testing.assert_allclose(scores, [0.3, 0.8, 0.0, 0.8], atol=1e-6)
    assert scores.dtype == np.float32


def test_face_sizes_are_the_distances_between_the_eyes_before_alignment(drawn_faces):
    keys = [open_source(drawn_faces).key(row) for row in range(3)]
    points = np.random.default_rng(0).uniform(20, 90, (3, 5, 2))
    points[1, :2] = [[10, 10], [13, 14]]
    sizes = face_sizes(LandmarkedFiles("x", drawn_faces, keys, points))
    assert sizes.dtype == np.float32
    assert sizes[1] == 5.0
    np.testing.assert_allclose(sizes, np.linalg.norm(points[:, 0] - points[:, 1], axis=1), rtol=1e-5)
    assert face_sizes(open_source(drawn_faces)) is None


@pytest.mark.parametrize(("known", "k"), [(40, 10), (40, 1), (4, 10)])
def test_neighbors_are_those_of_a_full_sort(known, k):
    random = np.random.default_rng(1)
    reference, asked = unit(random.normal(size=(known, 8))), unit(random.normal(size=(25, 8)))
    ordered = np.sort(asked.astype(np.float64) @ reference.T.astype(np.float64), axis=1)[:, ::-1]
    found = neighbor_similarity(asked, reference, k)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, ordered[:, :k].mean(axis=1), atol=1e-6)


def test_a_score_that_is_the_same_everywhere_is_no_better_than_chance(plain, named, tmp_path):
    class Blind:
        def __call__(self, image):
            return []

    run_pairs(plain, ["reject"], [named], tmp_path, EvaluationOptions(fmr=0.01, detector_baseline=Blind()))
    content, arrays = load_result(tmp_path)
    section = content.of_kind("reject")["named"]
    assert section.measure("Spearman's ρ", score="det_score").value == 0.0
    curve = arrays["reject/named/listed pairs/det_score/fnmr"]
    assert curve == pytest.approx(arrays["reject/named/listed pairs/random"])


def test_percentiles_among_the_calibration_faces_are_kept_where_the_model_has_them(
    plain, named, drawn_faces, non_faces, tmp_path
):
    quantiles = tuple(np.linspace(0, 0.5, QUANTILES))
    calibration = Calibration(data="d", data_sha256="0", faces=101, identities=None, quantiles=quantiles)
    plain.description = Description(schema=SCHEMA, quality="output:quality", calibration=calibration)
    plain.outputs = plain
    options = EvaluationOptions(keep_crops=False, flip=False)
    run_pairs(CombinedEmbedder(Plain(), plain), ["verification"], [named], tmp_path / "pairs", options)
    run_ood(plain, [str(drawn_faces)], [str(non_faces)], tmp_path / "ood", options)
    run_pairs(Plain(), ["verification"], [named], tmp_path / "none", options)
    arrays = {name: load_result(tmp_path / name)[1] for name in ("pairs", "ood", "none")}
    for name, prefix in (("pairs", "verification/named/"), ("ood", "ood/non-faces/things/")):
        expected = np.clip(arrays[name][prefix + "quality"] * 200, 0, 100)
        np.testing.assert_allclose(arrays[name][prefix + "percentile"], expected, atol=0.01)
    assert not any(key.endswith("/percentile") for key in arrays["none"])
