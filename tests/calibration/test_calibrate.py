"""Thresholds and their error rates, checked against pairs counted one by one; and the files they are written to."""

import itertools
import json
import math
import shutil

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import facerts
from facerts.calibration.graft import graft_quality
from facerts.calibration.match_thresholds import match_thresholds
from facerts.calibration.quality_thresholds import calibrate, quality_quantiles, quality_thresholds
from facerts.datasets import open_source
from facerts.datasets.fingerprint import hash_images
from facerts.datasets.synthetic import draw_face, write_synthetic_faces
from facerts.embedding import load_embedder
from facerts.errors import DataError, Error, ModelError
from facerts.evaluation import embed_source
from facerts.hub import registry
from facerts.images import encode_png
from facerts.metrics.all_pairs import all_pairs, far_intervals
from facerts.metrics.compared_pairs import compare_listed
from facerts.metrics.intervals import pair_weights
from facerts.metrics.same_person import fit_same_person
from facerts.onnx.contract import Calibration
from tests.command import run
from tests.detectors import Finds, face_at
from tests.foreign import quality_description, slow_quality, write_description, write_embedder, write_quality
from tests.shipped import write_entry, write_manifest

KEEP = ("0.99", "0.95", "0.9", "0.8")


@pytest.fixture(scope="module")
def calibrated(people, tmp_path_factory):
    """The same model, calibrated on the same people; tests must not change it."""
    path = write_description(write_embedder(tmp_path_factory.mktemp("calibrated") / "model.onnx"))
    calibrate(path, people)
    return path


def embed_description(model):
    """Move the description of a model into its metadata, among other entries."""
    content = onnx.load(str(model))
    for key, value in (("a", "1"), ("facerts", model.with_suffix(".json").read_text()), ("z", "2")):
        content.metadata_props.add(key=key, value=value)
    onnx.save(content, str(model))
    model.with_suffix(".json").unlink()
    return model


def calibration_of(model):
    return facerts.load(model).recognizer.opened.description.calibration


def matching_of(model):
    return calibration_of(model).matching


# Quality thresholds and percentiles


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(-5, 20), min_size=1, max_size=60),
    st.one_of(st.sampled_from([0.99, 0.95, 0.9, 0.8, 0.55]), st.floats(0.001, 0.999)),
)
def test_a_threshold_is_the_largest_that_keeps_the_share(values, share):
    quality = np.array(values, dtype=np.float64) / 3
    threshold = quality_thresholds(quality, [share], "0")[str(share)]
    kept = {minimum: float(np.mean([value >= minimum for value in quality])) for minimum in quality}
    # A threshold between two qualities keeps the same faces as the upper one, so no others matter.
    assert threshold.quality == max(minimum for minimum, rate in kept.items() if rate >= share - 1e-9)
    assert threshold.kept == pytest.approx(kept[threshold.quality])


@pytest.mark.parametrize("faces", [100, 137, 400])
@pytest.mark.parametrize("distinct", [1, 2, 40, 10_000])
def test_a_percentile_is_the_percentage_that_scored_lower(faces, distinct):
    random = np.random.default_rng((faces, distinct))
    sample = random.choice(random.normal(size=distinct).astype(np.float32), faces)
    quality = np.array([float(str(value)) for value in sample])  # as in rows
    calibration = Calibration(
        data="d", data_sha256="0", faces=faces, identities=None, quantiles=quality_quantiles(quality)
    )
    values = np.sort(np.concatenate([quality, random.normal(size=50)]))
    percentiles = [calibration.percentile(value) for value in values.tolist()]
    lower = [100 * np.mean(quality < value) for value in values]
    np.testing.assert_allclose(np.array(percentiles, dtype=float), lower, atol=1 + 100 / faces + 0.01)
    assert percentiles == sorted(percentiles)
    assert calibration.percentile(float(quality.min())) == calibration.percentile(float(quality.min()) - 1) == 0
    assert calibration.percentile(float(quality.max()) + 1e-6) == 100


def test_missing_quantiles_give_no_percentiles_and_invalid_ones_are_refused():
    content = {"data": "d", "data_sha256": "0", "faces": 1, "identities": None}
    assert Calibration.model_validate(content).percentile(1.0) is None
    for quantiles in ([0.0] * 100, [1.0, *[0.0] * 100], [float("nan")] * 101, [*[0.0] * 100, math.inf]):
        with pytest.raises(ValueError, match="quantiles"):
            Calibration.model_validate({**content, "quantiles": quantiles})


