"""Galleries: templates, searches at a stated error rate, best images, changes, and files that strangers made."""

import io
import math
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from unittest.mock import Mock

import numpy as np
import pytest
from PIL import Image

import facerts
from facerts.datasets.synthetic import draw_face, write_synthetic_faces
from facerts.errors import DataError, Error, ModelError
from facerts.galleries import (
    BestImage,
    Decision,
    Enrollments,
    Gallery,
    Listed,
    TrackSearch,
    best_images,
    copy_images,
    unmated,
)
from facerts.galleries.unmated import search_threshold, tail_threshold
from facerts.images import encode_png
from facerts.scoring import Face, Row, Scorer
from facerts.scoring.face import embedded
from facerts.scoring.prepare import storable
from tests.foreign import write_description, write_embedder
from tests.hostile import galleries
from tests.hostile.sandbox import read_bounded
from tests.matching import blocks, cosine, write_matcher

SIZE = 64


def draw(people, images, *, seed=0, spread=0.7):
    """Embeddings around a random center for each person."""
    random = np.random.default_rng(seed)
    centers = unit(random.normal(size=(people, 1, SIZE)))
    faces = unit(centers + spread * random.normal(size=(people, images, SIZE)) / math.sqrt(SIZE))
    names = np.repeat([f"p{person:03d}" for person in range(people)], images)
    count = people * images
    paths = np.array([f"{name}/{row % images}.jpg" for row, name in enumerate(names)])
    percentile = random.uniform(5, 100, count).astype(np.float32)
    embedding = faces.reshape(count, SIZE).astype(np.float32)
    reasons = np.full(count, "", dtype="<U40")
    return Enrollments(names, paths, embedding, percentile / 100, percentile, reasons, "drawn", "a" * 64)


def unit(vectors):
    return np.asarray(vectors / np.linalg.norm(vectors, axis=-1, keepdims=True))


def faces_of(embedding):
    return [
        Face(Row(f"{row}.jpg", face=0, quality=0.5, model_sha256="a" * 64), None, vector)
        for row, vector in enumerate(embedding)
    ]


@pytest.fixture(scope="module")
def scorer(model):
    return facerts.load(model, detector="none")


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    folder = tmp_path_factory.mktemp("drawn") / "people"
    write_synthetic_faces(folder, identities=4, images=3, seed=5)
    return folder


def test_a_template_is_the_mean_of_a_persons_embeddings_weighted_by_quality():
    images = draw(3, 4)
    images.percentile[:4] = [3, 15, 30, 90]
    weights = np.array([0.1, 0.5, 1, 1])[:, None]
    expected = unit((images.embedding[:4].astype(np.float64) * weights).sum(axis=0))
    np.testing.assert_allclose(images.templates[0], expected, atol=1e-6)
    unknown = replace(images, percentile=np.full(12, np.nan, dtype=np.float32))
    plain = unit(images.embedding[4:8].astype(np.float64).sum(axis=0))
    np.testing.assert_allclose(unknown.templates[1], plain, atol=1e-6)


def test_as_many_strangers_are_found_as_was_asked_for():
    gallery = Gallery(draw(200, 4))
    strangers = draw(1500, 1, seed=1).embedding
    for fpir, minimum, maximum in ((0.1, 0.06, 0.14), (0.02, 0.007, 0.035)):
        matches = gallery.match(faces_of(strangers), fpir=fpir)
        assert minimum < np.mean([match.decision is Decision.MATCH for match in matches]) < maximum


def test_the_tail_of_strangers_scores_is_continued_beyond_the_highest():
    # An exponential tail: the threshold for a rate is the distribution's own quantile, −log(rate).
    scores = np.random.default_rng(0).exponential(size=20_000)
    for rate in (0.5, 0.1, 0.01, 1e-3, 1e-6):
        assert tail_threshold(scores, rate) == pytest.approx(-math.log(rate), rel=0.06)


