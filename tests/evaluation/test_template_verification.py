import json
from dataclasses import replace

import numpy as np
import pytest

from facerts.datasets import Roster, TemplateBenchmark
from facerts.embedding import FaceOutputs
from facerts.errors import DataError
from facerts.evaluation.pair_verification import POOLINGS, pooled, template_verification_of
from facerts.metrics.verification import roc
from tests.evaluation.conftest import Unread, unit

SIZE = 32
FARS = (0.1, 0.01, 0.001)


def noisy(people=60, templates=3, images=5):
    """Templates of people whose images are off by noise of known variance, and every pair of templates."""
    random = np.random.default_rng(5)
    subjects = np.repeat(np.arange(people), templates)
    template = np.repeat(np.arange(len(subjects)), images)
    centers = unit(random.normal(size=(people, SIZE)))
    variance = random.choice([0.01, 1.0], size=len(template))
    noise = random.normal(size=(len(template), SIZE)) * np.sqrt(variance)[:, None]
    # Left at their lengths: shortened ones would no longer have the variance that they are said to have.
    embedding = (centers[subjects][template] + noise).astype(np.float32)
    upper = np.stack(np.triu_indices(len(subjects), 1), axis=1)
    benchmark = TemplateBenchmark(
        "noisy",
        Unread(len(template)),
        template,
        np.arange(len(template)),
        np.arange(len(subjects)),
        upper,
        subjects[upper[:, 0]] == subjects[upper[:, 1]],
        (Roster("first", np.arange(0, len(subjects), templates), np.arange(people)),),
        None,
    )
    norm = np.exp(random.normal(size=len(template)))
    outputs = FaceOutputs(
        embedding,
        *(scores.astype(np.float32) for scores in (norm, -np.log(variance) + random.normal(size=len(norm)))),
        uncertainty=variance.astype(np.float32),
    )
    return outputs, benchmark


def slowly(outputs, benchmark, weights):
    rows = []
    for row in range(len(benchmark.template_ids)):
        total = np.zeros(SIZE)
        inside = np.flatnonzero(benchmark.template == row)
        for medium in set(benchmark.media[inside].tolist()):
            images = [i for i in inside if benchmark.media[i] == medium]
            total += sum(weights[i] * outputs.embedding[i] for i in images) / len(images)
        rows.append(total / np.linalg.norm(total))
    return np.array(rows)


def test_each_pooling_weighs_images_as_it_says():
    outputs, benchmark = noisy(people=6)
    benchmark = replace(benchmark, media=benchmark.media // 2)
    quality = outputs.quality
    weights = {
        "mean": [1.0] * len(outputs),
        "quality": [float(np.mean(quality <= value)) for value in quality],
        "inverse_variance": [1.0 / float(value) for value in outputs.uncertainty],
        "norm": outputs.norm.tolist(),
    }
    templates = pooled(outputs, benchmark)
    assert tuple(templates) == POOLINGS
    for name in POOLINGS:
        assert templates[name].dtype == np.float32
        np.testing.assert_allclose(templates[name], slowly(outputs, benchmark, weights[name]), atol=1e-5)


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({}, POOLINGS),
        ({"quality": None, "uncertainty": None, "norm": None}, ("mean",)),
        ({"quality": None}, ("mean", "inverse_variance", "norm")),
        ({"quality": -np.ones(30), "uncertainty": np.ones(30)}, ("mean", "quality", "norm")),
        ({"uncertainty": np.arange(30)}, ("mean", "quality", "norm")),
        ({"uncertainty": np.full(30, 1e-44)}, POOLINGS),
        ({"norm": np.arange(30)}, ("mean", "quality", "inverse_variance")),
    ],
)
def test_a_pooling_is_left_out_where_the_outputs_do_not_allow_it(change, names):
    outputs, benchmark = noisy(people=2)
    assert len(outputs) == 30
    changed = {key: None if value is None else value.astype(np.float32) for key, value in change.items()}
    assert tuple(pooled(replace(outputs, **changed), benchmark)) == names


def test_a_section_holds_what_the_pairs_of_templates_give():
    outputs, benchmark = noisy(people=20)
    section = template_verification_of(outputs, benchmark, FARS, replicates=20)["norm"]
    templates = pooled(outputs, benchmark)["norm"].astype(np.float64)
    scores = np.array([templates[a] @ templates[b] for a, b in benchmark.pairs]).astype(np.float32)
    curve = roc(scores, benchmark.same)
    counts = [section.measure(f"{kind} pairs").value for kind in ("genuine", "impostor")]
    assert counts == [60, 60 * 59 // 2 - 60]
    assert (section.images, section.settings["templates"]) == (300, 60)
    assert section.find("accuracy") is None
    assert not any(one.test for one in section.measures)
    assert section.interval == "bootstrap over pairs"
    assert section.measure("AUROC").value == pytest.approx(curve.auroc())
    assert section.measure("EER").value == pytest.approx(curve.eer())
    # 1,710 impostors show one in a thousand, and no less.
    rates = {"FNMR at FMR 10%": 0.1, "FNMR at FMR 1%": 0.01, "FNMR at FMR 0.1%": 0.001}
    assert [one.name for one in section.measures if one.name.startswith("FNMR")] == list(rates)
    for name, rate in rates.items():
        point = section.measure(name)
        assert point.value == pytest.approx(1 - curve.tar_at_far(rate).tar)
        assert point.passing == np.sum(scores[~benchmark.same] >= point.threshold) <= rate * counts[1]
        assert point.ci95[0] <= point.value <= point.ci95[1]
    json.dumps(section.to_json(), allow_nan=False)


def test_a_benchmark_without_both_kinds_of_pairs_is_refused():
    outputs, benchmark = noisy(people=2)
    bare = replace(benchmark, pairs=np.empty((0, 2), dtype=np.int64), same=np.empty(0, dtype=bool))
    with pytest.raises(DataError, match=r"noisy: verification needs .* there are 0 and 0"):
        template_verification_of(outputs, bare, FARS)
    alike = replace(benchmark, pairs=benchmark.pairs[benchmark.same], same=benchmark.same[benchmark.same])
    with pytest.raises(DataError, match=r"there are 6 and 0"):
        template_verification_of(outputs, alike, FARS)