def test_scoring_the_same_faces_keeps_the_share_of_the_threshold(calibrated, people):
    scorer = facerts.load(calibrated)
    description = scorer.recognizer.opened.description
    assert tuple(description.thresholds) == KEEP
    for share, threshold in description.thresholds.items():
        assert scorer.threshold(float(share)) == threshold.quality
        rows = [entry.row for entry in scorer.score_each(people, min_quality=scorer.threshold(float(share)))]
        accepted = [row for row in rows if row.accepted]
        assert len(accepted) / len(rows) == threshold.kept
        assert len(accepted) == math.ceil(float(share) * len(rows))
        # The face at the threshold is the last to pass.
        assert min(row.quality or 0 for row in accepted) == threshold.quality
        assert all(("below_threshold" in row.reasons) is not row.accepted for row in rows)
        lower = [100 * sum((other.quality or 0) < (row.quality or 0) for other in rows) / len(rows) for row in rows]
        assert [row.percentile for row in rows] == pytest.approx(lower, abs=1.9)


# Match thresholds


def one_by_one(embedding, labels, quality):
    """Cosines of the impostor pairs and of the genuine pairs, and the lower quality of each genuine pair."""
    impostors, genuine, worse = [], [], []
    for a, b in itertools.combinations(range(len(labels)), 2):
        cosine = float(embedding[a].astype(np.float64) @ embedding[b])
        if labels[a] == labels[b]:
            genuine.append(cosine)
            worse.append(float(min(quality[a], quality[b])))
        else:
            impostors.append(cosine)
    return np.array(impostors), np.array(genuine), np.array(worse)


def check_threshold(actual, fmr, impostors, genuine, worse, minimums):
    allowed = int(fmr * len(impostors) + 1e-9)
    first_rejected = np.sort(impostors)[::-1][allowed]
    assert actual.similarity == pytest.approx(first_rejected, abs=2e-6)
    assert (actual.impostors, actual.genuine) == (len(impostors), len(genuine))
    assert actual.achieved_fmr == pytest.approx(allowed / len(impostors), abs=1.5 / len(impostors))
    assert actual.achieved_fmr <= fmr
    # A cosine within rounding of the threshold may fall on either side.
    assert actual.fnmr == pytest.approx(np.mean(genuine < actual.similarity), abs=1.1 / len(genuine))
    assert actual.ci95[0] <= actual.fnmr <= actual.ci95[1]
    for share, minimum in minimums.items():
        remaining = genuine[worse >= minimum - 1e-6]
        kept = actual.kept[share]
        assert kept.genuine == len(remaining)
        assert kept.fnmr == pytest.approx(np.mean(remaining < actual.similarity), abs=1.1 / len(remaining))
        assert kept.ci95 is not None
        assert kept.ci95[0] <= (kept.fnmr or 0) <= kept.ci95[1]


@pytest.mark.parametrize("flip", [False, True])
def test_error_rates_equal_those_of_all_pairs_counted_one_by_one(model, people, tmp_path, flip):
    out = tmp_path / "out.onnx"
    done = calibrate(model, people, out=out, flip=flip)
    source = open_source(people)
    outputs = embed_source(load_embedder(model), source, flip=flip, progress=False)
    slow = one_by_one(outputs.embedding, source.labels, outputs.quality)
    matching = matching_of(out)
    minimums = {share: threshold.quality for share, threshold in done.description.thresholds.items()}
    assert list(matching.thresholds) == ["0.01", "0.001"]
    for rate, threshold in matching.thresholds.items():
        check_threshold(threshold, float(rate), *slow, minimums)
    assert (matching.pairs, matching.flip, matching.interval) == ("all", flip, "bootstrap over subjects")
    assert (matching.data, matching.images, matching.identities) == ("people", 120, 15)
    lower = (outputs.quality[:, None] > outputs.quality[None]).mean(axis=1)
    first, second = np.triu_indices(120, 1)
    levels = np.log10(lower + 0.002)
    cosine = np.sum(outputs.embedding[first] * outputs.embedding[second], axis=1)
    same = source.labels[first] == source.labels[second]
    ratio = fit_same_person(cosine, levels[first], levels[second], same)
    assert matching.same_person == pytest.approx(ratio.weights, rel=1e-3, abs=1e-3)
    # 6,720 impostor pairs give a few false matches at a rate of one in a thousand, and none at one in ten thousand.
    missing, uncertain = calibration_of(out).notes
    assert "FMR 0.0001 needs at least 10,000 impostor pairs, and there are 6,720: it is left out." in missing
    low, high = matching.thresholds["0.001"].fmr_ci95 or (0, 0)
    assert low < matching.thresholds["0.001"].achieved_fmr < high
    assert "FMR 0.001 is uncertain: 6,720 impostor pairs give 7 false matches" in uncertain
    assert f"{low:.2g} to {high:.2g}" in uncertain
    scorer = facerts.load(out)
    assert scorer.recognizer.match_threshold(0.01, flip=flip).similarity == matching.thresholds["0.01"].similarity
    with pytest.raises(ModelError, match="calibrate it again with"):
        scorer.recognizer.match_threshold(0.01, flip=not flip)