def test_a_threshold_allows_for_one_person_more_and_its_interval_is_over_people():
    scores = 0.1 * np.random.default_rng(1).exponential(size=4000)
    person = np.repeat(np.arange(400), 10)
    two = search_threshold(scores, person, 2, 0.02)
    # FPIR 0.02 among two people is that of two searches among one.
    assert two.cosine == pytest.approx(-0.1 * math.log(1 - math.sqrt(0.98)), rel=0.1)
    assert two.ci95[0] < two.cosine < two.ci95[1]
    same = np.repeat(0.1 * np.random.default_rng(2).exponential(size=400), 10)
    wide = search_threshold(same, person, 400, 0.02)
    assert wide.ci95[1] - wide.ci95[0] > 1.5 * (two.ci95[1] - two.ci95[0])


def test_a_threshold_continues_the_highest_scores_of_people_among_the_others():
    images = draw(6, 5, spread=1.5)
    cosines = images.embedding.astype(np.float64) @ images.templates.T.astype(np.float64)
    cosines[np.arange(30), np.arange(30) // 5] = -1
    highest = np.sort(cosines.max(axis=1))[::-1]
    for fpir in (0.2, 0.1):
        rate = 1 - (1 - fpir) ** (5 / 6)  # among five others instead of six
        excess = (highest[:10] - highest[10]).mean()
        expected = highest[10] + excess * np.log(10 / 30 / rate)
        assert Gallery(images).threshold(fpir).cosine == pytest.approx(float(expected), abs=1e-6)


@pytest.fixture
def warned(monkeypatch):
    """What was warned of, each text at most once in a process."""
    texts = []
    monkeypatch.setattr(unmated, "_warn_once", cache(texts.append))
    return texts


def test_few_images_leave_the_threshold_to_the_recognizer(warned):
    known = (1e-4, 0.5), (1e-3, 0.4), (1e-2, 0.3)
    alike = np.array([0.9, 0.9, 0.1, 0.1])
    person = np.arange(4)

    def threshold(fpir, people=4, matching=known):
        return search_threshold(alike, person, people, fpir, matching)

    # Two people who are alike do not raise it. The FMR is the share of the rate that falls to each person.
    for fpir, people, expected in (
        (0.04, 4, 0.3),
        (0.004, 4, 0.4),
        (0.2, 2, 0.3),  # FMR 0.1 is above all that are known
        (0.02, 4, 0.3 + 0.1 * math.log10(2)),
        (4e-6, 4, 0.9),  # below all: at 0.5, two of these four would have matched
    ):
        assert threshold(fpir, people) == unmated.SearchThreshold(pytest.approx(expected), None)
    assert search_threshold(alike / 9, person, 4, 4e-6, known).cosine == 0.5
    assert len(warned) == 5
    assert "has 4 images to judge strangers by, too few for an FPIR of 0.004: the threshold is the rec" in warned[1]
    assert "enroll 250 images or more" in warned[1]
    # One in four can be told by four; nothing is known of pairs without a calibrated recognizer.
    own = threshold(0.25)
    assert own.ci95 is not None
    assert own == threshold(0.25, matching=())
    assert len(warned) == 5
    assert threshold(0.02, matching=()).cosine == 1
    assert "a guess without a calibrated recognizer's; enroll 50" in warned[5]


@pytest.mark.parametrize("place", ["memory", "database"])
def test_every_search_of_a_small_gallery_is_at_the_recognizers_threshold(warned, tmp_path, postgres, place):
    scorer = facerts.load(recognizer=write_matcher(tmp_path / "matcher.onnx"), detector="none")
    first, second, stranger = (blocks(seed) for seed in range(3))
    gallery = Gallery(tmp_path / "new.npz")
    for name, crop in (("Ann", first), ("Bea", second)):
        gallery.add(scorer, crop, person=name, min_quality=-math.inf)
    if place == "database":
        images, gallery = gallery.read(), Gallery(postgres.address(gallery="small"))
        gallery.replace(images)
    # FMR 0.005, between 0.001 at 0.5 and 0.01 at 0.2.
    expected = 0.2 + 0.3 * math.log10(2)
    assert gallery.threshold(0.01).cosine != pytest.approx(expected, abs=0.05)
    assert gallery.threshold(0.01, scorer.recognizer).cosine == pytest.approx(expected)
    crops = [first, second, stranger]
    searched = gallery.search(scorer, crops, min_quality=-math.inf)
    cosines = [max(cosine(crop, each) for each in (first, second)) for crop in crops]
    for match, wanted in zip(searched, cosines, strict=True):
        assert (match.cosine, match.threshold) == (pytest.approx(wanted, abs=1e-5), pytest.approx(expected))
        assert (match.decision is Decision.MATCH) == (wanted >= expected)
    # Faces whose embeddings nobody has read yet say of themselves whose they are.
    faces = scorer.faces(crops, min_quality=-math.inf)
    assert all(face.vector is None for face in faces)
    assert gallery.match(faces) == searched
    assert faces[0].embedding is faces[0].vector
    assert gallery.match(faces) == searched
    track = Mock(as_face=lambda: replace(embedded(faces[2:])[0], recognizer=None))
    found = TrackSearch(gallery, recognizer=scorer.recognizer).columns(track)
    assert (found["cosine"], found["threshold"]) == (pytest.approx(searched[2].cosine), searched[2].threshold)
    assert len(warned) == 2


def test_a_search_says_match_unknown_or_too_poor():
    images = draw(50, 3)
    gallery = Gallery(images)
    known, stranger, poor = faces_of(
        np.vstack([images.embedding[6], draw(1, 1, seed=9).embedding[0], images.embedding[9]])
    )
    faces = [
        # Before the others, whose candidates it must not take.
        replace(poor, row=Row("poor.jpg", face=0, accepted=False, reasons=("blurred",))),
        # A dog, without a threshold for quality.
        replace(known, row=Row("dog.jpg", face=0, reasons=("not_a_face",))),
        known,
        Face(Row("empty.jpg", reasons=("no_face",))),
        Face(Row("broken.jpg", error="broken.jpg: not an image")),
        stranger,
    ]
    matches = gallery.match(faces, fpir=0.01, k=3)
    decisions = ["too poor to say", "too poor to say", "match", "no face", "error", "unknown"]
    assert [match.decision.value for match in matches] == decisions
    assert matches[2].person == "p002"
    assert [match.reasons for match in matches[:4]] == [("blurred",), ("not_a_face",), (), ("no_face",)]
    assert [len(match.candidates) for match in matches] == [0, 0, 3, 0, 0, 3]
    for match, embedding in ((matches[2], known.embedding), (matches[5], stranger.embedding)):
        assert match.cosine == pytest.approx(float((images.templates @ embedding).max()), abs=1e-6)
    assert matches[4].error == "broken.jpg: not an image"
    with ThreadPoolExecutor(4) as pool:
        fresh = Gallery(images)
        for again in pool.map(lambda _: fresh.match(faces, fpir=0.01, k=3), range(8)):
            assert again == matches


def test_rounding_carries_no_cosine_beyond_1():
    images = draw(100, 1)
    matches = Gallery(images).match(faces_of(images.embedding), k=2)
    assert max(match.cosine or 0 for match in matches) == 1
    assert max(cosine for match in matches for _, cosine in match.candidates) == 1


def test_rates_that_are_possible_and_not():
    for fpir in (0, 1, -0.1, math.nan):
        with pytest.raises(Error, match="not above 0 and below 1"):
            Gallery(draw(3, 2)).threshold(fpir)
    for k in (0, -1):
        with pytest.raises(Error, match="give a number from 1"):
            Gallery(draw(3, 2)).match([], k=k)
    with pytest.raises(DataError, match="at least two people"):
        Gallery(draw(1, 3)).threshold(0.1)
    # The rarest have a threshold beyond all scores, but the same image still matches.
    common, rare, rarer = (Gallery(draw(20, 3)).threshold(fpir).cosine for fpir in (0.01, 1e-6, 1e-17))
    assert common < rare < rarer == 1


def test_the_best_images_are_good_and_like_the_others():
    images = draw(2, 4, spread=0.3)
    images.percentile[:] = 100
    images.percentile[0] = 6
    images.embedding[1] = unit(np.random.default_rng(3).normal(size=SIZE))
    best = best_images(images, 2)
    ranks = [("p000", 1), ("p000", 2), ("p001", 1), ("p001", 2)]
    assert [(image.person, image.rank) for image in best] == ranks
    assert {image.path for image in best[:2]} == {"p000/2.jpg", "p000/3.jpg"}
    rest = images.embedding[[4, 5, 6]].astype(np.float64).sum(axis=0)
    own = {image.path: image.own_cosine for image in best_images(images, 4)}
    assert own["p001/3.jpg"] == pytest.approx(float(unit(rest) @ images.embedding[7]), abs=1e-4)


def test_a_gallery_survives_its_file_and_says_what_it_is(tmp_path):
    images = draw(5, 3)
    images.reasons[[2, 7]] = ["blurred", "not_a_face;blurred"]
    Gallery(tmp_path / "g.npz").replace(images)
    again = Gallery(tmp_path / "g.npz").read()
    assert (again.model, again.model_sha256, again.entries) == ("drawn", "a" * 64, images.entries)
    np.testing.assert_array_equal(again.templates, images.templates)
    arrays = np.load(tmp_path / "g.npz", allow_pickle=False)
    assert str(arrays["format"]) == "facerts.gallery/1"
    assert arrays["people"][arrays["person"]].tolist() == images.person.tolist()
    np.testing.assert_array_equal(arrays["templates"], images.templates)
    assert arrays["reasons"].tolist() == [*["", "", "blurred"], *[""] * 4, "not_a_face;blurred", *[""] * 7]
    assert (again.reasons_of(7), again.reasons_of(0)) == (("not_a_face", "blurred"), ())
    with pytest.raises(Error, match="npz"):
        Gallery(tmp_path / "g.bin").replace(images)


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("format", np.array("facerts.gallery/2"), "not a gallery of format"),
        ("person", np.full(6, -1), "'person' has -1"),
        ("person", np.full(6, 2), "'person' has 2"),
        ("person", np.zeros(6, dtype=int), "has no image"),
        ("people", np.array(["a", "a"]), "listed twice"),
        ("embedding", np.zeros((6, SIZE), dtype=np.float32), "unit length"),
        ("quality", np.full(6, np.inf, dtype=np.float32), "'quality' has inf"),
        ("percentile", np.full(6, -1.0), "'percentile' has -1"),
        ("reasons", None, "there is no array 'reasons'"),
        ("reasons", np.array([*[""] * 5, "ugly"]), "reasons of a face are 'ugly'"),
        ("reasons", np.array([*[""] * 5, "blurred;"]), "reasons of a face"),
        ("people", np.array([{}, {}], dtype=object), "cannot be read"),
    ],
)
def test_a_hostile_file_is_refused(tmp_path, name, value, problem):
    Gallery(tmp_path / "g.npz").replace(draw(2, 3))
    arrays = dict(np.load(tmp_path / "g.npz"))
    del arrays[name]
    np.savez(tmp_path / "g.npz", **arrays, **({} if value is None else {name: value}))
    with pytest.raises(DataError, match=f"g.npz.*{problem}"):
        Gallery(tmp_path / "g.npz").read()


