"""The scripts of eval/ but for train_and_evaluate.py and fiqa_league.py, which have files of their own."""

from collections import Counter
from itertools import combinations, pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from facerts.datasets import Subset, open_source
from facerts.datasets.synthetic import draw_face
from facerts.detection import Detection
from facerts.embedding.onnx_embedder import OnnxQuality
from facerts.hub.find import find_model
from facerts.images import encode_jpeg, encode_png
from facerts.images.align import TEMPLATE
from facerts.images.changes import gaussian_blur
from facerts.metrics.intervals import subject_counts
from facerts.scoring.reasons import REASONS
from tests.detectors import Finds, face_at
from tests.foreign import slow_embedding
from tests.matching import write_matcher
from tests.scripts import EVAL, cells_of, load_script, run_script

align_crops, any_face, common, image_sets, kinds, reasons = map(
    load_script, ("align_crops", "any_face", "common", "image_sets", "degraded_faces", "reasons")
)
harmless_changes, non_faces = (load_script(name, EVAL / "quality_alone") for name in ("harmless_changes", "non_faces"))
harder_faces = load_script("harder_faces", EVAL / "papers")


# What scripts share.


def test_photos_are_aligned_by_a_detector_and_others_left_out(tmp_path, drawn_faces, monkeypatch):
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
    rate = common.rate_of_pairs
    assert rate(counted, among, (first, second)) == f"{counted[among].mean():.4f} [{low:.4f}, {high:.4f}]"
    nothing = np.zeros(60, dtype=bool)
    assert rate(nothing, among, (first, second), rule_of_three=True) == "0.0000 [0.0000, 0.6000]"
    assert rate(counted, nothing, (first, second)) == "–"
    by_person = common.resampled_rate(np.array([1.0, 0, 2]), np.array([1.0, 2, 3]))
    assert by_person[0] == 0.5
    assert ((by_person >= 0) & (by_person <= 1)).all()


# any_face.py


def test_outputs_are_those_of_the_model_in_batches(monkeypatch):
    crops = np.stack([draw_face(person, 0) for person in range(5)])
    model = OnnxQuality(find_model("facerts-quality"))
    whole = model.tensors(crops)
    monkeypatch.setattr(any_face, "BATCH", 2)
    found = any_face.outputs(model, crops)
    assert set(found) == {"quality", "not_a_face", "covered"}
    np.testing.assert_allclose(found["quality"], model.quality_of(whole), atol=1e-5)
    np.testing.assert_allclose(found["covered"], whole["covered"].reshape(-1), atol=1e-4)


def test_a_share_is_in_percent_with_wilsons_interval():
    # Wilson's interval of 1 in 4, by hand: center (1 + 1.92) / (4 + 3.84).
    assert common.share(np.array([True, False, False, False])) == "25.00 [4.56, 69.94]"


def test_faces_are_separated_from_pets_by_each_output():
    of_faces = {"quality": np.array([0.9, 0.8, 0.4]), "not_a_face": np.array([-3.0, -2.0, 1.0])}
    of_pets = {"quality": np.array([0.5, 0.1]), "not_a_face": np.array([0.0, 2.0])}
    names = ("LFW", "All-Age-Faces", "RAF-DB as it comes")
    rows = any_face.pets({**dict.fromkeys(names, of_faces), "pets": of_pets})
    assert [row[0] for row in rows] == [*names, "all three"]
    # Of six pairs, five are in the right order by either output.
    assert {tuple(row[1::2]) for row in rows} == {("0.8333", "0.8333")}
    without = {"quality": of_pets["quality"]}
    assert any_face.pets({**dict.fromkeys(names, of_faces), "pets": without})[0][1:] == ["–", "–", "0.8333"]


# quality_alone/harmless_changes.py