def test_intervals_equal_those_of_the_metrics():
    random = np.random.default_rng(1)
    labels = np.repeat(np.arange(20), 6)
    vectors = random.normal(size=(20, 8))[labels] + 0.7 * random.normal(size=(120, 8))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    every = all_pairs(vectors, labels)
    thresholds = match_thresholds(every, [0.01, 0.1])
    for fmr, (low, high) in far_intervals(every, [0.01, 0.1], replicates=300).items():
        assert thresholds[str(fmr)].ci95 == pytest.approx((1 - high, 1 - low))
        assert low < high
    # A threshold below the stored tail stays fixed, and only the genuine pairs are resampled.
    short = all_pairs(vectors, labels, tail=500)
    assert 0.1 * short.impostors * 1.5 > len(short.tail)
    fixed = match_thresholds(short, [0.1])["0.1"]
    assert fixed.fnmr == pytest.approx(thresholds["0.1"].fnmr, abs=0.01)
    assert 0 < fixed.ci95[1] - fixed.ci95[0] < thresholds["0.1"].ci95[1] - thresholds["0.1"].ci95[0] + 0.02


def test_intervals_after_rejection_are_those_of_the_remaining_pairs():
    random = np.random.default_rng(3)
    pairs = np.arange(800).reshape(400, 2)
    same = np.arange(400) < 200
    scores = random.normal(size=400) + 2 * same
    quality = random.normal(size=800)
    threshold = match_thresholds(
        compare_listed(scores, same, pairs, None), [0.05], quality=quality, keep={"half": 0.0, "none": 9.0}
    )["0.05"]
    remaining = quality[pairs[same]].min(axis=1) >= 0
    rates = []
    for weights in pair_weights(same, None, replicates=300):
        order = np.argsort(-scores[~same])
        cumulative = np.cumsum(weights[~same][order])
        limit = scores[~same][order][np.searchsorted(cumulative, 0.05 * cumulative[-1] + 1e-9, side="right")]
        rates.append(np.average(scores[same][remaining] <= limit, weights=weights[same][remaining]))
    assert threshold.kept["half"].ci95 == pytest.approx(tuple(np.quantile(rates, [0.025, 0.975])))
    assert threshold.kept["half"].genuine == remaining.sum()
    assert threshold.kept["none"].model_dump() == {"genuine": 0, "fnmr": None, "ci95": None}


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("all_fail", [True, False])
def test_the_rule_of_three_applies_if_no_pair_or_every_pair_fails(known, all_fail):
    labels = np.repeat(np.arange(30), 4)
    pairs = np.array(list(itertools.combinations(range(120), 2)))
    same = labels[pairs[:, 0]] == labels[pairs[:, 1]]
    scores = np.where(same, 0.1 if all_fail else 0.9, np.random.default_rng(0).uniform(0.2, 0.4, len(pairs)))
    listed_pairs = compare_listed(scores, same, pairs, labels if known else None)
    calibration = match_thresholds(listed_pairs, [0.01])["0.01"]
    margin = 3 / (30 if known else 180)
    assert (calibration.fnmr, calibration.ci95) == ((1.0, (1 - margin, 1.0)) if all_fail else (0.0, (0.0, margin)))