def test_no_gallery_takes_more_than_its_file_may_hold(tmp_path):
    for name, content in galleries.HOSTILE.items():
        (tmp_path / f"{name}.npz").write_bytes(content)
    for path, sentence in read_bounded("gallery", sorted(tmp_path.iterdir()), memory=256 << 20).items():
        expected = {
            "many people without images": "a person has no image",
            "embeddings of many numbers": "100,000 numbers, and 4,096 is the limit",
        }.get(path.stem, "images, of .* more than the .* bytes of memory")
        assert re.search(f"^{re.escape(str(path))}: a broken gallery: .*{expected}", sentence), sentence


def test_what_is_written_can_be_read_again_or_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("facerts.galleries.store.MAX_BYTES", 0)
    path = tmp_path / "g.npz"
    images = draw(1, 1).take(np.zeros(300, dtype=int))
    Gallery(path).replace(images)
    assert Gallery(path).summary().images == 300
    before = path.read_bytes()
    long = replace(
        images,
        person=np.full(300, "a" * 200),
        embedding=np.ones((300, 1), np.float32),
        reasons=np.full(300, ""),
    )
    with pytest.raises(Error, match=r"g\.npz: nothing was written.* texts of up to 211 letters"):
        Gallery(path).replace(long)
    assert path.read_bytes() == before


