import numpy as np
import pytest

from facerts.datasets import Subset, open_source
from facerts.datasets.synthetic import draw_face
from facerts.embedding.aligned import AlignedPhotos, alignment_notes
from facerts.evaluation.benchmark_runs import run_pairs
from facerts.evaluation.evaluation_options import EvaluationOptions
from facerts.images import encode_png
from facerts.images.align import TEMPLATE
from tests.detectors import Finds, face_at

PLACE = (60, 30)  # of the crop's corner in the photo: x, y


def photo(identity, image):
    """A drawn face somewhere in a gray photo of 240 x 180."""
    whole = np.full((180, 240, 3), 120, dtype=np.uint8)
    whole[PLACE[1] : PLACE[1] + 112, PLACE[0] : PLACE[0] + 112] = draw_face(identity, image)
    return whole


# The face where ``photo`` puts it, and a smaller one at the middle; nothing in a photo that is all gray.
DETECTOR = Finds(face_at(*PLACE), face_at(90, 60, 60), where=np.std)


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    for person in range(12):
        (folder / f"p{person:02d}").mkdir(parents=True)
        for number in range(2):
            data = encode_png(photo(person, number))
            (folder / f"p{person:02d}" / f"{number}.png").write_bytes(data)
    return folder


def test_the_largest_face_is_aligned_and_not_a_smaller_one_nearer_the_middle(photos):
    source = AlignedPhotos(open_source(photos), DETECTOR)
    for index in (0, 5):
        difference = source.crop(index).astype(int) - draw_face(index // 2, index % 2)
        assert np.abs(difference).mean() < 2
    eyes = TEMPLATE[1] - TEMPLATE[0]
    assert source.face_size(0) == pytest.approx(float(np.hypot(*eyes)))
    assert source.without_face() == []
    assert alignment_notes(source) == []
    assert source.labels is not None


def test_the_middle_is_taken_where_no_face_is_found_and_that_is_said(tmp_path):
    (tmp_path / "gray.png").write_bytes(encode_png(np.full((60, 90, 3), 7, dtype=np.uint8)))
    source = AlignedPhotos(open_source(tmp_path), DETECTOR)
    assert source.crop(0).shape == (112, 112, 3)
    assert (source.crop(0) == 7).all()
    assert source.face_size(0) == 0.0
    assert alignment_notes(source) == [
        "No face was found in 1 photos, the first is gray.png; their center was cropped."
    ]


def test_photos_that_are_taken_for_crops_are_warned_of(tmp_path):
    (tmp_path / "a.png").write_bytes(encode_png(np.zeros((250, 250, 3), dtype=np.uint8)))
    source = open_source(tmp_path)
    for one in (source, Subset(source, [0]), open_source([tmp_path, tmp_path])):
        assert alignment_notes(one) == [
            "Images are 250 x 250 pixels and were resized to 112 x 112; if they are photos and not aligned crops, "
            "set a detector (detector=yunet)."
        ]
    (tmp_path / "0_broken.png").write_bytes(b"no")
    source = open_source(tmp_path)
    (tmp_path / "a.png").write_bytes(encode_png(np.zeros((100, 100, 3), dtype=np.uint8)))
    assert "100 x 100 pixels and were resized" in alignment_notes(source)[0]
    (tmp_path / "a.png").write_bytes(encode_png(draw_face(0, 0)))
    assert alignment_notes(open_source(tmp_path)) == []


def test_a_benchmark_of_photos_is_measured_as_one_of_crops(photos, plain, tmp_path):
    lines = ["first,second,same"]
    for person in range(12):
        lines.append(f"p{person:02d}/0.png,p{person:02d}/1.png,1")
        lines.append(f"p{person:02d}/0.png,p{(person + 1) % 12:02d}/1.png,0")
    listing = photos / "pairs.csv"
    listing.write_text("\n".join(lines))
    options = EvaluationOptions(flip=False, detector=DETECTOR, fmr=0.1)
    result = run_pairs(plain, ["verification", "reject"], [listing], tmp_path / "aligned", options)
    crops = tmp_path / "crops"
    for source in photos.rglob("*.png"):
        target = crops / source.relative_to(photos)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(encode_png(draw_face(int(source.parent.name[1:]), int(source.stem))))
    (crops / "pairs.csv").write_text("\n".join(lines))
    expected = run_pairs(
        plain, ["verification"], [crops / "pairs.csv"], tmp_path / "plain", EvaluationOptions(flip=False)
    )
    got = result.of_kind("verification")["pairs"]
    assert got.measure("AUROC").value == pytest.approx(
        expected.of_kind("verification")["pairs"].measure("AUROC").value, abs=0.03
    )
    assert "face_size" in {one.of["score"] for one in result.of_kind("reject")["pairs"].measures}
