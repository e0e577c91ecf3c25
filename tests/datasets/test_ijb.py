import pickle

import cv2
import numpy as np
import pytest

from facerts.datasets import is_template_benchmark, open_benchmarks, open_templates
from facerts.datasets.synthetic import draw_face
from facerts.errors import DataError, ImageError
from facerts.images import encode_png
from facerts.images.align import TEMPLATE
from tests.datasets.test_layouts import change, write

SCALE, SHIFT = 1.7, np.array([31.0, 12.0])
POINTS = TEMPLATE * SCALE + SHIFT
# Template 3 has two images of one video, the others one each; ids are neither sorted nor contiguous.
TEMPLATES = (30, 7, 30, 12, 5)
MEDIA = (900, 901, 900, 903, 904)
SUBJECTS = {30: 1, 7: 1, 12: 2, 5: 3}
HEADER = "TEMPLATE_ID,SUBJECT_ID,FILENAME,FACE_X"


def loose(crop):
    """A crop enlarged and pasted into a larger image, in which ``POINTS`` are its landmarks."""
    move = np.array([[SCALE, 0.0, SHIFT[0]], [0.0, SCALE, SHIFT[1]]])
    return np.asarray(cv2.warpAffine(crop, move, (260, 230), flags=cv2.INTER_CUBIC), dtype=np.uint8)


def points_line(name, points=POINTS):
    return " ".join([name, *(f"{value:.4f}" for value in points.reshape(-1)), "0.99"])


@pytest.fixture
def ijb(tmp_path):
    root = tmp_path / "IJBC"
    meta = root / "meta"
    (root / "loose_crop").mkdir(parents=True)
    meta.mkdir()
    names = [f"{number}.png" for number in range(1, 6)]
    for number, name in enumerate(names):
        (root / "loose_crop" / name).write_bytes(encode_png(loose(draw_face(number, 0))))
    lines = [f"{name} {tid} {mid}" for name, tid, mid in zip(names, TEMPLATES, MEDIA, strict=True)]
    write(meta / "ijbc_face_tid_mid.txt", lines)
    write(meta / "ijbc_name_5pts_score.txt", [points_line(name) for name in names])
    write(meta / "ijbc_template_pair_label.txt", ["30 7 1", "30 12 0", "5 7 0"])
    write(meta / "ijbc_1N_gallery_G1.csv", [HEADER, "30,1,a.jpg,5", "30,1,b.jpg,6"])
    write(meta / "ijbc_1N_gallery_G2.csv", [HEADER, "12,2,c.jpg,7"])
    write(meta / "ijbc_1N_probe_mixed.csv", [HEADER, "7,1,d.jpg,1", "5,3,e.jpg,2", "7,1,f.jpg,3"])
    return root


def test_templates_pairs_and_rosters_match_the_lists(ijb):
    assert is_template_benchmark(ijb)
    benchmark = open_templates(ijb)
    ids = benchmark.template_ids
    assert benchmark.name == "ijbc"
    assert ids[benchmark.template].tolist() == list(TEMPLATES)
    assert sorted(ids.tolist()) == sorted(set(TEMPLATES))
    assert benchmark.media.tolist() == list(MEDIA)
    assert ids[benchmark.pairs].tolist() == [[30, 7], [30, 12], [5, 7]]
    assert benchmark.same.tolist() == [True, False, False]
    rosters = (*benchmark.galleries, benchmark.probes)
    assert [roster.name for roster in rosters] == ["gallery_G1", "gallery_G2", "probe_mixed"]
    assert [ids[roster.templates].tolist() for roster in rosters] == [[30], [12], [7, 5]]
    for roster in rosters:
        assert roster.subjects.tolist() == [SUBJECTS[int(template)] for template in ids[roster.templates]]
    assert [benchmark.images.key(row) for row in (0, 4)] == ["1.png", "5.png"]
    assert "There are 5 images here, but 469,375 in the published benchmark." in benchmark.notes


def test_crops_are_aligned_by_their_landmarks(ijb):
    images = open_templates(ijb).images
    for row in range(5):
        crop = images.crop(row)
        assert crop.shape == (112, 112, 3)
        # Upscaling and downscaling smooth noise; the border of the crop blends with the black around it.
        difference = np.abs(crop.astype(float) - draw_face(row, 0))[2:-2, 2:-2]
        assert difference.mean() < 3
        assert np.abs(crop.astype(float) - draw_face(row + 1, 0)).mean() > 15


def test_landmarks_are_matched_to_images_by_name(ijb):
    listing = ijb / "meta/ijbc_name_5pts_score.txt"
    lines = [points_line(f"{number}.png", POINTS + number) for number in range(1, 6)]
    write(listing, lines[::-1])
    images = open_templates(ijb).images
    assert images.points.shape == (5, 5, 2)
    np.testing.assert_allclose(images.points[:, 0, 0], POINTS[0, 0] + np.arange(1, 6), atol=1e-3)


