"""What users of other face libraries have reported, tried here; docs/bug-reports.md lists most of them.

Where the same behavior is tested elsewhere there is no test here.
"""

import io
import multiprocessing
import sys
import zipfile
from multiprocessing.queues import SimpleQueue

import cv2
import numpy as np
import pytest
import skimage.data
from numpy.typing import NDArray
from PIL import Image

import facerts
from facerts.datasets.synthetic import draw_face
from facerts.detection import Detector
from facerts.detection.detector import largest_first
from facerts.errors import Error, ImageError, ModelError
from facerts.scoring import Scorer
from tests.detectors import Finds, face_at, write_scrfd

Pixels = NDArray[np.uint8]


def placed(*corners: tuple[int, int]) -> Finds:
    """A detector that finds drawn faces where a test has put them, and none in black photos."""
    return Finds(*(face_at(*corner) for corner in corners), where=np.any)


@pytest.fixture(scope="module")
def shipped() -> Scorer:
    return facerts.load(detector="none")


def with_detector(scorer: Scorer, detector: Finds) -> Scorer:
    return Scorer(scorer.quality, scorer.recognizer, detector)


def photo(*faces: tuple[int, int], height: int = 200, width: int = 300) -> Pixels:
    """A photo with drawn faces whose upper left corners are these; they may be cut off by its border."""
    canvas = np.full((height + 224, width + 224, 3), 90, dtype=np.uint8)
    for person, (left, top) in enumerate(faces):
        canvas[top + 112 : top + 224, left + 112 : left + 224] = draw_face(person, 0)
    return np.ascontiguousarray(canvas[112:-112, 112:-112])


@pytest.mark.parametrize("corner", [(-30, 40), (60, -40), (220, 40), (60, 130), (-30, -30)], ids=str)
def test_a_box_beyond_the_border_is_kept_and_said_to_be_cut_off(shipped, corner):
    # serengil/deepface#1307, immich-app/immich#16885
    image = photo(corner)
    (face,) = with_detector(shipped, placed(corner)).faces(image)
    assert face.row.box == [*corner, corner[0] + 112, corner[1] + 112]
    assert face.reasons[0] == "cut_off"
    assert face.crop is not None
    inside = face.crop.any(axis=2)
    np.testing.assert_array_equal(face.crop[inside], draw_face(0, 0)[inside])
    assert facerts.annotate(image, [face]).shape[1] == 2 * image.shape[1]


def test_the_largest_face_comes_first_and_alone_where_one_is_asked_for(shipped):
    # exadel-inc/CompreFace#1081
    two_sizes = Finds(*largest_first([face_at(5, 5, side=40), face_at(150, 60)]))
    scorer = with_detector(shipped, two_sizes)
    image = photo((150, 60))
    assert [face.index for face in scorer.faces(image)] == [0, 1]
    assert [row.box for row in scorer.score(image, largest=True)] == [[150, 60, 262, 172]]
    assert scorer.faces(image)[0].box.tolist() == [150, 60, 262, 172]


@pytest.mark.parametrize("mode", ["L", "LA", "RGBA", "CMYK", "P", "I;16"])
def test_pixels_of_every_mode_are_scored(shipped, mode):
    # ageitgey/face_recognition#136
    pixels = draw_face(3, 0)
    gray = np.asarray(Image.fromarray(pixels).convert("L"))
    deep = mode == "I;16"
    image = Image.fromarray(gray.astype(np.uint16) * 257) if deep else Image.fromarray(pixels).convert(mode)
    file = io.BytesIO()
    image.save(file, "JPEG" if mode == "CMYK" else "PNG", quality=100)
    expected = shipped.score(pixels if mode in ("RGBA", "CMYK", "P") else gray)[0].quality
    assert image.mode == mode
    for row in shipped.score([image, file.getvalue()]):
        assert row.quality == pytest.approx(expected, abs=0.1 if mode == "P" else 0.02)


@pytest.mark.parametrize("view", ["rotated", "mirrored", "Fortran", "read-only", "part"])
def test_views_of_photos_give_what_copies_give(shipped, view):
    # sepinf-inc/IPED#2885
    scorer = with_detector(shipped, placed((30, 40)))
    image = photo((30, 40))
    views = {
        "rotated": np.rot90(np.rot90(image, -1).copy()),
        "mirrored": image[:, ::-1].copy()[:, ::-1],
        "Fortran": np.asfortranarray(image),
        "read-only": image.copy(),
        "part": np.pad(image, ((3, 3), (5, 5), (0, 0)))[3:-3, 5:-5],
    }
    views["read-only"].flags.writeable = False
    assert scorer.score(views[view]) == scorer.score(image)
    np.testing.assert_array_equal(scorer.embed(views[view]).embedding, scorer.embed(image).embedding)


def test_a_pack_in_a_folder_is_found_and_one_without_a_detector_named(tmp_path):
    # deepinsight/insightface#2069
    network = write_scrfd(tmp_path / "det.onnx")
    for name, member in (("inner.zip", "buffalo/buffalo/det.onnx"), ("none.zip", "readme.txt")):
        with zipfile.ZipFile(tmp_path / name, "w") as pack:
            pack.write(network, member)
    image = np.zeros((64, 64, 3), dtype=np.uint8)
    assert Detector(tmp_path / "inner.zip")(image) == []
    with pytest.raises(ModelError, match=r"must have one SCRFD detector .* none \(no \.onnx files\)"):
        Detector(tmp_path / "none.zip")(image)
    (tmp_path / "cut.zip").write_bytes((tmp_path / "inner.zip").read_bytes()[:2000])
    with pytest.raises(ModelError, match=r"cut\.zip: cannot be unpacked"):
        Detector(tmp_path / "cut.zip")(image)


