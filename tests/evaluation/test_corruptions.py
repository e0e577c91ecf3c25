import json
import sys
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import spearmanr

from facerts.datasets import open_source
from facerts.datasets.fingerprint import hash_images
from facerts.embedding import load_table
from facerts.embedding.combined import CombinedEmbedder
from facerts.errors import Error, MissingExtraError
from facerts.evaluation.corruption_benchmark import OVERALL, REPLICATES, corruption_finding, run_corruptions
from facerts.evaluation.measure import Measure
from facerts.evaluation.result_folder import load_result
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

    def __init__(self, threshold, quantiles):
        super().__init__("calibrated")
        calibration = Calibration(data="d", data_sha256="0", faces=101, identities=None, quantiles=tuple(quantiles))
        self.description = Description(
            schema=SCHEMA,
            quality="output:quality",
            thresholds={"0.950": QualityThreshold(quality=threshold, data_sha256="0")},
            calibration=calibration,
        )

    def __call__(self, crops):
        return self.outputs(crops)

    def outputs(self, crops):
        return replace(super().__call__(crops), extras={"not_a_face": brightness(crops)[:, None] - 0.45})


def brightness(crops):
    return np.asarray(crops.mean(axis=(1, 2, 3)) / 255, dtype=np.float32)


def measured(model, data, out, *, recognizers=None, images=99):
    run_corruptions(model, [str(data)], out, recognizers=recognizers, images=images, kinds=KINDS, severities=STEPS[1:])
    content, arrays = load_result(out)
    json.dumps(content.to_json(), allow_nan=False)
    prefix = "corruptions/faces/"
    return content.of_kind("corruptions")["faces"], {
        key.removeprefix(prefix): values for key, values in arrays.items() if key.startswith(prefix)
    }


def crops_of(data, rows, kind="", severity=0):
    source = open_source(data)
    crops = {row: source.crop(row) for row in rows.tolist()}
    if severity:
        crops = {row: apply_change(crop, kind, severity, (0, row)) for row, crop in crops.items()}
    return np.stack(list(crops.values()))


def cosines(embedder, data, kind, severity):
    """Of the changed crops to the other images of their people."""
    changed, others = (embedder(crops_of(data, *of)).embedding for of in ((ROWS, kind, severity), (OTHERS,)))
    return np.sum(changed * others, axis=1)


@pytest.fixture(scope="module")
def flat_faces(drawn_faces, tmp_path_factory):
    """The same images in one folder, without people."""
    folder = tmp_path_factory.mktemp("flat") / "faces"
    folder.mkdir()
    for path in sorted(drawn_faces.rglob("*.*")):
        (folder / f"{path.parent.name}_{path.name}").write_bytes(path.read_bytes())
    return folder


def test_each_step_is_measured_on_evenly_spaced_faces(plain, flat_faces, tmp_path):
    section, arrays = measured(plain, flat_faces, tmp_path, images=7)
    rows = np.linspace(0, 63, 7).astype(int)
    assert (section.images, section.settings["people"]) == (7, False)
    assert section.data_sha256 == {"faces": hash_images(open_source(flat_faces)).sha256}
    assert arrays["severity"].tolist() == STEPS
    clean = plain(crops_of(flat_faces, rows))
    for kind in KINDS:
        assert f"{kind}/not a face" not in arrays
        for place, severity in enumerate(STEPS):
            changed = plain(crops_of(flat_faces, rows, kind, severity))
            median = np.median(np.sum(changed.embedding * clean.embedding, axis=1))
            name = f"{kind}/{severity:g}" if severity else "clean"
            np.testing.assert_allclose(arrays[f"{name}/quality"], changed.quality, atol=1e-6)
            assert arrays[f"{kind}/cosine"][place] == pytest.approx(median, abs=1e-6)
            assert arrays[f"{kind}/cosine to unchanged"][place] == pytest.approx(median, abs=1e-6)
    scores = [one.of["score"] for one in section.measures if one.table == OVERALL]
    assert list(dict.fromkeys(scores)) == ["quality", "norm", "sharpness"]
    assert not any(one.name.startswith("not a face") for one in section.measures)


def test_people_are_changed_in_one_image_and_compared_with_another(drawn_faces, tmp_path):
    recognizers = {"a": Plain("a"), "b": Seeded("b", 1, 0.2)}
    section, arrays = measured(Plain("own"), drawn_faces, tmp_path, recognizers=recognizers)
    assert (section.images, section.settings["people"]) == (8, True)
    assert [section.settings[f"SHA-256 of {label}"] for label in "ab"] == [one.sha256 for one in recognizers.values()]
    medians = [
        [np.median(cosines(one, drawn_faces, "blur", severity)) for severity in STEPS] for one in recognizers.values()
    ]
    assert arrays["blur/cosine"] == pytest.approx(np.mean(medians, axis=0), abs=1e-5)
    assert arrays["blur/cosine to unchanged"][0] == pytest.approx(1, abs=1e-5)
    assert arrays["blur/cosine"][0] < 0.999
    few, _ = measured(Plain("own"), drawn_faces, tmp_path, images=3)
    assert (few.images, "SHA-256 of own" in few.settings) == (3, True)