def test_only_changes_that_recognizers_see_through_count(monkeypatch, capsys):
    prefix = "corruptions/faces/"
    numbers = {
        "severity": [0, 0.5, 1],
        # 0.95 is harmless, 0.93 is not.
        "gray/cosine to unchanged": [1, 0.95, 0.93],
        "gray/kept": [0.95, 0.91, 0.2],
        "gray/not a face": [0, 0.01, 0.5],
        "hue/cosine to unchanged": [1, 0.97, 0.95],
        "hue/kept": [0.95, 0.94, 0.92],
    }
    arrays = {prefix + name: np.array(values) for name, values in numbers.items()}
    result = SimpleNamespace(of_kind=lambda kind: ["faces"])
    monkeypatch.setattr(harmless_changes, "load_result", lambda folder: (result, arrays))
    monkeypatch.setattr("sys.argv", ["harmless_changes", "out"])
    harmless_changes.main()
    lines = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines()]
    trained = ["out", "trained", "1 of 2", "0.910", "gray 0.5", "0", "0.010", "0.500", "0.255"]
    held_out = ["out", "held out", "2 of 2", "0.920", "hue 1", "2", "0.000", "0.000", "0.000"]
    assert lines[2:] == [trained, held_out]


# quality_alone/non_faces.py


def test_free_windows_show_nothing_of_a_box_nor_of_what_lies_beyond_the_edge():
    random = np.random.default_rng(0)
    image = random.integers(0, 120, (150, 200, 3)).astype(np.uint8)
    image[40:90, 60:120] = 255
    boxes = np.array([[60.0, 40.0, 120.0, 90.0]])
    found = [non_faces.free_window(image, boxes, random) for _ in range(200)]
    windows = [window for window in found if window is not None]
    assert len(windows) > 50
    assert all(window.shape == (112, 112, 3) and window.max() < 130 for window in windows)
    # Without boxes, the same windows may show it.
    seen = [non_faces.free_window(image, np.empty((0, 4)), random) for _ in range(20)]
    assert any(window.max() > 200 for window in seen)
    assert non_faces.free_window(image, np.array([[0.0, 0.0, 200.0, 150.0]]), random) is None


def test_a_window_is_turned_and_scaled_around_its_center():
    image = np.zeros((100, 100, 3), dtype=np.uint8)
    image[20:40, 50:70] = 200
    upright = non_faces.window(image, (50, 30), 40, 0)
    assert upright[56, 80].min() == 200
    assert upright[56, 30].max() == 0
    turned = non_faces.window(image, (50, 30), 40, 90)
    assert turned[30, 56].min() == 200
    assert turned[80, 56].max() == 0


# image_sets.py


def crops_of(source):
    return [source.crop(index).tobytes() for index in range(len(source))]


@pytest.mark.parametrize("name", ["degraded", "misaligned"])
def test_what_becomes_of_an_image_hangs_on_its_index_and_the_seed_alone(drawn_faces, name):
    source = open_source(drawn_faces)
    images = image_sets.open_image_set(name, source, 1)
    late = images.crop(9)
    again = image_sets.open_image_set(name, source, 1)
    assert np.array_equal(again.crop(9), late)
    assert crops_of(images) == crops_of(again)
    assert not np.array_equal(image_sets.open_image_set(name, source, 2).crop(9), late)
    ten = image_sets.open_image_set(name, Subset(source, [9] * 10), 1)
    assert len({ten.crop(row).tobytes() for row in range(10)}) == 10
    assert crops_of(source) != crops_of(images)
    assert images.labels is source.labels
    assert [images.key(row) for row in range(3)] == [source.key(row) for row in range(3)]