@pytest.mark.parametrize("batch_size", [1, 3, 8])
def test_neither_the_batch_nor_the_run_changes_an_embedding(shipped, batch_size):
    # davidsandberg/facenet#278
    crops = np.stack([draw_face(person, 0) for person in range(7)])
    expected = shipped.embed(crops)
    batches = facerts.load(detector="none", batch_size=batch_size).embed(crops)
    np.testing.assert_allclose(batches.embedding, expected.embedding, atol=1e-6)
    assert shipped.embed(crops).quality.tolist() == expected.quality.tolist()


@pytest.mark.parametrize("person", range(4))
def test_quality_falls_as_blur_grows(shipped, person):
    # fdbtrs/CR-FIQA#5
    sharp = draw_face(person, 0)
    blurred = [cv2.GaussianBlur(sharp, (0, 0), sigma) for sigma in (2, 4, 8)]
    rows = shipped.score([sharp, *blurred])
    qualities = [row.quality or 0 for row in rows]
    assert qualities == sorted(qualities, reverse=True)
    assert all(0 <= (row.percentile or 0) <= 100 for row in rows)


def test_what_shows_nothing_is_no_face_and_matches_nobody(shipped):
    # serengil/deepface#361
    noise = np.random.default_rng(0).integers(0, 256, (112, 112, 3), dtype=np.uint8)
    crops = [*(np.full((112, 112, 3), level, dtype=np.uint8) for level in (0, 128, 255)), noise]
    assert [(row.verdict, row.accepted) for row in shipped.score(crops)] == [("not a face", False)] * 4
    for crop in crops:
        assert shipped.verify(crop, crop).decision == "inconclusive"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, systems' own libraries do not survive a fork")
def test_a_forked_process_scores_as_its_parent(shipped):
    # davisking/dlib#1555
    crop = draw_face(0, 0)
    expected = shipped.embed(crop).embedding
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=put_embedding, args=(queue, shipped, crop))
    child.start()
    child.join(60)
    child.kill()
    assert child.exitcode == 0
    np.testing.assert_array_equal(queue.get(), expected)


def put_embedding(queue: SimpleQueue[Pixels], scorer: Scorer, crop: Pixels) -> None:
    queue.put(scorer.embed(crop).embedding)


@pytest.mark.parametrize("degrees", [-40, -20, 20, 40])
def test_a_tilted_face_is_aligned_as_an_upright_one(reference_models, degrees):
    # serengil/deepface#741
    scorer = facerts.load(detector=reference_models / "scrfd_500m_kps.onnx")
    upright = skimage.data.astronaut()[:300, 80:380]
    turn = cv2.getRotationMatrix2D((140, 110), degrees, 1)
    tilted = cv2.warpAffine(upright, turn, (300, 300), borderMode=cv2.BORDER_REPLICATE)
    (face, *_), (turned, *_) = scorer.faces(upright), scorer.faces(tilted)
    assert face.similarity(turned) > 0.9
    assert turned.row.pose[2] - face.row.pose[2] == pytest.approx(-degrees, abs=8)


@pytest.mark.parametrize("shape", [(1, 1), (3, 500), (320, 320), (640, 640), (641, 639)], ids=str)
@pytest.mark.parametrize("file", ["face_detection_yunet_2023mar.onnx", "scrfd_500m_kps.onnx"])
def test_no_size_of_a_photo_is_an_error(reference_models, file, shape):
    # opencv/opencv_zoo#200, deepinsight/insightface#2774
    height, width = shape
    image = cv2.resize(skimage.data.astronaut()[:300, 80:380], (width, height))
    found = Detector(reference_models / file)(image)
    assert len(found) == (height > 3)
    for face in found:
        assert face.box[2] - face.box[0] == pytest.approx(0.36 * width, rel=0.2)


def test_what_is_no_photo_is_refused_by_a_detector_with_what_it_is(tmp_path):
    detector = Detector(write_scrfd(tmp_path / "m.onnx"))
    photo = np.zeros((64, 64, 3), dtype=np.uint8)
    for wrong in (
        photo[..., :1],
        np.dstack([photo, photo])[..., :4],
        photo / 255.0,
        photo[:0],
        None,
        "a.jpg",
    ):
        with pytest.raises(ImageError, match=r"an image must be an array, \(H, W, 3\) uint8 RGB, not "):
            detector(wrong)
    assert detector(photo) == []


def test_settings_without_a_meaning_are_refused_before_a_photo_comes():
    for name, values in (("det_threshold", (-0.1, 1.5, np.nan)), ("min_face_size", (-5, np.nan))):
        for value in values:
            with pytest.raises(Error, match=f"{name}.* must be .*0"):
                facerts.load(**{name: value})
    with pytest.raises(Error, match="det_size"):
        facerts.load(det_size=3)


def test_one_bad_image_costs_only_its_own_row(shipped):
    (row,) = with_detector(shipped, Finds(face_at(10, 10, side=0))).score(photo())
    assert "points are all at the same position" in str(row.error)
    nul, good = shipped.score(["a\0b.jpg", draw_face(0, 0)])
    assert "cannot be read (embedded null" in str(nul.error)
    assert good.error is None


def test_an_array_of_photos_is_embedded_as_it_is_scored(shipped):
    scorer, image = with_detector(shipped, placed((30, 20))), photo((30, 20))
    outputs = scorer.embed(np.stack([image, image]))
    np.testing.assert_array_equal(outputs.embedding[0], scorer.embed([image]).embedding[0])