def test_paths_that_other_files_cannot_store_are_escaped(tmp_path):
    odd = replace(draw(2, 1), path=np.array(["\ud800.jpg", "c\0d.jpg"]))
    Gallery(tmp_path / "g.npz").replace(odd)
    assert Gallery(tmp_path / "g.npz").read().path.tolist() == ["\\ud800.jpg", "c\\x00d.jpg"]


def test_a_file_that_is_not_there_is_created_and_one_that_is_added_to(tmp_path, scorer):
    frames = {name: draw_face(seed, 0) for seed, name in ((90, "Ann"), (91, "Bea"))}
    for _ in range(2):
        for name, frame in frames.items():
            Gallery(tmp_path / "new.npz").add(scorer, frame, person=name, min_quality=-math.inf)
    assert Gallery(tmp_path / "new.npz").image_counts() == {"Ann": 1, "Bea": 1}
    (tmp_path / "rows.csv").write_text("path,quality\n")
    with pytest.raises(DataError, match=r"rows\.csv: not an \.npz file.*; facerts gallery build writes a gallery"):
        Gallery(tmp_path / "rows.csv").read()


@pytest.fixture(params=["memory", "file", "database"])
def gallery(request, postgres, tmp_path, scorer, people):
    """A gallery of four people with three images each."""
    if request.param == "memory":
        return Gallery(Gallery.create(tmp_path / "kept.npz", scorer, people).read())
    place = tmp_path / "g.npz" if request.param == "file" else postgres.address(gallery="any")
    return Gallery.create(place, scorer, people, overwrite=True)