def test_duplicate_images_make_no_pairs(model, people, tmp_path):
    copy = tmp_path / "people"
    shutil.copytree(people, copy)
    first = sorted(copy.glob("*/*"))[0]
    first.with_name("again.jpg").write_bytes(first.read_bytes())
    calibrate(model, copy, out=tmp_path / "out.onnx")
    calibration = calibration_of(tmp_path / "out.onnx")
    assert (calibration.faces, matching_of(tmp_path / "out.onnx").images) == (121, 120)
    assert matching_of(tmp_path / "out.onnx").thresholds["0.01"].genuine == 420
    assert calibration.notes[0] == "1 duplicate images are left out of the pairs."


# Unreadable images, and too few faces or pairs


def test_unreadable_images_are_named_and_left_out(model, people, calibrated, tmp_path, capsys):
    worse = tmp_path / "people"
    shutil.copytree(people, worse)
    person = sorted(worse.iterdir())[0]
    (person / "000.jpg").write_bytes(b"no")
    (person / "wide.png").write_bytes(encode_png(draw_face(0, 0)[:50]))
    assert run("calibrate", "--model", model, "--data", worse, "--json") == 1
    captured = capsys.readouterr()
    result = json.loads(captured.out)
    assert len(result["left_out"]) == 2
    assert str(person / "000.jpg") in result["left_out"][0]
    assert "left out" in captured.err
    # Only readable images count, so the numbers and the hash are those of the intact folder.
    assert calibration_of(model) == calibration_of(calibrated)
    assert calibration_of(model).data_sha256 == hash_images(open_source(people)).sha256

    listing = worse / "list.csv"
    keys = [
        f"{person.name}/000.jpg",
        *(str(path.relative_to(worse)) for path in sorted(worse.glob("*/*.jpg"))[2:]),
    ]
    lines = [f"{keys[i]},{keys[j]},{int(keys[i][:11] == keys[j][:11])}" for i in range(9) for j in range(i + 1, 60)]
    listing.write_text("\n".join(["first,second,same", *lines]))
    # Paths are relative to the only folder of faces, or else to the list's own.
    with pytest.raises(DataError, match=r"people: 1 of 60 images that list\.csv lists are missing"):
        calibrate(model, people, pairs=listing)
    done = calibrate(model, open_source(people), pairs=listing, fmr=[0.1])
    assert len(done.left_out) == 1
    assert "59 pairs with an unreadable image are left out." in calibration_of(model).notes
    match = matching_of(model).thresholds["0.1"]
    assert match.genuine + match.impostors == len(lines) - 59


def test_few_faces_give_wide_intervals_and_remarks(model, people, tmp_path):
    few = tmp_path / "few"
    for path in sorted(people.glob("*/*"))[:24]:
        (few / path.parent.name).mkdir(parents=True, exist_ok=True)
        shutil.copy(path, few / path.parent.name)
    done = calibrate(model, few)
    for threshold in done.description.thresholds.values():
        assert threshold.ci95 is not None
        assert threshold.ci95[0] <= threshold.kept <= threshold.ci95[1]
    # Three people, of whom no face is rejected, say nothing about a fourth.
    keep = done.description.thresholds["0.99"]
    assert (keep.kept, keep.ci95) == (1.0, (0.0, 1.0))
    few_faces, *missing = done.description.calibration.notes
    assert few_faces.startswith(
        "24 faces are few: of other such faces, the thresholds may keep 0.00 to 1.00 at keep 0.99,"
    )
    assert [note.split(":")[0] for note in missing] == [
        "FMR 0.001 needs at least 1,000 impostor pairs, and there are 192",
        "FMR 0.0001 needs at least 10,000 impostor pairs, and there are 192",
        "FMR 0.01 is uncertain",
    ]
    matching = done.description.calibration.matching
    assert list(matching.thresholds) == ["0.01"]


def test_without_a_face_nothing_is_written(model, tmp_path):
    before = model.with_suffix(".json").read_bytes()
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "a.jpg").write_bytes(b"no")
    with pytest.raises(DataError, match=r"no face in 1 images; .*a\.jpg"):
        calibrate(model, tmp_path / "none")
    assert model.with_suffix(".json").read_bytes() == before


