"""Reasons: what crosses which limit, and how rows and files show it."""

import math
from pathlib import Path

import numpy as np
import pytest
import skimage.data

import facerts
from facerts.calibration.graft import graft_quality
from facerts.datasets.synthetic import draw_face
from facerts.detection import Detection
from facerts.embedding import FaceOutputs, load_embedder
from facerts.images import fit_crop
from facerts.images.align import TEMPLATE, align
from facerts.images.changes import apply_change
from facerts.onnx.contract import store_description
from facerts.scoring import Scorer, reasons
from facerts.scoring.reasons import crop_reasons, detection_reasons, share_outside
from tests.detectors import Finds
from tests.shipped import write_model

DOCS = Path(__file__).parents[2] / "docs"
# Eyes, nose and corners of the mouth in scikit-image's picture of an astronaut.
ASTRONAUT = [[200.1, 101.8], [247.1, 102.6], [220.4, 124.5], [198.6, 142.8], [239.7, 143.6]]


@pytest.fixture
def scorer(model):
    return facerts.load(model)


def detection(scale=1.0, left=0.0, top=0.0, nose=0.0):
    """A face whose crop begins at a position, some pixels of the photo wide per pixel of the crop."""
    points = scale * (TEMPLATE + np.array([[0, 0], [0, 0], [nose, 0], [0, 0], [0, 0]])) + np.array([left, top])
    return Detection(np.array([left, top, left + 112 * scale, top + 112 * scale]), points, 0.9)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda face: face // 10, ("under_exposed",)),
        (lambda face: np.clip(face * 6.0, 0, 255).astype(np.uint8), ("over_exposed",)),
        (lambda face: apply_change(face, "blur", 0.8), ("blurred",)),
        (lambda face: apply_change(face, "noise", 0.8), ("noisy",)),
        (lambda face: apply_change(face, "blur", 0.8) // 6, ("under_exposed",)),
        (lambda face: face, ()),
    ],
    ids=["dark", "bright", "blurred", "noisy", "dark and blurred", "clean"],
)
def test_what_a_crop_shows(change, expected):
    assert callable(change)
    assert crop_reasons(change(draw_face(3, 1))) == expected


def test_a_face_with_more_than_10_percent_of_it_outside_the_photo_is_cut_off():
    """The face region is 80 of the crop's 112 pixels wide and begins at 16."""
    for part, outside in ((0.5, 0.5), (0.25, 0.25), (0.0, 0.0), (1.0, 1.0)):
        left, right = detection(left=-16 - part * 80), detection(left=400 - 96 + part * 80)
        below = detection(top=500 - 108 + part * 84)
        for face in (left, right, below):
            assert share_outside(face, 500, 400) == pytest.approx(outside, abs=0.06)
    assert detection_reasons(detection(left=-16 - 0.2 * 80), 500, 500) == ("cut_off",)
    assert detection_reasons(detection(left=-16 - 0.05 * 80), 500, 500) == ()


def test_a_face_is_too_small_or_turned():
    for face, expected in (
        (detection(scale=11.9 / 35.24), ("too_small",)),  # eyes closer than twelve pixels
        (detection(scale=12.1 / 35.24), ()),
        (detection(nose=14), ("turned",)),
        (detection(nose=-14), ("turned",)),
        (detection(nose=5), ()),
    ):
        assert detection_reasons(face, 500, 500) == expected


def test_rows_list_what_crop_and_detection_show(scorer):
    photo = np.zeros((300, 300, 3), dtype=np.uint8)
    photo[:28, :28] = draw_face(0, 0)[::4, ::4] // 20
    small = Scorer(scorer.quality, scorer.recognizer, Finds(detection(scale=0.25)))
    (row,) = small.score(photo)
    assert row.reasons[:2] == ("too_small", "under_exposed")
    assert row.accepted is None
    (row,) = small.score(photo, min_quality=-1e9)
    assert row.accepted
    assert row.reasons[0] == "too_small"
    clean, broken = scorer.score([draw_face(0, 0), b"no image"])
    assert clean.reasons == broken.reasons == ()


def with_non_face_output(path):
    """A small model that takes bright images for non-faces."""
    return write_model(path, outputs={"embedding": "vector", "quality": "bright", "not_a_face": "bright"})