def test_misaligned_images_are_turned_shifted_and_cut_tighter_or_looser():
    """Seen by three spots of an image, each of a color of its own."""
    spots = np.array([[40.0, 46.0], [70.0, 46.0], [55.0, 74.0]])
    image = np.zeros((112, 112, 3), dtype=np.uint8)
    y, x = np.mgrid[:112, :112]
    for channel, (column, row) in enumerate(spots):
        image[..., channel] = 255 * np.exp(-((x - column) ** 2 + (y - row) ** 2) / 18)
    widths, shifts, turns = [], [], []
    for index in range(200):
        moved = image_sets.misaligned(image, index, 0).astype(np.float64)
        found = [
            np.array([(moved[..., c] * x).sum(), (moved[..., c] * y).sum()]) / moved[..., c].sum() for c in range(3)
        ]
        across = found[1] - found[0]
        widths.append(np.linalg.norm(across) / 30)
        turns.append(np.degrees(np.arctan2(across[1], across[0])))
        shifts.append(np.mean(found, axis=0) - spots.mean(axis=0))
    # The scale of a similarity fitted to five points with noise n (pixels) has a spread of n over their size.
    spread = 0.1 * 35.24 / np.sqrt(np.sum((TEMPLATE - TEMPLATE.mean(axis=0)) ** 2))
    tight = np.array(widths) > 1
    assert 75 <= tight.sum() <= 125
    by_coin = [np.array(widths)[rows] for rows in (tight, ~tight)]
    # Noise in the points that are fitted makes the fitted scale smaller, the same for both.
    assert np.mean(by_coin[0]) / np.mean(by_coin[1]) == pytest.approx(1.15 / 0.85, rel=0.03)
    assert np.mean([np.mean(widths_of) for widths_of in by_coin]) == pytest.approx(0.975, abs=0.025)
    assert np.std(by_coin[0]) == pytest.approx(1.15 * spread, rel=0.35)
    assert np.std(turns) == pytest.approx(np.degrees(spread), rel=0.25)
    assert np.std(shifts, axis=0) == pytest.approx(0.1 * 35.24 / np.sqrt(5), rel=0.35)


# papers/harder_faces.py


def images_in(folder):
    """The images written, each with its person and row, by its number in the original set."""
    source = open_source(folder)
    found = ((Path(source.key(row)), row) for row in range(len(source)))
    return source, {int(key.stem): (key.parent.name, row) for key, row in found}


def test_few_images_under_some_wrong_names_and_partly_blurred_are_written(tmp_path, drawn_faces):
    options = ("--images", 6, "--imbalance", 0.5, "--label-noise", 0.3, "--blur", 0.4, "--radius", 2)
    done = run_script(EVAL / "papers" / "harder_faces.py", drawn_faces, *options, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    whole, (written, found) = open_source(drawn_faces), images_in(tmp_path)
    assert whole.labels is not None
    # Half of the eight people keep three images, the others six.
    assert sorted(Counter(int(whole.labels[index]) for index in found).values()) == [3] * 4 + [6] * 4
    names = harder_faces.noisy_labels(whole.labels, 0.3, 1)
    blurred = 0
    for index, (name, row) in found.items():
        assert name == whole.identities[names[index]]
        clean, image = whole.crop(index), written.crop(row)
        blurred += not np.array_equal(image, clean)
        assert np.array_equal(image, clean) or np.array_equal(image, gaussian_blur(clean, 2))
    wrong = sum(names[index] != whole.labels[index] for index in found)
    assert 0 < wrong < len(found)
    assert 0 < blurred < len(found)
    assert f"{len(found)} of 64 images, {wrong} under a wrong name" in done.stdout


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_wrong_names_are_uniform_over_the_others_and_milder_noise_is_a_part(share):
    labels = np.random.default_rng(1).integers(0, 5, 8000)
    noisy = harder_faces.noisy_labels(labels, share, 5)
    wrong = noisy != labels
    assert wrong.mean() == pytest.approx(share, abs=4 * (share * (1 - share) / 8000) ** 0.5)
    steps = np.bincount((noisy - labels)[wrong] % 5, minlength=5)
    assert steps[0] == 0
    assert np.abs(steps[1:] - wrong.sum() / 4).max() <= 5 * (wrong.sum() / 4) ** 0.5
    harder = harder_faces.noisy_labels(labels, 0.9, 5)
    assert (harder[wrong] == noisy[wrong]).all()


def test_fewer_images_are_a_subset_of_more():
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(6), [1, 2, 3, 7, 20, 40]))
    for chain in (
        [harder_faces.kept_images(labels, images, 1.0, 5) for images in (1, 2, 6, 25, None)],
        [harder_faces.kept_images(labels, None, imbalance, 5) for imbalance in (0.05, 0.3, 0.7, 1.0)],
    ):
        kept = [set(indices.tolist()) for indices in chain]
        assert all(few < more for few, more in pairwise(kept))
        assert all({int(labels[index]) for index in indices} == set(range(6)) for indices in kept)