def test_without_identities_there_are_only_quality_thresholds(model, calibrated, people, tmp_path):
    flat = tmp_path / "flat"
    flat.mkdir()
    for path in people.glob("*/*"):
        shutil.copy(path, flat / f"{path.parent.name}_{path.name}")
    with pytest.raises(Error, match="need the identity of each image"):
        calibrate(model, flat, fmr=[0.01])
    done = calibrate(model, flat)
    calibration = calibration_of(model)
    assert calibration.matching is None
    assert calibration.notes == ("The identities of the images are unknown, so there are no match thresholds.",)
    other = facerts.load(calibrated).recognizer.opened.description.thresholds
    assert [threshold.quality for threshold in done.description.thresholds.values()] == [
        threshold.quality for threshold in other.values()
    ]


@pytest.mark.parametrize("inside", [True, False])
def test_a_model_without_quality_gets_only_match_thresholds(model, people, tmp_path, inside):
    write_description(model, quality="none")
    model = embed_description(model) if inside else model
    calibrate(model, people)
    scorer = facerts.load(model)
    assert scorer.recognizer.match_threshold(0.01).similarity == matching_of(model).thresholds["0.01"].similarity
    assert matching_of(model).thresholds["0.01"].kept == {}
    assert scorer.recognizer.opened.description.thresholds == {}
    assert calibration_of(model).notes[0].startswith("The model has no quality")
    assert [row.percentile for row in scorer.score([draw_face(0, 0)])] == [None]
    with pytest.raises(ModelError, match="cannot have quality thresholds"):
        calibrate(model, people, keep=[0.9])
    (tmp_path / "flat").mkdir()
    (tmp_path / "flat" / "a.png").write_bytes(encode_png(draw_face(0, 0)))
    with pytest.raises(Error, match="nothing to calibrate"):
        calibrate(model, tmp_path / "flat")


def test_numbers_that_are_not_finite_are_refused(people, tmp_path):
    model = write_description(write_embedder(tmp_path / "nan.onnx", not_a_number=True))
    with pytest.raises(ModelError, match="not a finite number"):
        calibrate(model, people)
    black = tmp_path / "black"
    shutil.copytree(people, black)
    gray = sorted(black.iterdir())[0] / "gray.png"
    gray.write_bytes(encode_png(np.zeros((112, 112, 3), dtype=np.uint8)))
    model = write_embedder(tmp_path / "model.onnx")
    write_description(model, input_mean=[0.0, 0.0, 0.0], input_std=[1.0, 1.0, 1.0])
    with pytest.raises(ModelError, match=r"gray\.png: model returns an embedding of length 0"):
        calibrate(model, black)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"keep": [1.0]}, "1 is not a share of the faces"),
        ({"keep": [float("nan")]}, "nan is not a share"),
        ({"fmr": [0.0]}, "0 is not a false match rate"),
        ({"out": "thresholds.json"}, r"written as \.onnx"),
    ],
)
def test_impossible_thresholds_are_refused_before_scoring(model, people, arguments, message, capsys):
    before = model.with_suffix(".json").read_bytes()
    with pytest.raises(Error, match=message):
        calibrate(model, people, **arguments)
    assert "scoring" not in capsys.readouterr().err
    assert model.with_suffix(".json").read_bytes() == before


def test_people_with_one_image_each_give_no_match_thresholds(model, tmp_path):
    write_synthetic_faces(tmp_path / "single", identities=100, images=1, seed=1)
    calibrate(model, tmp_path / "single")
    calibration = calibration_of(model)
    assert calibration.matching is None
    assert calibration.notes[0].startswith("There are 0 genuine pairs and 4,950 impostor pairs")


def test_a_model_pack_is_refused(people, tmp_path):
    with pytest.raises(ModelError, match="a model pack cannot hold thresholds"):
        calibrate(tmp_path, people)


# Output files


def test_a_shipped_model_is_calibrated_into_another_file(people, tmp_path, monkeypatch):
    folder = tmp_path / "models"
    folder.mkdir()
    write_manifest(folder, write_entry(folder, "small"), default="small")
    monkeypatch.setattr(registry, "models_folder", lambda: folder)
    with pytest.raises(Error, match=r"small ships with facerts .*--out"):
        calibrate("small", people)
    calibrate("small", people, out=tmp_path / "mine.onnx")
    assert facerts.load("small").recognizer.opened.description.thresholds == {}
    assert list(facerts.load(tmp_path / "mine.onnx").recognizer.opened.description.thresholds) == list(KEEP)