def test_the_raw_bytes_and_the_face_size_before_alignment_are_available(ijb):
    images = open_templates(ijb).images
    assert images.read(1) == (ijb / "loose_crop/2.png").read_bytes()
    assert images.face_size(1) == pytest.approx(SCALE * np.hypot(*(TEMPLATE[1] - TEMPLATE[0])), abs=1e-3)
    again = pickle.loads(pickle.dumps(images))
    assert np.array_equal(again.crop(2), images.crop(2))


def test_landmarks_at_one_position_are_refused_with_the_image(ijb):
    lines = [points_line(f"{number}.png", np.full((5, 2), 9.0)) for number in range(1, 6)]
    write(ijb / "meta/ijbc_name_5pts_score.txt", lines)
    images = open_templates(ijb).images
    with pytest.raises(ImageError, match=r"3\.png: cannot be aligned, the points are all at the same position"):
        images.crop(2)


def test_missing_optional_lists_give_notes(ijb):
    for name in ("template_pair_label.txt", "1N_gallery_G2.csv", "1N_probe_mixed.csv"):
        (ijb / "meta" / f"ijbc_{name}").unlink()
    benchmark = open_templates(ijb)
    assert benchmark.pairs.shape == (0, 2)
    assert benchmark.same.shape == (0,)
    assert benchmark.probes is None
    assert [roster.name for roster in benchmark.galleries] == ["gallery_G1"]
    notes = " ".join(benchmark.notes)
    assert "ijbc_template_pair_label.txt is missing" in notes
    assert "1 of 2 galleries" in notes
    assert "ijbc_1N_probe_mixed.csv is missing" in notes


def meta(name, old, new):
    return lambda root: change(root / "meta" / f"ijbc_{name}", old, new)


def gone(name):
    return lambda root: (root / name).unlink()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (gone("meta/ijbc_face_tid_mid.txt"), r"ijbc_face_tid_mid\.txt: cannot be read"),
        (gone("loose_crop/4.png"), r"1 of 5 images that ijbc_face_tid_mid\.txt lists are missing, .* 4\.png"),
        (
            meta("face_tid_mid.txt", "2.png 7 901", "2.png 7"),
            r"tid_mid\.txt, line 2: '2\.png 7' is not IMAGE",
        ),
        (meta("face_tid_mid.txt", "2.png 7 901", "1.png 7 901"), r"line 2: 1\.png is listed twice"),
        (meta("name_5pts_score.txt", " 0.99\n", "\n"), r"5pts_score\.txt, line 1: .* is not IMAGE, five x"),
        (
            meta("name_5pts_score.txt", "2.png ", "9.png "),
            "1 of 5 images of .* have no landmarks in this file, .* 2.png",
        ),
        (
            lambda root: write(
                root / "meta/ijbc_name_5pts_score.txt", [points_line(f"{n}.png") for n in (1, 2, 9, 3, 4, 5)]
            ),
            r"5pts_score\.txt, line 3: 9\.png is not in ijbc_face_tid_mid\.txt",
        ),
        (
            meta("name_5pts_score.txt", f"2.png {POINTS[0, 0]:.4f}", "2.png inf"),
            r"5pts_score\.txt, line 2: a point is not a finite number",
        ),
        (
            meta("template_pair_label.txt", "30 12 0", "30 11 0"),
            "label.txt, line 2: template 11 has no images",
        ),
        (meta("template_pair_label.txt", "30 12 0", "\n99 12 0"), "label.txt, line 3: template 99 has"),
        (meta("template_pair_label.txt", "30 12 0", "30 12 2"), "label.txt, line 2: 2 is neither 1"),
        (
            lambda root: (root / "meta/ijbc_template_pair_label.txt").write_text("\n"),
            r"template_pair_label\.txt: the list is empty",
        ),
        (meta("1N_gallery_G1.csv", f"{HEADER}\n", ""), r"G1\.csv, line 1: '30,1,a.jpg,5' is not the header"),
        (
            meta("1N_gallery_G1.csv", "30,1,b", "30,2,b"),
            r"G1\.csv, line 3: template 30 belongs to person 2 here",
        ),
        (meta("1N_gallery_G2.csv", "12,2,c", "13,2,c"), r"G2\.csv, line 2: template 13 has no images"),
        (meta("1N_gallery_G2.csv", "12,2,c.jpg,7\n", ""), r"G2\.csv: it lists no templates"),
        (
            lambda root: (root / "meta/ijbb_face_tid_mid.txt").touch(),
            "contains lists of both IJB-B and IJB-C",
        ),
    ],
)
def test_a_broken_ijb_is_refused_with_file_and_line(ijb, spoil, message):
    spoil(ijb)
    with pytest.raises(DataError, match=message):
        open_templates(ijb)


def test_templates_and_pairs_of_images_are_not_confused(ijb, drawn_faces):
    with pytest.raises(DataError, match="a benchmark of templates, not of pairs of images; open it"):
        open_benchmarks(ijb)
    assert not is_template_benchmark(drawn_faces)
    with pytest.raises(DataError, match=r"not a benchmark of templates; supported are .*LFW.*IJB-C"):
        open_templates(drawn_faces)