# verify_table.py

PEOPLE = [f"Person_{number}" for number in range(6)]
IMAGES = 3


def face(person, image):
    """Blocks of a person's color mixed with others; every third image is too dark to be compared."""
    own, other = (
        np.random.default_rng(seed).integers(60, 256, (7, 7, 3)) for seed in (person, 100 * person + image + 50)
    )
    mixed = (0.55 * own + 0.45 * other) / (8 if image == 2 and person % 2 else 1)
    return mixed.astype(np.uint8).repeat(16, axis=0).repeat(16, axis=1)


def unit(crops):
    embedding = slow_embedding(crops)
    return embedding / np.linalg.norm(embedding, axis=1, keepdims=True)


def brightness(crops):
    return (crops.reshape(len(crops), -1).mean(axis=1) - 127.5) / 127.5


def test_the_table_of_lfw_has_the_error_rates_of_the_pairs_that_are_decided(tmp_path):
    model = write_matcher(tmp_path / "matcher.onnx")
    for person, image in np.ndindex(len(PEOPLE), IMAGES):
        path = tmp_path / "lfw" / PEOPLE[person] / f"{PEOPLE[person]}_{image + 1:04d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode_jpeg(face(person, image), 100))
    same = [(p, i, p, k) for p in range(6) for i, k in combinations(range(IMAGES), 2)]
    different = [(p, i, q, 1 + i % 2) for p, q in combinations(range(6), 2) for i in range(IMAGES)][:18]
    lines = [f"{PEOPLE[p]} {i + 1} {k + 1}" for p, i, _, k in same]
    lines += [f"{PEOPLE[p]} {i + 1} {PEOPLE[q]} {k + 1}" for p, i, q, k in different]
    (tmp_path / "lfw" / "pairs.txt").write_text("1 18\n" + "\n".join(lines) + "\n")
    ran = run_script(EVAL / "verify_table.py", "--model", model, "--lfw", tmp_path / "lfw", "--fmr", "0.01", "0.001")
    assert ran.returncode == 0, ran.stderr
    header, *table = cells_of(ran.stdout)
    by_row = {(row[1], row[2]): dict(zip(header, row, strict=True)) for row in table}
    pairs = [*same, *different]
    first, second = (np.stack([face(*pair[at : at + 2]) for pair in pairs]) for at in (0, 2))
    cosine = np.einsum("pd,pd->p", unit(first), unit(second))
    lower = np.minimum(brightness(first), brightness(second))
    genuine = np.arange(len(pairs)) < len(same)
    assert 0 < np.sum(lower < -0.5) < len(pairs)
    for quality, decided in (("keep 0.95", lower >= -0.5), ("any quality", lower > -2)):
        for fmr, threshold in (("0.01", 0.2), ("0.001", 0.5)):
            row = by_row[quality, fmr]
            assert row["threshold"] == f"{threshold:.4f}"
            assert row["inconclusive"] == f"{1 - decided.mean():.4f}"
            assert row["impostor pairs"] == str(np.sum(decided & ~genuine))
            assert row["measured FMR"].startswith(f"{np.mean(cosine[decided & ~genuine] >= threshold):.4f} [")
            assert row["measured FNMR"].startswith(f"{np.mean(cosine[decided & genuine] < threshold):.4f} [")
    assert by_row["keep 0.95", "0.001"]["stated FNMR"] == "0.1250 [0.1150, 0.1350]"
    assert by_row["any quality", "0.001"]["stated FNMR"] == "0.2000 [0.1800, 0.2200]"
    assert "LFW, crops: 0 pairs with an error" in ran.stdout


