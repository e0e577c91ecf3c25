"""Pairs compared by the mutual likelihood score: the numbers, beside the cosine's, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from facerts.datasets import open_benchmark
from facerts.embedding import FaceOutputs, load_table
from facerts.errors import Error, ModelError
from facerts.evaluation import embed_source
from facerts.evaluation.benchmark_runs import run_pairs
from facerts.evaluation.evaluation_options import EvaluationOptions
from facerts.evaluation.pair_verification import verification_of
from facerts.evaluation.result_folder import load_result
from facerts.evaluation.similarity import COSINE, MLS, GaussianEmbedder, variance_of
from tests.evaluation.conftest import Plain

BARE = EvaluationOptions(flip=False, keep_crops=False, fmr=0.02)


class Gaussian(Plain):
    """Plain, with variances that differ between images, entries and a crop's two mirrors."""

    def __call__(self, crops):
        outputs = super().__call__(crops)
        variance = 1e-3 + np.square(outputs.embedding) + np.abs(np.roll(outputs.embedding, 1, axis=1)) / 50
        return replace(outputs, extras={"variance": variance.astype(np.float32)})


def outputs_of(embedder, source):
    return embed_source(embedder, source, flip=False, progress=False)


def log_density(mean, variance, pairs):
    """MLS by SciPy's log-density of N(0, σ_i² + σ_j²) at μ_i − μ_j."""
    wide, spread = mean.astype(np.float64), variance.astype(np.float64)
    i, j = pairs.T
    return np.asarray(
        stats.norm.logpdf(wide[i] - wide[j], scale=np.sqrt(spread[i] + spread[j])).sum(axis=1),
        dtype=np.float64,
    )


def test_scores_are_scipys_log_densities_and_numbers_are_made_from_them(named, tmp_path):
    benchmark = open_benchmark(named)
    outputs = outputs_of(Gaussian(), benchmark.images)
    expected = log_density(outputs.embedding, outputs.extras["variance"], benchmark.pairs)
    run_pairs(Gaussian(), ["verification", "reject"], [named], tmp_path, BARE, similarity=MLS)
    content, arrays = load_result(tmp_path)
    np.testing.assert_allclose(arrays["verification/named (mls)/scores"], expected, rtol=1e-5)
    section = content.of_kind("verification")["named (mls)"]
    assert section.settings == {"similarity": "mls", "flip": False}
    genuine, impostors = expected[benchmark.same], expected[~benchmark.same]
    above = stats.mannwhitneyu(genuine, impostors).statistic / (len(genuine) * len(impostors))
    area = section.measure("AUROC").value
    assert area == pytest.approx(above, abs=1e-9)
    by_cosine = verification_of(outputs, benchmark, flip=False)[0].measure("AUROC").value
    assert area != pytest.approx(by_cosine, abs=1e-3)
    # At FMR 0.02 two of the hundred impostor pairs pass: the third is the first that must not.
    third = np.sort(impostors)[-3]
    rejected = content.of_kind("reject")["named (mls)"]
    assert rejected.settings["similarity"] == "mls"
    nothing = rejected.measure("0% left out", score="quality")
    assert nothing.value == pytest.approx(np.mean(genuine <= third))
    assert nothing.n == 100
    quality = np.asarray(outputs.quality)[benchmark.pairs[benchmark.same]].min(axis=1)
    correlation = stats.spearmanr(quality, genuine).statistic
    assert rejected.measure("Spearman's ρ", score="quality").value == pytest.approx(correlation)


def test_mirrors_are_fused_by_their_variances_and_only_for_mls(named, tmp_path):
    benchmark = open_benchmark(named)
    crops = np.stack([benchmark.images.crop(row) for row in range(len(benchmark.images))])
    one, other = Gaussian()(crops), Gaussian()(np.ascontiguousarray(crops[:, :, ::-1]))
    first, second = (view.extras["variance"].astype(np.float64) for view in (one, other))
    mean = (one.embedding * second + other.embedding * first) / (first + second)
    mean /= np.linalg.norm(mean, axis=1, keepdims=True)
    expected = log_density(mean, first * second / (first + second), benchmark.pairs)
    options = replace(BARE, flip=True)
    for similarity in (COSINE, MLS):
        run_pairs(Gaussian(), ["verification"], [named], tmp_path, options, similarity=similarity)
    content, arrays = load_result(tmp_path)
    assert content.of_kind("verification")["named (mls)"].settings["flip"] is True
    np.testing.assert_allclose(arrays["verification/named (mls)/scores"], expected, rtol=1e-4)
    summed = one.embedding + other.embedding
    summed /= np.linalg.norm(summed, axis=1, keepdims=True)
    cosines = (summed[benchmark.pairs[:, 0]] * summed[benchmark.pairs[:, 1]]).sum(axis=1)
    np.testing.assert_allclose(arrays["verification/named/scores"], cosines, atol=1e-6)
    # Scores of a image are the crop's own.
    np.testing.assert_allclose(arrays["verification/named (mls)/quality"], one.quality, rtol=1e-5)