def test_a_description_inside_a_model_is_rewritten_inside_it(model, people, tmp_path):
    model = embed_description(model)
    before, original = model.read_bytes(), onnx.load(str(model))
    other = calibrate(model, people, out=tmp_path / "new" / "other.onnx")
    assert other.file == tmp_path / "new" / "other.onnx"
    assert [path.name for path in other.file.parent.iterdir()] == ["other.onnx"]
    assert model.read_bytes() == before
    calibrate(model, people)
    assert model.read_bytes() == other.file.read_bytes() != before
    written = onnx.load(str(model))
    assert [entry.key for entry in written.metadata_props] == ["a", "facerts", "z"]
    description = json.loads(written.metadata_props[1].value)
    assert (description["license"], description["thresholds"]["0.9"]["quality"]) == (
        "custom",
        facerts.load(model).threshold(0.9),
    )
    for content in (written, original):
        del content.metadata_props[:]
    assert written.SerializeToString(deterministic=True) == original.SerializeToString(deterministic=True)
    # A second calibration replaces the first one entirely.
    calibrate(model, people, keep=[0.7])
    assert list(facerts.load(model).recognizer.opened.description.thresholds) == ["0.7"]
    assert list(matching_of(model).thresholds["0.01"].kept) == ["0.7"]


def test_photos_without_a_face_are_left_out(model, people, calibrated, tmp_path):
    photos = tmp_path / "people"
    shutil.copytree(people, photos)
    dark = sorted(photos.iterdir())[1] / "dark.png"
    dark.write_bytes(encode_png(np.full((112, 112, 3), 9, dtype=np.uint8)))
    done = calibrate(model, photos, detector=Finds(face_at(0, 0), where=lambda image: image.mean() >= 40))
    calibration = calibration_of(model)
    assert done.left_out == ()
    assert calibration.faces == 120
    assert calibration.notes[0].startswith("No face was found in 1 photos, first")
    assert dark.name in calibration.notes[0]
    # Aligning a crop by the template's own landmarks only interpolates it.
    aligned, original = matching_of(model).thresholds["0.01"], matching_of(calibrated).thresholds["0.01"]
    assert aligned.similarity == pytest.approx(original.similarity, abs=0.02)


# The command


def test_the_command_shows_thresholds_with_their_error_rates(model, people, capsys):
    assert run("calibrate", "--model", model, "--data", people, "--fmr", "0.05", "--keep", "0.8") == 0
    shown = capsys.readouterr().out
    match = matching_of(model).thresholds["0.05"]
    kept = match.kept["0.8"]
    for number in (match.similarity, match.fnmr, *match.ci95, kept.fnmr, facerts.load(model).threshold(0.8)):
        assert f"{number:.4f}" in shown
    # A rate that cannot be measured is named, and the others remain.
    assert run("calibrate", "--model", model, "--data", people, "--fmr", "0.0001", "--fmr", "0.05") == 0
    assert "needs at least 10,000 impostor pairs" in capsys.readouterr().err
    assert list(matching_of(model).thresholds) == ["0.05"]


def test_a_quality_alone_gets_quality_thresholds_which_a_graft_takes_over(people, tmp_path):
    alone = write_quality(tmp_path / "alone.onnx")
    alone.with_suffix(".json").write_text(json.dumps(quality_description()))
    found = calibrate(alone, people).description
    source = open_source(people)
    quality = np.sort(slow_quality(np.stack([source.crop(row) for row in range(len(source))])))[::-1]
    for share, threshold in found.thresholds.items():
        expected = quality[math.ceil(float(share) * len(quality) - 1e-9) - 1]
        assert threshold.quality == pytest.approx(expected, abs=1e-4)
    assert tuple(found.thresholds) == KEEP
    assert found.calibration.matching is None
    assert found.calibration.notes == ("The model has no embedding, so there are no match thresholds.",)
    theirs = write_description(write_embedder(tmp_path / "theirs.onnx"))
    joined = graft_quality(theirs, alone, tmp_path / "joined.onnx").description
    assert joined.thresholds == found.thresholds
    assert joined.calibration.quantiles == found.calibration.quantiles
    for wrong in ({"fmr": [0.01]}, {"pairs": people}):
        with pytest.raises(ModelError, match="no embedding, so it cannot have match thresholds"):
            calibrate(alone, people, **wrong)
