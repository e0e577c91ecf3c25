from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import spearmanr

from facerts.datasets import open_source
from facerts.datasets.fingerprint import hash_images
from facerts.embedding import Embedder, FaceOutputs, load_table
from facerts.embedding.combined import CombinedEmbedder
from facerts.errors import Error, MissingExtraError
from facerts.evaluation.corruption_benchmark import PERCENTILES, REPLICATES, run_corruptions
from facerts.evaluation.result_folder import Arrays, load_result
from facerts.evaluation.results.corruptions_result import CorruptionResult
from facerts.images.changes import CHANGES, apply_change
from facerts.images.transforms import albumentations
from facerts.onnx.contract import QUANTILES, SCHEMA, Calibration, Description, QualityThreshold
from tests.evaluation.conftest import Plain, Seeded

KINDS = ("gray", "hue", "blur", "occlusion", "white_margins")
STEPS = [0.0, 0.5, 1.0]
# A person each, and images of theirs beside each other: 8 images of 8 people.
ROWS, OTHERS = np.arange(0, 64, 8), np.arange(1, 64, 8)


class Calibrated(Plain):
    """Plain with a calibrated threshold and percentiles, and an opinion on what is no face."""

    def __init__(self, threshold: float, quantiles: NDArray[np.floating]) -> None:
        super().__init__("calibrated")
        calibration = Calibration(
            data="d", data_sha256="0", faces=101, identities=None, quantiles=tuple(quantiles)
        )
        self.description = Description(
            schema=SCHEMA,
            quality="output:quality",
            thresholds={"0.950": QualityThreshold(quality=threshold, data_sha256="0")},
            calibration=calibration,
        )

    def __call__(self, crops: NDArray[np.uint8]) -> FaceOutputs:
        return self.outputs(crops)

    def outputs(self, crops: NDArray[np.uint8]) -> FaceOutputs:
        return replace(super().__call__(crops), extras={"not_a_face": brightness(crops)[:, None] - 0.45})


def brightness(crops: NDArray[np.uint8]) -> NDArray[np.float32]:
    return np.asarray(crops.mean(axis=(1, 2, 3)) / 255, dtype=np.float32)


def measured(
    model: Embedder,
    data: Path,
    out: Path,
    *,
    recognizers: Mapping[str, Embedder] | None = None,
    images: int = 99,
) -> tuple[CorruptionResult, Arrays]:
    run_corruptions(
        model, [str(data)], out, recognizers=recognizers, images=images, kinds=KINDS, severities=STEPS[1:]
    )
    content, arrays = load_result(out)
    json.dumps(content.to_json(), allow_nan=False)
    return content.corruptions["faces"], arrays


def crops_of(data: Path, rows: NDArray[np.integer], kind: str = "", severity: float = 0) -> NDArray[np.uint8]:
    source = open_source(data)
    crops = {row: source.crop(row) for row in rows.tolist()}
    if severity:
        crops = {row: apply_change(crop, kind, severity, (0, row)) for row, crop in crops.items()}
    return np.stack(list(crops.values()))


