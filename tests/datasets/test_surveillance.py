"""TinyFace and SCface, drawn in their layouts."""

from pathlib import Path

import numpy as np
import pytest

from facerts.datasets import is_template_benchmark, open_templates
from facerts.datasets.synthetic import draw_face
from facerts.errors import DataError
from facerts.images import encode_jpeg

FACES = [encode_jpeg(draw_face(person, 0)) for person in range(3)]


def put(root, keys):
    for key in keys:
        (root / key).parent.mkdir(parents=True, exist_ok=True)
        (root / key).write_bytes(FACES[int(Path(key).name.split("_")[0]) % 3])


def members(benchmark, roster):
    """The subject of each image of a roster."""
    subject_of = dict(zip(roster.templates.tolist(), roster.subjects.tolist(), strict=True))
    rows = np.flatnonzero(np.isin(benchmark.template, roster.templates))
    return {benchmark.images.key(row): subject_of[benchmark.template[row]] for row in rows}


# TinyFace.


@pytest.fixture
def tinyface(tmp_path):
    put(
        tmp_path / "tinyface/Testing_Set",
        [
            *("Gallery_Match/1_1.jpg", "Gallery_Match/1_2.jpg", "Gallery_Match/20_7.jpg"),
            *("Probe/1_3.jpg", "Probe/20_1.jpg"),
            *("Gallery_Distractor/0_0_0_1_20.jpg", "Gallery_Distractor/1_0_0_7_20.jpg"),
        ],
    )
    return tmp_path / "tinyface"


def test_tinyface_searches_for_probes_among_matches_and_distractors(tinyface):
    assert is_template_benchmark(tinyface)
    benchmark = open_templates(tinyface)
    assert benchmark.name == "tinyface"
    (gallery,) = benchmark.galleries
    found = members(benchmark, gallery)
    assert {key: who for key, who in found.items() if who > 0} == {
        "Gallery_Match/1_1.jpg": 1,
        "Gallery_Match/1_2.jpg": 1,
        "Gallery_Match/20_7.jpg": 20,
    }
    # A distractor whose name begins with 1 is not person 1, and the two are not one person.
    strangers = [who for key, who in found.items() if key.startswith("Gallery_Distractor/")]
    assert len(set(strangers)) == 2
    assert max(strangers) < 0
    assert members(benchmark, benchmark.probes) == {"Probe/1_3.jpg": 1, "Probe/20_1.jpg": 20}
    assert len(benchmark.pairs) == 0
    assert len(benchmark.images) == len(set(benchmark.template.tolist())) == 7
    assert benchmark.images.read(6) == (tinyface / "Testing_Set/Probe/20_1.jpg").read_bytes()
    assert [note.split(",")[0] for note in benchmark.notes] == [
        "There are 3 images in Gallery_Match here",
        "There are 2 images in Gallery_Distractor here",
        "There are 2 images in Probe here",
    ]


def test_aligned_copies_of_tinyface_have_no_testing_set_and_may_lack_distractors(tinyface):
    aligned = (tinyface / "Testing_Set").rename(tinyface.parent / "tinyface_aligned_112")
    for path in (aligned / "Gallery_Distractor").iterdir():
        path.unlink()
    (aligned / "Gallery_Distractor").rmdir()
    benchmark = open_templates(aligned)
    assert set(members(benchmark, benchmark.galleries[0]).values()) == {1, 20}
    assert "There are 0 images in Gallery_Distractor here, but 153,428 in the published benchmark." in (benchmark.notes)


def test_a_name_without_a_person_is_refused(tinyface):
    (tinyface / "Testing_Set/Probe/anybody.jpg").write_bytes(FACES[0])
    with pytest.raises(DataError, match=r"Probe/anybody\.jpg: the name does not begin with the number"):
        open_templates(tinyface)


# SCface.


@pytest.fixture
def scface(tmp_path):
    root = tmp_path / "SCface_database"
    put(root, [f"mugshot_frontal_cropped_all/{who:03d}_frontal.JPG" for who in (1, 2, 130)])
    put(
        root,
        [
            f"surveillance_cameras_distance_{distance}/cam_{camera}/{who:03d}_cam{camera}_{distance}.jpg"
            for distance in (1, 2, 3)
            for camera in (1, 5, 6)
            for who in (1, 2, 130)
        ],
    )
    (root / "surveillance_cameras_distance_1/cam_1/Thumbs.db").write_bytes(b"")
    return root


def test_scface_searches_for_surveillance_images_among_mugshots(scface):
    benchmark = open_templates(scface)
    assert benchmark.name == "scface"
    assert members(benchmark, benchmark.galleries[0]) == {
        f"mugshot_frontal_cropped_all/{who:03d}_frontal.JPG": who for who in (1, 2, 130)
    }
    # Camera 6 is infrared.
    assert members(benchmark, benchmark.probes) == {
        f"surveillance_cameras_distance_{distance}/cam_{camera}/{who:03d}_cam{camera}_{distance}.jpg": who
        for distance in (1, 2, 3)
        for camera in (1, 5)
        for who in (1, 2, 130)
    }
    assert benchmark.notes == (
        "There are 3 mugshots here, but 130 in the published benchmark.",
        "There are 18 probes here, but 1,950 in the published benchmark.",
    )


def test_the_folder_of_a_distance_is_that_distance_alone(scface):
    benchmark = open_templates(scface / "surveillance_cameras_distance_2")
    assert benchmark.name == "scface_distance_2"
    assert len(members(benchmark, benchmark.galleries[0])) == 3
    probes = members(benchmark, benchmark.probes)
    assert len(probes) == 6
    assert all(key.startswith("surveillance_cameras_distance_2/") for key in probes)
    assert benchmark.notes[1] == "There are 6 probes here, but 650 in the published benchmark."


def test_a_broken_scface_is_named(scface):
    wrong = scface / "surveillance_cameras_distance_3/cam_5/someone.jpg"
    wrong.write_bytes(FACES[0])
    with pytest.raises(DataError, match=r"cam_5/someone\.jpg: the name"):
        open_templates(scface)
    assert open_templates(scface / "surveillance_cameras_distance_1").name == "scface_distance_1"
    for path in (scface / "mugshot_frontal_cropped_all").iterdir():
        path.unlink()
    (scface / "mugshot_frontal_cropped_all").rmdir()
    assert not is_template_benchmark(scface)
    assert not is_template_benchmark(scface / "surveillance_cameras_distance_1")
    (scface / "mugshot_frontal_original_all").mkdir()
    with pytest.raises(DataError, match="no images found"):
        open_templates(scface)