@pytest.mark.parametrize("joined", [False, True])
def test_kept_percentile_and_non_faces_are_those_of_the_models_calibration(joined, drawn_faces, tmp_path):
    clean = Plain()(crops_of(drawn_faces, ROWS))
    norms = np.sort(clean.norm)
    quantiles, threshold = np.linspace(0.0, 0.5, QUANTILES), float(np.sort(clean.quality)[3])
    model = Calibrated(threshold, quantiles)
    section, arrays = measured(CombinedEmbedder(Plain("recognizer"), model) if joined else model, drawn_faces, tmp_path)
    kept_by = {score: section.measure("kept at 1", score=score) for score in ("quality", "norm")}
    assert kept_by["quality"].threshold == threshold
    # Of eight images, 95% are those above the lowest.
    assert kept_by["norm"].threshold == pytest.approx(norms[0] + 0.35 * (norms[1] - norms[0]))
    shares = {"quality": [], "norm": [], "no face": []}
    for kind in KINDS:
        for place, severity in enumerate(STEPS):
            crops = crops_of(drawn_faces, ROWS, kind, severity)
            outputs = Plain()(crops)
            no_face = np.mean(brightness(crops) > 0.45)
            kept = np.mean(outputs.quality >= threshold)
            percentile = 200 * float(np.median(outputs.quality))
            for name, expected in (("not a face", no_face), ("kept", kept)):
                assert arrays[f"{kind}/{name}"][place] == expected
            assert arrays[f"{kind}/percentile of quality / 100"][place] == pytest.approx(percentile / 100, abs=1e-4)
            if severity:
                title = kind.replace("_", " ") + " (held out)" * CHANGES[kind].held_out
                shown = [
                    section.measure(f"{name} at {severity:g}", kind=title).value
                    for name in ("not a face", "kept", "percentile")
                ]
                assert shown == pytest.approx([no_face, kept, percentile], abs=0.01)
            if severity == 1:
                shares["quality"].append(kept)
                shares["norm"].append(np.mean(outputs.norm >= kept_by["norm"].threshold))
                shares["no face"].append(no_face)
    for score, one in kept_by.items():
        assert one.value == pytest.approx(np.mean(shares[score]))
    assert section.measure("not a face at 1", score="quality").value == pytest.approx(np.mean(shares["no face"]))


def test_rank_correlations_are_over_kinds_and_severities(drawn_faces, tmp_path):
    recognizers = {"a": Plain("a"), "b": Seeded("b", 1, 0.2), "c": Seeded("c", 2, 0.5)}
    model = Plain("own")
    section, arrays = measured(model, drawn_faces, tmp_path, recognizers=recognizers)
    steps = [(kind, severity) for kind in KINDS for severity in STEPS[1:]]
    quality = np.array([arrays[f"{kind}/{severity:g}/quality"] for kind, severity in steps])
    similar = np.array([[cosines(one, drawn_faces, *step) for step in steps] for one in recognizers.values()])
    random = np.random.default_rng(0)
    draws = [np.arange(8), *(random.integers(0, 8, 8) for _ in range(REPLICATES))]
    held_out = np.array([CHANGES[kind].held_out for kind, _ in steps])
    for group, inside in (("all", held_out | True), ("trained", ~held_out), ("held out", held_out)):
        whole, rest = [], []
        for drawn in draws:
            medians = np.median(similar[..., drawn], axis=-1)[:, inside]
            whole.append(spearmanr(np.median(quality[:, drawn], axis=1)[inside], medians.mean(axis=0)).statistic)
            rest.append(spearmanr(medians[2], (medians[0] + medians[1]) / 2).statistic)
        for score, values in (("quality", whole), ("cosine of c", rest)):
            found = section.measure(f"ρ, {group}", score=score)
            assert found.value == pytest.approx(values[0], abs=1e-6)
            assert found.ci95 == pytest.approx(tuple(np.quantile(values[1:], [0.025, 0.975])), abs=1e-6)
    scores = dict.fromkeys(one.of["score"] for one in section.measures if one.name == "ρ, all")
    assert list(scores) == ["quality", "norm", "sharpness", "cosine of a", "cosine of b", "cosine of c"]
    # From the least to the most that a change costs.
    kinds = list(dict.fromkeys(one.of["kind"] for one in section.measures if "kind" in one.of))
    costs = [section.measure("cosine at 1", kind=kind).value for kind in kinds]
    assert costs == sorted(costs, reverse=True)


def test_corruptions_in_words():
    def measure(name, value, ends=None):
        return Measure(name=name, of={"score": "quality"}, table=OVERALL, value=value, ci95=ends)

    kept = [measure("kept at 0.6", 0.9), measure("kept at 1", 0.4)]
    found = measure("ρ, all", 0.912, (0.812, 1.0))
    begin = "Over 4 changes of 100 faces, its quality follows the cosine with rank correlation 0.91 [0.81, 1.00]"
    held_out = measure("ρ, held out", 0.75, (0.65, 0.85))
    assert corruption_finding([found, held_out, *kept], "quality", 4, 100) == f"{begin}, 0.75 over kinds held out."
    assert corruption_finding([found, *kept], "quality", 4, 100) == f"{begin}."
    sentence = "At full severity, its threshold of quality keeps 40% of the faces."
    assert corruption_finding(kept, "quality", 4, 100) == sentence


def test_embeddings_computed_elsewhere_are_refused(drawn_faces, tmp_path):
    np.savez(tmp_path / "t.npz", embeddings=np.eye(3, dtype=np.float32), names=np.array(["a", "b", "c"]))
    with pytest.raises(Error, match="the corruption benchmark creates new images, so it needs a model"):
        run_corruptions(load_table(tmp_path / "t.npz"), [str(drawn_faces)], tmp_path / "r")
    assert not (tmp_path / "r").exists()


def test_a_missing_library_is_named_before_anything_is_done(plain, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "albumentations", None)
    albumentations.cache_clear()
    try:
        with pytest.raises(MissingExtraError, match=r"pip install '\.\[cpu\]'"):
            run_corruptions(plain, [str(tmp_path / "missing")], tmp_path / "r")
    finally:
        albumentations.cache_clear()
    assert not plain.batches