def test_opposite_means_fuse_to_nothing_and_to_no_nan():
    class Turning(Plain):
        def __call__(self, crops):
            sign = np.where(crops[:, 0, 0, 0] > 0, 1, -1).astype(np.float32)
            return FaceOutputs(
                sign[:, None] * np.array([[0.6, 0.8]], np.float32),
                extras={"variance": np.ones((len(crops), 2), np.float32)},
            )

    crops = np.zeros((1, 112, 112, 3), dtype=np.uint8)
    crops[0, 0, 0] = 9
    outputs = GaussianEmbedder(Turning(), True)(crops)
    np.testing.assert_array_equal(outputs.embedding, [[0, 0]])
    np.testing.assert_array_equal(outputs.extras["variance"], [[0.5, 0.5]])


def test_a_table_with_variances_gives_what_its_model_gives(named, tmp_path):
    images = open_benchmark(named).images
    outputs = outputs_of(Gaussian(), images)
    np.savez(
        tmp_path / "t.npz",
        names=np.array([images.key(row) for row in range(len(images))]),
        embeddings=outputs.embedding,
        variance=outputs.extras["variance"],
    )
    run_pairs(Gaussian(), ["verification"], [named], tmp_path / "model", BARE, similarity=MLS)
    options = replace(BARE, flip=True)
    run_pairs(load_table(tmp_path / "t.npz"), ["verification"], [named], tmp_path / "table", options, similarity=MLS)
    (model, arrays), (table, copies) = (load_result(tmp_path / name) for name in ("model", "table"))
    sections = [one.of_kind("verification")["named (mls)"] for one in (table, model)]
    assert sections[0].settings["flip"] is None
    key = "verification/named (mls)/scores"
    np.testing.assert_allclose(copies[key], arrays[key], rtol=1e-5)
    assert len({one.measure("EER").value for one in sections}) == 1


WRONG = {
    "none": (None, "the embeddings come without a variance"),
    "one a image": (np.ones(3), r"each entry of the embedding, \(3, 2\), and the variance is \(3,\)"),
    "too many": (np.ones((3, 4)), r"each entry of the embedding, \(3, 2\), and the variance is \(3, 4\)"),
    "zero": ([[1, 1], [1, 0], [1, 1]], "above 0, and entry 1 of image 1 has 0"),
    "below": ([[1, 1], [1, 1], [-2, 1]], "above 0, and entry 0 of image 2 has -2"),
    "no number": ([[1, np.nan], [1, 1], [1, 1]], "finite variances above 0, and entry 1 of image 0 has nan"),
    "endless": ([[1, 1], [np.inf, 1], [1, 1]], "finite variances above 0, and entry 0 of image 1 has inf"),
}


@pytest.mark.parametrize(("variance", "message"), WRONG.values(), ids=WRONG)
def test_variances_that_are_none_are_refused(variance, message):
    extras = {} if variance is None else {"variance": np.asarray(variance, dtype=np.float32)}
    outputs = FaceOutputs(np.ones((3, 2), dtype=np.float32), extras=extras)
    with pytest.raises(ModelError, match=message):
        variance_of(outputs)
    with pytest.raises(ModelError, match=message):
        MLS.of_pairs(outputs, np.array([[0, 1]]))


@pytest.mark.parametrize("flip", [False, True])
def test_a_model_without_variances_is_refused_at_its_first_crops(flip, plain, named, tmp_path):
    options = replace(BARE, flip=flip, batch_size=8)
    with pytest.raises(ModelError, match="mls compares Gaussians, but the embeddings come without a variance"):
        run_pairs(plain, ["verification"], [named], tmp_path / "r", options, similarity=MLS)
    assert plain.batches == [8]
    assert not (tmp_path / "r").exists()


def test_all_pairs_and_templates_are_refused_with_the_reason(plain, named, tmp_path, monkeypatch):
    for kind in ("verification", "reject"):
        with pytest.raises(Error, match=r"cannot be compared by mls, only by the cosine, .* matrix product"):
            run_pairs(plain, [kind], [named], tmp_path / "r", replace(BARE, every_pair=True), similarity=MLS)
    monkeypatch.setattr("facerts.evaluation.benchmark_runs.is_template_benchmark", lambda path: str(path) == "pooled")
    with pytest.raises(Error, match=r"pooled: templates cannot be compared by mls: .* no variance"):
        run_pairs(plain, ["verification"], [named, "pooled"], tmp_path / "r", BARE, similarity=MLS)
    assert not plain.batches
