"""Reasons: what crosses which limit, and how rows and files show it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import facerts
from facerts.datasets.synthetic import draw_face
from facerts.detection import Detection
from facerts.embedding import FaceOutputs
from facerts.hub.registry import shipped_models
from facerts.images.align import TEMPLATE
from facerts.images.corruptions import degrade
from facerts.scoring import Row, Scorer, reasons
from facerts.scoring.blocks import Block, read_rows, write_block
from facerts.scoring.reasons import crop_reasons, detection_reasons, share_outside

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def scorer(model: Path) -> Scorer:
    return facerts.load(model)


def detection(scale: float = 1.0, left: float = 0.0, top: float = 0.0, nose: float = 0.0) -> Detection:
    """A face whose crop begins at a position, some pixels of the photo wide per pixel of the crop."""
    points = scale * (TEMPLATE + np.array([[0, 0], [0, 0], [nose, 0], [0, 0], [0, 0]])) + np.array(
        [left, top]
    )
    return Detection(np.array([left, top, left + 112 * scale, top + 112 * scale]), points, 0.9)


class OneFace:
    """A detector that finds the same face in every photo."""

    identity = "one face"

    def __init__(self, face: Detection) -> None:
        self.face = face

    def __call__(self, image: NDArray[np.uint8]) -> list[Detection]:
        return [self.face]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda face: face // 10, ("under_exposed",)),
        (lambda face: np.clip(face * 6.0, 0, 255).astype(np.uint8), ("over_exposed",)),
        (lambda face: degrade(face, "blur", 0.8), ("blurred",)),
        (lambda face: degrade(face, "noise", 0.8), ("noisy",)),
        (lambda face: degrade(face, "blur", 0.8) // 6, ("under_exposed",)),
        (lambda face: face, ()),
    ],
    ids=["dark", "bright", "blurred", "noisy", "dark and blurred", "clean"],
)
def test_what_a_crop_shows(change: object, expected: tuple[str, ...]) -> None:
    assert callable(change)
    assert crop_reasons(change(draw_face(3, 1))) == expected


def test_a_face_with_more_than_10_percent_of_it_outside_the_photo_is_cut_off() -> None:
    """The face region is 80 of the crop's 112 pixels wide and begins at 16."""
    for part, outside in ((0.5, 0.5), (0.25, 0.25), (0.0, 0.0), (1.0, 1.0)):
        left, right = detection(left=-16 - part * 80), detection(left=400 - 96 + part * 80)
        below = detection(top=500 - 108 + part * 84)
        for face in (left, right, below):
            assert share_outside(face, 500, 400) == pytest.approx(outside, abs=0.06)
    assert detection_reasons(detection(left=-16 - 0.2 * 80), 500, 500) == ("cut_off",)
    assert detection_reasons(detection(left=-16 - 0.05 * 80), 500, 500) == ()


def test_a_face_is_too_small_or_turned_away() -> None:
    for face, expected in (
        (detection(scale=11.9 / 35.24), ("too_small",)),  # eyes closer than twelve pixels
        (detection(scale=12.1 / 35.24), ()),
        (detection(nose=14), ("turned_away",)),
        (detection(nose=-14), ("turned_away",)),
        (detection(nose=5), ()),
    ):
        assert detection_reasons(face, 500, 500) == expected


def test_rows_list_what_crop_and_detection_show(scorer: Scorer) -> None:
    photo = np.zeros((300, 300, 3), dtype=np.uint8)
    photo[:28, :28] = draw_face(0, 0)[::4, ::4] // 20
    small = Scorer(scorer.embedder, OneFace(detection(scale=0.25)))
    (row,) = small.score(photo)
    assert row.reasons[:2] == ("too_small", "under_exposed")
    assert row.accepted is None
    (row,) = small.score(photo, min_quality=-1e9)
    assert row.accepted
    assert row.reasons[0] == "too_small"
    clean, broken = scorer.score([draw_face(0, 0), b"no image"])
    assert clean.reasons == broken.reasons == ()


def test_the_probe_of_a_model_says_what_is_not_a_face(
    scorer: Scorer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faces = [draw_face(identity, 0) // 10 for identity in range(8)]
    outputs = scorer.embed(faces)
    random = np.random.default_rng(0)
    weights = random.standard_normal(outputs.embedding.shape[1])
    assert outputs.norm is not None
    assert outputs.quality is not None
    raw = outputs.embedding * outputs.norm[:, None]
    sums = raw @ weights + 0.3 * outputs.norm - 0.2 * outputs.quality
    probe = {"embedding": weights.tolist(), "norm": 0.3, "quality": -0.2, "bias": float(-np.median(sums))}
    probes = tmp_path / "probes.json"
    probes.write_text(json.dumps({scorer.embedder.sha256: probe}))
    monkeypatch.setattr(reasons, "PROBES", probes)
    reasons.find_probe.cache_clear()
    try:
        rows = scorer.score(faces)
    finally:
        reasons.find_probe.cache_clear()
    not_faces = ["not_a_face" in row.reasons for row in rows]
    assert not_faces == (sums > np.median(sums)).tolist()
    assert sum(not_faces) == 4
    assert {row.reasons for row in rows} == {("not_a_face", "under_exposed"), ("under_exposed",)}


def test_reasons_come_in_the_order_of_the_documentation() -> None:
    page = (DOCS / "scoring.md").read_text(encoding="utf-8")
    names = [line.split("`")[1] for line in page.splitlines() if line.startswith("| `")]
    documented = tuple(name for name in names if name in reasons.REASONS)
    assert documented == reasons.REASONS
    assert reasons.in_order(["noisy", "not_a_face", "cut_off"]) == ("cut_off", "not_a_face", "noisy")


def test_a_model_without_a_probe_never_says_not_a_face() -> None:
    outputs = FaceOutputs(np.eye(3, dtype=np.float32), quality=np.full(3, -1e9, dtype=np.float32))
    assert reasons.model_reasons("0" * 64, outputs) == [(), (), ()]


def test_probes_belong_to_models_that_ship() -> None:
    """A model that is exported again needs its probe fitted again (eval/reasons.py --fit)."""
    shipped = {model.sha256: model.embedding_size for model in shipped_models()}
    probes = json.loads(reasons.PROBES.read_text())
    assert probes
    assert {sha256: len(probe["embedding"]) for sha256, probe in probes.items()}.items() <= shipped.items()


def test_an_unfinished_run_keeps_the_reasons(tmp_path: Path) -> None:
    rows = [
        Row("a.jpg", face=0, reasons=("cut_off", "blurred")),
        Row("b.jpg", face=0),
        Row("c.jpg", error="no"),
    ]
    write_block(tmp_path / "0", 0, Block(rows, [None] * 3))
    assert read_rows(tmp_path / "0", 0) == rows
