from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from facerts.datasets import open_source
from facerts.datasets.fingerprint import hash_images
from facerts.embedding import load_table
from facerts.errors import Error
from facerts.evaluation.corruption_benchmark import PERCENTILES, SEVERITIES, corruptions_of, run_corruptions
from facerts.evaluation.result_folder import load_result
from facerts.images.changes import KINDS, apply_change
from tests.evaluation.conftest import Plain

STEPS = [0.0, *SEVERITIES]


def test_every_kind_severity_and_score_is_measured(plain: Plain, drawn_faces: Path, tmp_path: Path) -> None:
    run_corruptions(plain, [str(drawn_faces)], tmp_path, images=10)
    content, arrays = load_result(tmp_path)
    section = content.corruptions["faces"]
    assert section.images == 10
    assert section.severity == STEPS == [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert section.seed == 0
    assert section.data_sha256 == hash_images(open_source(drawn_faces)).sha256
    assert list(section.kinds) == list(KINDS)
    for kind in section.kinds.values():
        assert list(kind.by) == ["quality", "norm", "sharpness"]
        for measured in (kind.cosine, *kind.by.values()):
            p5, p50, p95 = (np.array(getattr(measured, f"p{at}")) for at in PERCENTILES)
            assert len(p50) == len(STEPS)
            assert ((p5 <= p50) & (p50 <= p95)).all()
        for measured in kind.by.values():
            assert len(measured.auroc) == len(SEVERITIES)
            assert isinstance(measured.monotone, bool)
    for name in ("quality", "norm", "sharpness"):
        wanted = ["clean", *(f"{kind}/{severity:g}" for kind in KINDS for severity in SEVERITIES)]
        for step in wanted:
            assert arrays[f"corruptions/faces/{step}/{name}"].shape == (10,)
    assert len(arrays) == 3 * (1 + len(KINDS) * len(SEVERITIES))
    json.dumps(content.to_json(), allow_nan=False)


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(KINDS))
def test_a_step_is_each_image_degraded_and_measured_by_itself(
    plain: Plain, drawn_faces: Path, kind: str
) -> None:
    source = open_source(drawn_faces)
    section, arrays = corruptions_of(plain, source, images=7, batch_size=3, seed=5)
    rows = np.linspace(0, len(source) - 1, 7).astype(int).tolist()
    assert rows[0] == 0
    assert rows[-1] == len(source) - 1
    worse = plain(np.stack([apply_change(source.crop(row), kind, 0.6, (5, row)) for row in rows]))
    clean = plain(np.stack([source.crop(row) for row in rows]))
    assert worse.quality is not None
    assert clean.quality is not None
    np.testing.assert_allclose(arrays[f"{kind}/0.6/quality"], worse.quality, atol=1e-6)
    measured, place = section.kinds[kind], STEPS.index(0.6)
    cosine = np.sum(worse.embedding * clean.embedding, axis=1)
    for at in PERCENTILES:
        assert getattr(measured.cosine, f"p{at}")[place] == pytest.approx(np.percentile(cosine, at), abs=1e-6)
        expected = np.percentile(worse.quality, at)
        assert getattr(measured.by["quality"], f"p{at}")[place] == pytest.approx(expected, abs=1e-6)
    above = clean.quality[:, None] > worse.quality
    ties = clean.quality[:, None] == worse.quality
    assert measured.by["quality"].auroc[place - 1] == pytest.approx(above.mean() + ties.mean() / 2)


def test_corruptions_are_the_same_every_time(plain: Plain, drawn_faces: Path) -> None:
    source = open_source(drawn_faces)
    first, second = (corruptions_of(plain, source, images=5, batch_size=size)[0] for size in (2, 64))
    for kind in KINDS:
        np.testing.assert_allclose(
            first.kinds[kind].by["norm"].p50, second.kinds[kind].by["norm"].p50, rtol=1e-5
        )


def test_embeddings_computed_elsewhere_are_refused(drawn_faces: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", embeddings=np.eye(3, dtype=np.float32), names=np.array(["a", "b", "c"]))
    with pytest.raises(Error, match="the corruption benchmark creates new images, so it needs a model"):
        run_corruptions(load_table(tmp_path / "t.npz"), [str(drawn_faces)], tmp_path / "r")
    assert not (tmp_path / "r").exists()