def test_what_is_not_a_face_is_rejected_unless_everything_is_accepted(tmp_path):
    scorer = facerts.load(with_non_face_output(tmp_path / "m.onnx"))
    bright, dark = np.full((112, 112, 3), 200, np.uint8), np.full((112, 112, 3), 90, np.uint8)
    for options, accepted in (
        ({}, (None, None)),
        ({"min_quality": -1e9}, (False, True)),
        ({"min_quality": -math.inf}, (True, True)),
    ):
        rows = scorer.score([bright, dark], **options)
        assert tuple(row.accepted for row in rows) == accepted
        assert [row.rejected for row in rows] == [accepted[0] is not True, False]
        assert ["not_a_face" in row.reasons for row in rows] == [True, False]
        assert not any("below_threshold" in row.reasons for row in rows)


def test_a_face_below_the_threshold_says_so_last(tmp_path):
    scorer = facerts.load(with_non_face_output(tmp_path / "m.onnx"))
    (row,) = scorer.score(np.full((112, 112, 3), 200, np.uint8), min_quality=1e9)
    assert row.reasons == ("not_a_face", "noisy", "below_threshold")
    assert reasons.in_words(row.reasons, 0.95) == "not a face; noisy"
    assert reasons.in_words(["below_threshold"], 0.95) == "below the threshold that keeps 95%"
    assert reasons.in_words(["below_threshold"]) == "below the threshold"
    assert reasons.in_words(("no_face",)) == "no face found"
    assert reasons.in_words(("turned",)) == "turned"
    assert reasons.in_words(("turned", "noisy"), pose=(-61.6, 4, 2)) == "turned: yaw 62°; noisy"


def test_reasons_come_in_the_order_of_the_documentation():
    page = (DOCS / "scoring.md").read_text(encoding="utf-8")
    names = [line.split("`")[1] for line in page.splitlines() if line.startswith("| `")]
    documented = tuple(name for name in names if name in reasons.REASONS)
    assert documented == reasons.REASONS
    assert reasons.in_order(["noisy", "not_a_face", "turned"]) == ("not_a_face", "turned", "noisy")


def test_half_a_face_or_a_tiny_one_is_not_said_to_be_none(tmp_path):
    scorer = facerts.load(with_non_face_output(tmp_path / "m.onnx"))
    photo = np.full((300, 300, 3), 200, np.uint8)
    for face, expected in (
        (detection(), ("not_a_face",)),
        (detection(scale=0.25), ("too_small",)),
        (detection(left=-50), ("cut_off",)),
    ):
        (row,) = Scorer(scorer.quality, scorer.recognizer, Finds(face)).score(photo, min_quality=-1e9)
        assert row.reasons[:1] == expected
        assert row.accepted is ("not_a_face" not in row.reasons)
        assert ("not_a_face" in row.reasons) == (expected == ("not_a_face",))


def test_a_model_without_a_probe_never_says_not_a_face():
    outputs = FaceOutputs(np.eye(3, dtype=np.float32), quality=np.full(3, -1e9, dtype=np.float32))
    assert [reasons.model_reasons(outputs, at) for at in range(3)] == [(), (), ()]


def test_a_face_may_be_covered_and_a_non_face_is_not_said_to_be():
    extras = {name: np.array(values, np.float32) for name, values in
              (("not_a_face", [-1, -1, 2, 2]), ("covered", [-0.1, 0.1, 0.1, -3]))}  # fmt: skip
    outputs = FaceOutputs(np.eye(4, dtype=np.float32), extras=extras)
    given = [reasons.model_reasons(outputs, at) for at in range(4)]
    assert given == [(), ("covered",), ("not_a_face",), ("not_a_face",)]


@pytest.mark.parametrize("name", ["facerts-quality", "facerts-quality-int8"])
def test_the_models_that_ship_know_what_is_not_a_face(name, tmp_path):
    """Joined with a recognizer, and calibrated; a network that is exported again needs eval/reasons.py --fit."""
    path = tmp_path / "joined.onnx"
    graft_quality(write_model(tmp_path / "theirs.onnx"), name, path)
    calibrated = tmp_path / "calibrated.onnx"
    embedder = load_embedder(path)
    store_description(path, embedder.description.model_copy(update={"terms": "changed"}), calibrated)
    scorer = facerts.load(calibrated)
    astronaut = np.ascontiguousarray(skimage.data.astronaut())
    cat = np.ascontiguousarray(skimage.data.chelsea()[:, 75:375])
    face, pet = scorer.score([align(astronaut, ASTRONAUT), fit_crop(cat)], keep=0.95)
    assert "not_a_face" not in face.reasons
    assert face.accepted
    assert "not_a_face" in pet.reasons
    assert not pet.accepted
