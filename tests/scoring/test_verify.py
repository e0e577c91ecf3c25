"""Decisions on two images, against cosines that NumPy computes."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import facerts
from facerts.datasets.pair_rows import ListedPair
from facerts.datasets.synthetic import draw_face
from facerts.detection import Detection
from facerts.errors import ModelError
from facerts.images import encode_png
from facerts.images.align import TEMPLATE
from facerts.scoring import Scorer
from facerts.scoring.pair_list import measure_labeled
from tests.foreign import write_description, write_embedder
from tests.matching import blocks, cosine, matching, write_matcher
from tests.serving.conftest import bright_squares, photo


@pytest.fixture(scope="module")
def scorer(tmp_path_factory):
    return facerts.load(write_matcher(tmp_path_factory.mktemp("verify") / "matcher.onnx"), detector="none", threads=1)


def noise(seed, low=60):
    return np.random.default_rng(seed).integers(low, 256, (112, 112, 3), dtype=np.uint8)


def brightness(crop):
    return float((crop.astype(np.float64).mean() - 127.5) / 127.5)


@pytest.mark.parametrize(("fmr", "threshold"), [(0.01, 0.2), (0.001, 0.5)])
def test_decisions_are_those_of_the_cosine_at_the_threshold(scorer, fmr, threshold):
    decisions = Counter()
    for seed in range(12):
        first = blocks(seed)
        # Half a copy of the first, so that similarities lie on both sides of the thresholds.
        second = np.where(np.arange(112)[:, None, None] < 16 * (seed % 7), first, blocks(100 + seed))
        result = scorer.verify(first, second, fmr=fmr)
        expected = cosine(first, second)
        assert result.similarity == pytest.approx(expected, abs=1e-5)
        assert result.decision == ("same" if expected >= threshold else "different")
        assert (result.fmr, result.threshold, result.error, result.reason) == (fmr, threshold, None, None)
        assert result.first_quality == pytest.approx(brightness(first), abs=1e-5)
        assert result.second_quality == pytest.approx(brightness(second), abs=1e-5)
        assert result.second_percentile == pytest.approx(50 * (1 + brightness(second)), abs=0.01)
        decisions[result.decision] += 1
    assert set(decisions) == {"same", "different"}


def test_the_similarity_of_one_image_to_itself_is_1_and_never_above():
    shipped = facerts.load()
    similarities = []
    for face in shipped.faces([draw_face(person, 0) for person in range(8)]):
        similarities += [face.similarity(face), shipped.verify(face, face, keep="none").similarity or 0]
    assert max(similarities) == 1
    assert min(similarities) > 1 - 1e-6


def test_a_pair_at_the_threshold_matches(tmp_path):
    images = blocks(1), blocks(2)
    measured = facerts.load(write_matcher(tmp_path / "a.onnx")).verify(*images).similarity
    at = {"achieved_fmr": 0.1, "impostors": 10, "genuine": 10, "fnmr": 0.5, "ci95": [0, 1]}
    thresholds = {"0.1": {"similarity": measured, **at}}
    same = facerts.load(write_matcher(tmp_path / "b.onnx", thresholds=thresholds))
    assert same.verify(*images, fmr=0.1).decision == "same"


def test_poor_images_are_inconclusive_and_named(scorer):
    good, poor = noise(1), noise(2, low=0) // 8
    for images, named in (
        ((good, poor), ["the second image"]),
        ((poor, good), ["the first image"]),
        ((poor, poor), ["the first image", "the second image"]),
    ):
        result = scorer.verify(*images)
        assert (result.decision, result.min_quality) == ("inconclusive", -0.5)
        # The matcher's quantiles lie evenly from -1 to 1.
        percentile, quality = int(50 * (brightness(poor) + 1)), f"{brightness(poor):.3f}"
        assert result.reason.split("; ") == [
            f"{name}: percentile {percentile}, quality {quality} is below the minimum of -0.500" for name in named
        ]
        assert result.similarity == pytest.approx(cosine(*images), abs=1e-5)
    assert scorer.verify(poor, poor, min_quality=-1).decision == "same"
    assert scorer.verify(good, good, min_quality=0.9).decision == "inconclusive"


def test_the_error_rate_is_that_of_the_pairs_that_are_compared(scorer):
    images = noise(1), noise(2)
    kept = scorer.verify(*images, keep=0.95)
    assert kept == scorer.verify(*images)
    assert (kept.fnmr, kept.fnmr_ci95) == (0.125, pytest.approx([0.115, 0.135]))
    every = scorer.verify(*images, min_quality=-1)
    assert (every.fnmr, every.fnmr_ci95) == (0.2, pytest.approx([0.18, 0.22]))


def test_what_the_model_lacks_is_an_error(scorer, tmp_path):
    image = noise(1)
    with pytest.raises(ModelError, match=r"false match rate of 1e-05, only for 0\.01, 0\.001; .*facerts cal"):
        scorer.verify(image, image, fmr=1e-5)
    with pytest.raises(ModelError, match="give only one"):
        scorer.verify(image, image, keep=0.95, min_quality=0)
    foreign = write_description(write_embedder(tmp_path / "foreign.onnx"))
    with pytest.raises(ModelError, match=r"no threshold that keeps 0\.5 of the faces; calibrate it"):
        facerts.load(foreign).verify(image, image, keep=0.5)
    with pytest.raises(ModelError, match=r"foreign has no match threshold .* none at all; .* facerts calibrate"):
        facerts.load(foreign).verify(image, image)
    mirrored = facerts.load(write_matcher(tmp_path / "mirrored.onnx", flip=True))
    with pytest.raises(ModelError, match="calibrate it again with flip=false"):
        mirrored.verify(image, image)
    assert mirrored.recognizer.match_thresholds() == facerts.load(foreign).recognizer.match_thresholds() == ()
    assert scorer.recognizer.match_thresholds() == ((0.001, 0.5), (0.01, 0.2))


def test_a_model_without_quality_decides_every_pair(tmp_path):
    path = write_embedder(tmp_path / "plain.onnx")
    calibration = {"data": "a", "data_sha256": "", "faces": 1, "identities": 1, "matching": matching()}
    write_description(path, quality="none", calibration=calibration)
    result = facerts.load(path).verify(noise(1), noise(1))
    assert (result.decision, result.min_quality, result.first_quality) == ("same", None, None)
    assert result.fnmr == 0.2
    with pytest.raises(ModelError, match="has no quality"):
        facerts.load(path).verify(noise(1), noise(1), min_quality=0)


def test_what_cannot_be_read_is_an_error_of_the_result(scorer, tmp_path):
    missing = tmp_path / "missing.png"
    result = scorer.verify(missing, b"not an image")
    assert (result.decision, result.similarity, result.first_faces) == (None, None, None)
    assert f"{missing}: cannot be read" in result.error
    assert "the second image: not " in result.error
    half = scorer.verify(noise(1), np.zeros((50, 60, 3), dtype=np.uint8))
    assert "60 x 50 pixels are not an aligned crop" in str(half.error)
    assert (half.first_faces, half.first_quality is None, half.second_quality) == (1, False, None)


def test_photos_are_compared_by_their_largest_faces(scorer):
    photos = Scorer(scorer.quality, scorer.recognizer, bright_squares())
    result = photos.verify(photo([200]), photo([220, 230, 240]))
    assert (result.decision, result.first_faces, result.second_faces) == ("same", 1, 3)
    copies = scorer.verify(encode_png(blocks(1)), blocks(1))
    assert (copies.decision, copies.similarity) == ("same", pytest.approx(1, abs=1e-6))
    assert "copies of one image" in str(copies.note)
    assert scorer.verify(blocks(1), blocks(2)).note is None
    assert "the second image: 3 faces, of which the largest is compared" in result.note
    # Half as far as the next brighter face.
    assert result.second_quality == pytest.approx((220 - 127.5) / 127.5, abs=0.04)
    empty = photos.verify(photo([]), photo([200]))
    assert (empty.decision, empty.error) == (None, "the first image: no face found")
    assert (empty.first_faces, empty.second_faces) == (0, 1)


def test_each_image_of_many_pairs_is_embedded_once_and_pairs_keep_their_order(scorer, tmp_path):
    paths = [tmp_path / f"{number}.png" for number in range(6)]
    for number, path in enumerate(paths):
        path.write_bytes(encode_png(blocks(number)))
    seen = Counter()

    class WholeImage:
        identity = "the whole image"

        def __call__(self, image):
            seen[image.tobytes()] += 1
            return [Detection(np.array([0, 0, 112, 112.0]), TEMPLATE.astype(np.float64), 1.0)]

    counting = Scorer(scorer.quality, scorer.recognizer, WholeImage())
    pairs = [(first, second) for first in paths for second in paths if first != second]
    gone = tmp_path / "gone.png"
    results = list(counting.verify_pairs([*pairs, (paths[0], gone)], counting.match_rule(fmr=0.01)))
    assert [(result.first, result.second) for result in results[:-1]] == [
        (str(first), str(second)) for first, second in pairs
    ]
    assert sorted(seen.values()) == [1] * 6
    for result, (first, second) in zip(results, pairs, strict=False):
        expected = cosine(blocks(int(first.stem)), blocks(int(second.stem)))
        assert result.similarity == pytest.approx(expected, abs=0.02)  # the crop is warped
        assert result.decision == ("same" if result.similarity >= 0.2 else "different")
    assert results[-1].error is not None
    assert f"{gone}: cannot be read" in results[-1].error


def test_the_default_model_verifies_and_is_loaded_once(monkeypatch):
    from facerts.scoring import scorer as module

    loads = []
    load = module.load
    monkeypatch.setattr(module, "load", lambda: loads.append(1) or load())
    module._default_scorer.cache_clear()
    for _ in range(2):
        result = facerts.verify(draw_face(0, 0), draw_face(1, 0), min_quality=-9)
        assert result.decision in {"same", "different"}
        assert (result.fmr, round(result.threshold or 0, 4)) == (0.001, 0.3861)
    assert len(loads) == 1
    module._default_scorer.cache_clear()
    # The quality's limit for keep 0.95; the error rate is of all pairs, as the quality is not the recognizer's own.
    poor = facerts.verify(draw_face(0, 0), np.zeros((112, 112, 3), dtype=np.uint8))
    assert (poor.decision, round(poor.min_quality or 0, 4)) == ("inconclusive", 0.5127)
    own = facerts.load("facerts-small")
    rule, other = own.match_rule(), facerts.load(quality="own").match_rule()
    assert rule == other
    assert round(rule.min_quality or 0, 4) == -0.9615
    assert round(rule.fnmr or 0, 4) == 0.1714
    assert (poor.fnmr or 0) > (rule.fnmr or 0)


def test_without_a_rate_the_usual_one_decides_or_the_lowest_that_there_is(tmp_path):
    image = noise(1)
    usual = facerts.load(write_matcher(tmp_path / "usual.onnx"))
    assert usual.verify(image, image).fmr == 0.001
    few = {rate: at for rate, at in matching()["thresholds"].items() if rate == "0.01"}
    coarse = facerts.load(write_matcher(tmp_path / "coarse.onnx", thresholds={**few, "0.1": few["0.01"]}))
    assert coarse.verify(image, image).fmr == 0.01
    with pytest.raises(ModelError, match=r"only for 0\.01, 0\.1; take one of these \(fmr=0\.01\), or calibrate"):
        coarse.verify(image, image, fmr=0.001)


def test_that_people_recur_makes_a_rate_less_certain():
    # Twenty pairs of each of three people, of whom one is never recognized.
    pairs = [ListedPair(1, "a", "b", same=True, people=(who, who)) for who in "abc" for _ in range(20)]
    measured = measure_labeled(pairs, ["different"] * 20 + ["same"] * 40)
    # Of three people drawn with replacement, all three or none are that one with more than 2.5%.
    assert (measured.fnmr.value, measured.fnmr.ci95) == (pytest.approx(1 / 3), (0, 1))
    alone = measure_labeled([replace(pair, people=None) for pair in pairs], ["different"] * 20 + ["same"] * 40)
    assert alone.fnmr.ci95 == pytest.approx((0.2273, 0.4593), abs=1e-3)
    assert (alone.fmr.value, alone.fmr.ci95, alone.fmr.pairs) == (None, None, 0)