# reasons.py and degraded_faces.py


def test_degradations_are_the_same_for_a_seed_and_stronger_with_severity():
    face = draw_face(2, 1)
    for name, (reason, degradation) in kinds.CONFIRMED_ON.items():
        assert reason in {*REASONS, kinds.OCCLUDED}
        mild, strong, again = (degradation(face, severity, np.random.default_rng(4)) for severity in (0.3, 1.0, 1.0))
        assert mild.dtype == np.uint8
        assert mild.shape == face.shape
        assert np.array_equal(strong, again), name
        errors = [np.mean((changed.astype(float) - face) ** 2) for changed in (mild, strong)]
        assert 0 < errors[0] < errors[1], name


def test_the_formula_names_its_lowest_component():
    box, points = np.array([20.0, 20, 120, 120]), TEMPLATE + 20
    photo = np.zeros((140, 140, 3), dtype=np.uint8)
    photo[::2] = 255  # sharp, and neither dark nor bright

    def lowest(image=photo, **changes):
        face = Detection(**({"box": box, "points": points, "score": 0.9} | changes))
        return reasons.lowest_component(image, Finds(face))

    assert lowest(score=0.2) == "not_a_face"
    assert lowest(photo // 10) == "under_exposed"
    assert lowest(255 - photo // 10) == "over_exposed"
    assert lowest(np.full_like(photo, 120)) == "blurred"
    assert lowest(box=np.array([20.0, 20, 40, 40])) == "too_small"
    turned = points + np.array([[0, 0], [0, 0], [30, 0], [0, 0], [0, 0]])
    assert lowest(points=turned) == "turned"
    assert reasons.lowest_component(photo, Finds()) == "not_a_face"


def turned_if_bright(photo):
    """A face whose nose is the further to the right, the brighter the photo; none in a black one."""
    nose = np.array([[0, 0], [0, 0], [photo.mean() / 10, 0], [0, 0], [0, 0]])
    return [Detection(np.zeros(4), TEMPLATE + nose, 0.9)] * bool(photo.any())


def test_profiles_are_separated_from_frontal_faces_where_a_face_is_found(tmp_path):
    places = "1/frontal", "1/profile", "2/frontal", "2/profile", "3/profile"
    for place, level in zip(places, (10, 200, 90, 70, 0), strict=True):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "01.png").write_bytes(encode_png(np.full((112, 112, 3), level, np.uint8)))
    frontal, profile, area = reasons.cfp_rows(turned_if_bright, str(tmp_path))
    assert [row[1].split()[0] for row in (frontal, profile, area)] == ["100.0", "66.7", "75.00"]
    assert [row[2].split()[0] for row in (frontal, profile)] == ["0.0", "50.0"]


def test_the_roll_is_compared_with_the_rotation(crops):
    """A detector that sees no rotation errs by all of it."""
    errors = [float(row[-1].split("°")[0]) for row in reasons.pose_rows(turned_if_bright, crops[:2])]
    assert errors == pytest.approx([60, 30, 0, -30, -60], abs=1)


def test_a_photo_is_cut_and_shrunk_as_it_says():
    photo = reasons.photo_of(draw_face(0, 0))
    assert np.array_equal(photo[112:224, 112:224], draw_face(0, 0))
    random = np.random.default_rng(0)
    for _ in range(10):
        cut = reasons.cut_photo(photo, random)
        lost = 336 - min(cut.shape[:2])
        assert 112 + 0.19 * 112 < lost < 112 + 0.61 * 112
        assert max(cut.shape[:2]) == 336
        eyes = 35.24 * reasons.small_photo(photo, random).shape[0] / 336
        assert 3.9 < eyes < 16.1