def test_people_and_images_come_and_go(gallery, scorer, people, tmp_path):
    names = sorted(path.name for path in people.iterdir())
    assert gallery.image_counts() == dict.fromkeys(names, 3)
    before = gallery.read()
    paths = sorted(str(path) for path in people.rglob("*.jpg"))
    assert sorted(before.path.tolist()) == paths
    expected = scorer.embed([facerts.images.read(paths[0])]).embedding[0]
    np.testing.assert_allclose(before.embedding[before.path.tolist().index(paths[0])], expected, atol=1e-5)

    write_synthetic_faces(tmp_path / "more", identities=1, images=2, seed=9)
    (tmp_path / "more" / "broken.jpg").write_bytes(b"no image")
    more = [str(path) for path in sorted((tmp_path / "more").rglob("*.jpg"))]
    for _ in range(2):  # an image that is enrolled already is enrolled anew
        added = gallery.add(scorer, more, person="new")
        assert (added.people, added.images, len(added.rejected), added.without_image) == (5, 14, 1, ())
    added_entries = {("new", path) for path in more if "broken" not in path}
    assert set(gallery.read().entries) == {*before.entries, *added_entries}
    with pytest.raises(DataError, match="none of the 3 images can be enrolled"):
        gallery.add(scorer, more, person="nobody", min_quality=math.inf)
    found = gallery.search(scorer, more, fpir=0.5, min_quality=-math.inf)
    assert [match.decision.value for match in found] == ["error", "match", "match"]

    for options, problem in (
        ({"people": [names[0], "nobody"]}, "nobody is not in the gallery; nothing was removed"),
        ({"paths": [paths[0], "gone.jpg"]}, "gone.jpg is not in the gallery"),
        ({"findings": [Listed(names[0], "gone.jpg", "")]}, "gone.jpg is not in the gallery"),
        ({"people": [*names, "new"]}, "remove every image"),
    ):
        with pytest.raises(DataError, match=problem):
            gallery.remove(**options)
    last = max(added_entries)
    removed = gallery.remove(names[0], paths=last[1])
    assert (removed.people, removed.images, removed.gone, len(removed.entries)) == (4, 10, (names[0],), 4)
    assert gallery.image_counts() == {**dict.fromkeys(names[1:], 3), "new": 1}
    assert last not in gallery.read().entries