@pytest.fixture(scope="module")
def flat_faces(drawn_faces: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same images in one folder, without people."""
    folder = tmp_path_factory.mktemp("flat") / "faces"
    folder.mkdir()
    for path in sorted(drawn_faces.rglob("*.*")):
        (folder / f"{path.parent.name}_{path.name}").write_bytes(path.read_bytes())
    return folder


def test_each_step_is_measured_on_evenly_spaced_faces(plain: Plain, flat_faces: Path, tmp_path: Path) -> None:
    section, arrays = measured(plain, flat_faces, tmp_path, images=7)
    rows = np.linspace(0, 63, 7).astype(int)
    assert (section.images, section.people, section.severity) == (7, False, STEPS)
    assert section.data_sha256 == hash_images(open_source(flat_faces)).sha256
    assert list(section.kinds) == list(KINDS)
    clean = plain(crops_of(flat_faces, rows))
    assert clean.quality is not None
    for kind, of_kind in section.kinds.items():
        assert (of_kind.family, of_kind.held_out) == (CHANGES[kind].family, CHANGES[kind].held_out)
        assert (of_kind.to_other, of_kind.not_a_face) == ({}, None)
        assert list(of_kind.by) == ["quality", "norm", "sharpness"]
        for place, severity in enumerate(STEPS):
            changed = plain(crops_of(flat_faces, rows, kind, severity))
            assert changed.quality is not None
            cosine = np.sum(changed.embedding * clean.embedding, axis=1)
            name = f"{kind}/{severity:g}" if severity else "clean"
            np.testing.assert_allclose(
                arrays[f"corruptions/faces/{name}/quality"], changed.quality, atol=1e-6
            )
            for found, values in (
                (of_kind.to_unchanged["plain"], cosine),
                (of_kind.by["quality"], changed.quality),
            ):
                steps = [getattr(found, f"p{at}")[place] for at in PERCENTILES]
                np.testing.assert_allclose(steps, np.percentile(values, PERCENTILES), atol=1e-6)
            assert of_kind.cosine is not None
            assert of_kind.cosine[place] == pytest.approx(np.median(cosine), abs=1e-6)
            if severity:
                wins = np.sign(clean.quality[:, None] - changed.quality)
                auroc = (wins.mean() + 1) / 2
                assert of_kind.by["quality"].auroc[place - 1] == pytest.approx(auroc)
    assert len(arrays) == 3 * (1 + len(KINDS) * 2)


def test_people_are_changed_in_one_image_and_compared_with_another(drawn_faces: Path, tmp_path: Path) -> None:
    recognizers = {"a": Plain("a"), "b": Seeded("b", 1, 0.2)}
    section, _ = measured(Plain("own"), drawn_faces, tmp_path, recognizers=recognizers)
    assert (section.images, section.people) == (8, True)
    assert section.recognizers == {label: one.sha256 for label, one in recognizers.items()}
    expected = {
        (label, step): np.sum(
            one(crops_of(drawn_faces, ROWS, "blur", severity)).embedding
            * one(crops_of(drawn_faces, OTHERS)).embedding,
            axis=1,
        )
        for label, one in recognizers.items()
        for step, severity in enumerate(STEPS)
    }
    blur = section.kinds["blur"]
    for (label, step), cosine in expected.items():
        assert blur.to_other[label].p5[step] == pytest.approx(np.percentile(cosine, 5), abs=1e-5)
    medians = [[np.median(expected[label, step]) for step in range(3)] for label in recognizers]
    assert blur.cosine == pytest.approx(np.mean(medians, axis=0), abs=1e-5)
    assert blur.to_unchanged["a"].p50[0] == pytest.approx(1, abs=1e-5)
    assert blur.to_other["a"].p50[0] < 0.999
    few, _ = measured(Plain("own"), drawn_faces, tmp_path, images=3)
    assert (few.images, list(few.recognizers)) == (3, ["own"])


@pytest.mark.parametrize("joined", [False, True])
def test_kept_percentile_and_non_faces_are_those_of_the_models_calibration(
    joined: bool, drawn_faces: Path, tmp_path: Path
) -> None:
    clean = Plain()(crops_of(drawn_faces, ROWS))
    assert clean.quality is not None
    assert clean.norm is not None
    norms = np.sort(clean.norm)
    quantiles, threshold = np.linspace(0.0, 0.5, QUANTILES), float(np.sort(clean.quality)[3])
    model: Any = Calibrated(threshold, quantiles)
    section, _ = measured(
        CombinedEmbedder(Plain("recognizer"), model) if joined else model, drawn_faces, tmp_path
    )
    assert (section.thresholds["quality"].value, section.thresholds["quality"].calibrated) == (
        threshold,
        True,
    )
    assert not section.thresholds["norm"].calibrated
    for kind, of_kind in section.kinds.items():
        for place, severity in enumerate(STEPS):
            crops = crops_of(drawn_faces, ROWS, kind, severity)
            outputs = Plain()(crops)
            assert outputs.quality is not None
            assert outputs.norm is not None
            assert of_kind.not_a_face is not None
            assert of_kind.not_a_face[place] == np.mean(brightness(crops) > 0.45)
            assert of_kind.by["quality"].kept[place] == np.mean(outputs.quality >= threshold)
            median = float(np.median(outputs.quality))
            assert of_kind.by["quality"].percentile[place] == pytest.approx(200 * median, abs=0.01)
            # Of eight images, 95% are those above the lowest.
            assert of_kind.by["norm"].kept[place] == np.mean(
                outputs.norm >= norms[0] + 0.35 * (norms[1] - norms[0])
            )
            below = np.mean(norms < np.median(outputs.norm))
            assert of_kind.by["norm"].percentile[place] == pytest.approx(100 * below)


def test_rank_correlations_are_over_kinds_and_severities(drawn_faces: Path, tmp_path: Path) -> None:
    recognizers = {"a": Plain("a"), "b": Seeded("b", 1, 0.2), "c": Seeded("c", 2, 0.5)}
    model = Plain("own")
    section, arrays = measured(model, drawn_faces, tmp_path, recognizers=recognizers)
    steps = [(kind, severity) for kind in KINDS for severity in STEPS[1:]]
    quality = np.array([arrays[f"corruptions/faces/{kind}/{severity:g}/quality"] for kind, severity in steps])
    cosines = np.array(
        [
            [
                np.sum(
                    one(crops_of(drawn_faces, ROWS, *step)).embedding
                    * one(crops_of(drawn_faces, OTHERS)).embedding,
                    axis=1,
                )
                for step in steps
            ]
            for one in recognizers.values()
        ]
    )
    random = np.random.default_rng(0)
    draws = [np.arange(8), *(random.integers(0, 8, 8) for _ in range(REPLICATES))]
    held_out = np.array([CHANGES[kind].held_out for kind, _ in steps])
    for group, inside in (("all", held_out | True), ("trained", ~held_out), ("held_out", held_out)):
        whole, rest = [], []
        for drawn in draws:
            medians = np.median(cosines[..., drawn], axis=-1)[:, inside]
            whole.append(
                spearmanr(np.median(quality[:, drawn], axis=1)[inside], medians.mean(axis=0)).statistic
            )
            rest.append(spearmanr(medians[2], (medians[0] + medians[1]) / 2).statistic)
        for found, values in ((section.rank_correlation["quality"], whole), (section.agreement["c"], rest)):
            assert getattr(found, group).value == pytest.approx(values[0], abs=1e-6)
            assert getattr(found, group).ci95 == pytest.approx(
                tuple(np.quantile(values[1:], [0.025, 0.975])), abs=1e-6
            )
    assert list(section.rank_correlation) == ["quality", "norm", "sharpness"]
    assert list(section.agreement) == ["a", "b", "c"]


def test_embeddings_computed_elsewhere_are_refused(drawn_faces: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", embeddings=np.eye(3, dtype=np.float32), names=np.array(["a", "b", "c"]))
    with pytest.raises(Error, match="the corruption benchmark creates new images, so it needs a model"):
        run_corruptions(load_table(tmp_path / "t.npz"), [str(drawn_faces)], tmp_path / "r")
    assert not (tmp_path / "r").exists()


def test_a_missing_library_is_named_before_anything_is_done(
    plain: Plain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "albumentations", None)
    albumentations.cache_clear()
    try:
        with pytest.raises(MissingExtraError, match=r"pip install 'facerts\[use\]'"):
            run_corruptions(plain, [str(tmp_path / "missing")], tmp_path / "r")
    finally:
        albumentations.cache_clear()
    assert not plain.batches
