"""What the scripts of eval/ share: aligned crops, and rates of pairs with intervals over people."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import skimage.data

from facerts.datasets import open_source
from facerts.images import encode_png
from facerts.metrics.intervals import subject_counts
from tests.detectors import Finds, face_at
from tests.scripts import load_script


def test_photos_are_aligned_by_a_detector_and_others_left_out(tmp_path, drawn_faces, monkeypatch):
    align_crops = load_script("align_crops")
    people = open_source(drawn_faces)
    kept = range(0, len(people), 2)
    images = {people.crop(index).tobytes() for index in kept}

    of_some = Finds(face_at(0, 0), where=lambda image: image.tobytes() in images)
    monkeypatch.setattr(align_crops, "open_detector", lambda path: of_some)
    monkeypatch.setattr("sys.argv", ["align_crops.py", str(drawn_faces), "--detector", "y", "--out", str(tmp_path)])
    align_crops.main()
    written = sorted(str(path.relative_to(tmp_path).with_suffix("")) for path in tmp_path.rglob("*.png"))
    assert written == sorted(str(Path(people.key(index)).with_suffix("")) for index in kept)


def test_a_rate_of_pairs_is_resampled_by_people():
    """Against a loop over the resamples: a pair of one person counts as often as it, others as often as both."""
    random = np.random.default_rng(0)
    first, second = random.integers(0, 5, (2, 60))
    counted, among = random.random((2, 60)) > 0.4
    shares = []
    for counts in subject_counts(5, 1000, seed=0):
        weights = np.where(first == second, counts[first], counts[first] * counts[second]) * among
        if weights.sum():
            shares.append(np.average(counted, weights=weights))
    low, high = np.quantile(shares, [0.025, 0.975])
    rate = load_script("common").rate_of_pairs
    assert rate(counted, among, (first, second)) == f"{counted[among].mean():.4f} [{low:.4f}, {high:.4f}]"
    nothing = np.zeros(60, dtype=bool)
    assert rate(nothing, among, (first, second), rule_of_three=True) == "0.0000 [0.0000, 0.6000]"
    assert rate(counted, nothing, (first, second)) == "–"
    by_person = load_script("common").resampled_rate(np.array([1.0, 0, 2]), np.array([1.0, 2, 3]))
    assert by_person[0] == 0.5
    assert ((by_person >= 0) & (by_person <= 1)).all()


def test_what_is_found_in_photos_is_counted(tmp_path, reference_models, monkeypatch, capsys):
    find_faces = load_script("find_faces")
    photos, nothing = tmp_path / "photos/lfw", tmp_path / "nothing"
    for folder, image in (
        (photos, skimage.data.astronaut()[:256, 100:356]),
        (nothing, skimage.data.rocket()),
    ):
        folder.mkdir(parents=True)
        (folder / "a.png").write_bytes(encode_png(np.ascontiguousarray(image)))
    for name, value in {"PASTED": 1, "SCALES": (0.3,), "MODES": ("auto", "full")}.items():
        monkeypatch.setattr(find_faces, name, value)
    command = [
        "find_faces.py",
        "--data",
        tmp_path,
        "--without-faces",
        nothing,
        "--only",
        "pasted",
        "turned",
        "none",
    ]
    detector = reference_models / "face_detection_yunet_2023mar.onnx"
    monkeypatch.setattr("sys.argv", [*map(str, command), "--detector", str(detector)])
    find_faces.main()
    out = capsys.readouterr().out
    # One face of some 30 pixels, which a pass over the whole photo at 1,024 pixels cannot find.
    for line in re.findall(r"faces of .*", out):
        assert re.search(r"of 1: one pass 0 .*; full 1 \+ ", line), line
    assert re.findall(r"turned (\d), auto: 1 of 1 found, 1 with points within 3", out) == ["0", "1", "2", "3"]
    assert "turned 1, one pass: 1 of 1 found, 1 with" not in out
    assert len(re.findall(r"1 photos without faces, .*: \d+ boxes, 0 accepted", out)) == 3