def test_another_models_images_and_faces_are_refused(gallery, scorer, people, tmp_path):
    model = write_description(write_embedder(tmp_path / "other.onnx", seed=7))
    other = facerts.load(model, detector="none")
    for use in (gallery.search, gallery.add):
        with pytest.raises(ModelError, match=r"gallery is of the model model .*cannot be compared"):
            use(other, people)
    (face,) = other.faces(draw_face(1, 0))
    before = gallery.read()
    for ask in (lambda: gallery.search(scorer, face), lambda: gallery.add(scorer, [face], person="Ann")):
        with pytest.raises(ModelError, match="<Face 0 of image 0> is of another model"):
            ask()
    with pytest.raises(ModelError, match="cannot be compared"):
        gallery.merge(replace(before, model_sha256="b" * 64))
    with pytest.raises(DataError, match=r"have 8 numbers, .* have 7; build it again"):
        gallery.merge(replace(before, embedding=before.embedding[:, :-1]))
    with pytest.raises(ModelError, match="cannot be compared"):
        gallery.match(faces_of(before.embedding))
    short = faces_of(before.embedding[:, :-1])
    sha256 = scorer.recognizer.sha256
    with pytest.raises(DataError, match=r"have 8 numbers, .* have 7; build it again"):
        gallery.match([replace(face, row=replace(face.row, model_sha256=sha256)) for face in short])
    assert gallery.read().entries == before.entries
    with pytest.raises(Error, match="exists; add to it, or give overwrite=True"):
        gallery.build(other, people)
    assert gallery.read().entries == before.entries
    # Created again, it is of the other model.
    gallery.build(other, people, overwrite=True)
    assert gallery.summary().model_sha256 == other.recognizer.sha256


def test_images_come_as_a_scorer_takes_them_and_as_its_faces(gallery, scorer):
    frames = [draw_face(90, 0), draw_face(90, 1)]
    png = encode_png(frames[0])

    def add(images, **options):
        """How many images of Ann there are then."""
        gallery.add(scorer, images, person="Ann", min_quality=-math.inf, **options)
        return gallery.image_counts()["Ann"]

    assert [add(frames[:1]), add(frames[1]), add(frames)] == [1, 2, 2]
    # The bytes of a file are not the pixels of a frame, but the same bytes are the same image.
    assert [add([png, *frames]), add(io.BytesIO(png)), add(Image.fromarray(frames[0]))] == [3, 3, 3]
    bgr = np.ascontiguousarray(frames[0][..., ::-1])
    gallery.remove(people=["Ann"])
    assert add(bgr, color="BGR") == 1
    (match,) = gallery.search(scorer, frames[0], min_quality=-math.inf, fpir=0.1)
    assert match.person == "Ann"
    assert match.cosine == pytest.approx(1, abs=1e-5)


def test_faces_of_the_scorer_are_neither_found_nor_embedded_again(gallery, scorer, monkeypatch):
    images = [draw_face(90, 0), draw_face(90, 1), draw_face(91, 0)]
    faces = [*scorer.faces(images)]
    expected = gallery.search(scorer, images, min_quality=-math.inf, fpir=0.1)
    poor = gallery.search(scorer, images, min_quality=math.inf, fpir=0.1)

    monkeypatch.setattr(Scorer, "score_each", Mock(side_effect=AssertionError))
    for given in (faces, tuple(faces), iter(faces)):
        assert gallery.search(scorer, given, min_quality=-math.inf, fpir=0.1) == expected
    assert gallery.search(scorer, faces, min_quality=math.inf, fpir=0.1) == poor
    assert {match.decision for match in poor} == {Decision.TOO_POOR}
    # Faces of images without a path are known by their crops.
    for _ in range(2):
        assert gallery.add(scorer, faces[:2], person="Ann", min_quality=-math.inf).images == 14
    (match,) = gallery.search(scorer, faces[0], min_quality=-math.inf, fpir=0.1)
    assert match.person == "Ann"
    with pytest.raises(DataError, match=r"none of the 2 images can be enrolled, first image .*: noisy"):
        gallery.add(scorer, faces[:2], person="Ann", min_quality=math.inf)


def test_a_wrong_argument_is_an_error_that_says_what_was_expected(scorer):
    gallery = Gallery(replace(draw(3, 2), model_sha256=scorer.recognizer.sha256))
    frame = draw_face(0, 0)
    uses = [
        (gallery.search, 7, "an image must be a path, .*, not int"),
        (gallery.search, {"a": 1}, "an image must be .*, not dict"),
        (gallery.search, scorer.score(frame), r"a PIL image, not Row"),
        (gallery.search, [*scorer.faces(frame), frame], "give images or faces, not both: there is a ndarray"),
        (gallery.add, scorer.faces(frame), "give the person of these images"),
        (gallery.add, frame, "give the person of these images"),
    ]
    for use, given, problem in uses:
        with pytest.raises(Error, match=problem):
            use(scorer, given)
    with pytest.raises(Error, match="fpir must be a number, not str"):
        gallery.search(scorer, frame, fpir="0.01")
    with pytest.raises(Error, match=r"give a scorer first.* not a str"):
        gallery.search("photo.jpg", "photo.jpg")


def test_poor_images_are_kept_out_and_named(scorer, people, tmp_path):
    gallery = Gallery.create(tmp_path / "g.npz", scorer, people)
    qualities = gallery.read().quality
    middle = float(np.median(qualities))
    enrolled = gallery.build(scorer, people, overwrite=True, min_quality=middle)
    assert enrolled.images == int((qualities >= middle).sum()) == 12 - len(enrolled.rejected)
    assert {image.why for image in enrolled.rejected} >= {"below the threshold"}
    assert {*enrolled.without_image, *gallery.image_counts()} == {path.name for path in people.iterdir()}
    with pytest.raises(DataError, match="none of the 12 images can be enrolled"):
        gallery.build(scorer, people, overwrite=True, min_quality=1e9)
    with pytest.raises(DataError, match="one subfolder for each"):
        gallery.build(scorer, next(people.iterdir()), overwrite=True)
    assert gallery.summary().images == enrolled.images


def test_what_is_not_a_face_is_kept_out_unless_all_is_enrolled(scorer, people, tmp_path, monkeypatch):
    first = min(str(path) for path in people.rglob("*.jpg"))

    def with_reasons(self, *arguments, **options):
        everything = options["min_quality"] == -math.inf
        for face in score_each(self, *arguments, **options):
            poor = face.row.path == first
            reasons = ("not_a_face", "blurred") if poor else ("noisy",)
            yield replace(face, row=replace(face.row, reasons=reasons, accepted=everything or None))

    score_each = Scorer.score_each
    monkeypatch.setattr(Scorer, "score_each", with_reasons)
    gallery = Gallery(tmp_path / "g.npz")
    enrolled = gallery.build(scorer, people, overwrite=True)
    (rejected,) = enrolled.rejected
    assert (rejected.path, rejected.why) == (first, "not a face; blurred")
    assert enrolled.reasons == {"noisy": 11}
    enrolled = gallery.add(scorer, people, min_quality=-math.inf)
    assert enrolled.reasons == {"noisy": 11, "not_a_face": 1, "blurred": 1}
    reasons = {image.path: image.reasons for image in gallery.best(3)}
    assert reasons[first] == ("not_a_face", "blurred")


def test_any_person_and_image_becomes_a_folder_and_a_copy(tmp_path):
    image = tmp_path / "\udcff.jpg"
    image.write_bytes(b"image")
    people = ["Ann", "An\0n", "An\ud800n", "..", "", "Ann/Bea", "Ann_Bea", "x" * 300]
    images = [BestImage(person, 1, storable(str(image)), 1.0, None, None, ()) for person in people]
    written = copy_images(images, tmp_path / "best")
    assert len({path.parent for path in written}) == len(people)
    assert {path.parent.parent for path in written} == {tmp_path / "best"}
    assert {(path.name, path.read_bytes()) for path in written} == {(image.name, b"image")}
    assert copy_images(images, tmp_path / "best") == []


@pytest.mark.parametrize(("name", "message"), [("gone.jpg", "no such file"), ("secrets.txt", "not an image")])
def test_a_gallery_makes_no_copies_of_other_files(tmp_path, name, message):
    (tmp_path / "secrets.txt").write_text("secret")
    with pytest.raises(DataError, match=rf"{name}: {message}"):
        copy_images([BestImage("Ann", 1, str(tmp_path / name), 1.0, None, None, ())], tmp_path / "best")
