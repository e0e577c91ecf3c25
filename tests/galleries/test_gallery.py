"""Galleries: templates, searches at a stated error rate, best images, changes, and files that strangers made."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import facerts
from facerts.datasets.synthetic import draw_face, write_synthetic_faces
from facerts.errors import DataError, Error, ModelError
from facerts.galleries import (
    BestImage,
    Decision,
    Enrollments,
    Gallery,
    best_images,
    copy_images,
    read_gallery,
    write_gallery,
)
from facerts.galleries.unmated import search_threshold, tail_threshold
from facerts.images import encode_png
from facerts.scoring import Row, ScoredFace, Scorer
from facerts.scoring.prepare import storable
from tests.foreign import write_description, write_embedder
from tests.hostile import galleries
from tests.hostile.bounded import read_bounded

SIZE = 64


def draw(people: int, images: int, *, seed: int = 0, spread: float = 0.7) -> Enrollments:
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
    return Enrollments(names, paths, embedding, percentile / 100, percentile, reasons)


def unit(vectors: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(vectors / np.linalg.norm(vectors, axis=-1, keepdims=True))


def gallery_of(images: Enrollments) -> Gallery:
    return Gallery.from_enrollments("drawn", "a" * 64, images)


def faces_of(embedding: NDArray[np.float32]) -> list[ScoredFace]:
    return [
        ScoredFace(Row(f"{row}.jpg", face=0, quality=0.5), None, vector)
        for row, vector in enumerate(embedding)
    ]


@pytest.fixture(scope="module")
def scorer(model: Path) -> Scorer:
    return facerts.load(model, detector="none")


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("drawn") / "people"
    write_synthetic_faces(folder, identities=4, images=3, seed=5)
    return folder


def test_a_template_is_the_mean_of_a_persons_embeddings_weighted_by_quality() -> None:
    images = draw(3, 4)
    images.percentile[:4] = [3, 15, 30, 90]
    weights = np.array([0.1, 0.5, 1, 1])[:, None]
    expected = unit((images.embedding[:4].astype(np.float64) * weights).sum(axis=0))
    np.testing.assert_allclose(gallery_of(images).templates[0], expected, atol=1e-6)
    unknown = replace(images, percentile=np.full(12, np.nan, dtype=np.float32))
    plain = unit(images.embedding[4:8].astype(np.float64).sum(axis=0))
    np.testing.assert_allclose(gallery_of(unknown).templates[1], plain, atol=1e-6)


def test_as_many_strangers_are_found_as_was_asked_for() -> None:
    gallery = gallery_of(draw(200, 4))
    strangers = draw(1500, 1, seed=1).embedding
    for fpir, minimum, maximum in ((0.1, 0.06, 0.14), (0.02, 0.007, 0.035)):
        matches = gallery.match(faces_of(strangers), fpir=fpir)
        assert minimum < np.mean([match.decision is Decision.MATCH for match in matches]) < maximum


def test_the_tail_of_strangers_scores_is_continued_beyond_the_highest() -> None:
    # An exponential tail: the threshold for a rate is the distribution's own quantile, −log(rate).
    scores = np.random.default_rng(0).exponential(size=20_000)
    for rate in (0.5, 0.1, 0.01, 1e-3, 1e-6):
        assert tail_threshold(scores, rate) == pytest.approx(-math.log(rate), rel=0.06)


def test_a_threshold_allows_for_one_person_more_and_its_interval_is_over_people() -> None:
    scores = np.random.default_rng(1).exponential(size=4000)
    person = np.repeat(np.arange(400), 10)
    two = search_threshold(scores, person, 2, 0.02)
    # FPIR 0.02 among two people is that of two searches among one.
    assert two.cosine == pytest.approx(-math.log(1 - math.sqrt(0.98)), rel=0.1)
    assert two.ci95[0] < two.cosine < two.ci95[1]
    same = np.repeat(np.random.default_rng(2).exponential(size=400), 10)
    wide = search_threshold(same, person, 400, 0.02)
    assert wide.ci95[1] - wide.ci95[0] > 1.5 * (two.ci95[1] - two.ci95[0])


def test_a_threshold_continues_the_highest_scores_of_people_among_the_others() -> None:
    gallery = gallery_of(draw(6, 5, spread=1.5))
    cosines = gallery.enrollments.embedding.astype(np.float64) @ gallery.templates.T.astype(np.float64)
    cosines[np.arange(30), np.arange(30) // 5] = -1
    highest = np.sort(cosines.max(axis=1))[::-1]
    for fpir in (0.2, 0.1):
        rate = 1 - (1 - fpir) ** (5 / 6)  # among five others instead of six
        excess = (highest[:10] - highest[10]).mean()
        expected = highest[10] + excess * np.log(10 / 30 / rate)
        assert gallery.threshold(fpir).cosine == pytest.approx(float(expected), abs=1e-6)


def test_a_search_says_match_unknown_or_too_poor() -> None:
    images = draw(50, 3)
    gallery = gallery_of(images)
    known, stranger, poor = faces_of(
        np.vstack([images.embedding[6], draw(1, 1, seed=9).embedding[0], images.embedding[9]])
    )
    faces = [
        # Before the others, whose candidates it must not take.
        replace(poor, row=Row("poor.jpg", face=0, quality=-3.0, accepted=False, reasons=("blurred",))),
        # A dog, without a threshold for quality.
        replace(known, row=Row("dog.jpg", face=0, reasons=("not_a_face",))),
        known,
        ScoredFace(Row("empty.jpg", reasons=("no_face",))),
        ScoredFace(Row("broken.jpg", error="broken.jpg: not an image")),
        stranger,
    ]
    matches = gallery.match(faces, fpir=0.01, k=3)
    decisions = ["too poor to say", "too poor to say", "match", "no face", "error", "unknown"]
    assert [match.decision.value for match in matches] == decisions
    assert matches[2].person == "p002"
    assert [match.reasons for match in matches[:4]] == [("blurred",), ("not_a_face",), (), ("no_face",)]
    assert [len(match.candidates) for match in matches] == [0, 0, 3, 0, 0, 3]
    for match, embedding in ((matches[2], known.embedding), (matches[5], stranger.embedding)):
        assert match.cosine == pytest.approx(float((gallery.templates @ embedding).max()), abs=1e-6)
    assert matches[4].error == "broken.jpg: not an image"
    with ThreadPoolExecutor(4) as pool:
        fresh = gallery_of(images)
        for again in pool.map(lambda _: fresh.match(faces, fpir=0.01, k=3), range(8)):
            assert again == matches


def test_rates_that_are_possible_and_not() -> None:
    for fpir in (0, 1, -0.1, math.nan):
        with pytest.raises(Error, match="not above 0 and below 1"):
            gallery_of(draw(3, 2)).threshold(fpir)
    with pytest.raises(DataError, match="at least two people"):
        gallery_of(draw(1, 3)).threshold(0.1)
    # The rarest have a threshold beyond all scores.
    common, rare, rarer = (gallery_of(draw(20, 3)).threshold(fpir).cosine for fpir in (0.01, 1e-6, 1e-17))
    assert common < rare < rarer < math.inf


def test_the_best_images_are_good_and_like_the_others() -> None:
    images = draw(2, 4, spread=0.3)
    images.percentile[:] = 100
    images.percentile[0] = 6
    images.embedding[1] = unit(np.random.default_rng(3).normal(size=SIZE))
    best = best_images(gallery_of(images), 2)
    ranks = [("p000", 1), ("p000", 2), ("p001", 1), ("p001", 2)]
    assert [(image.person, image.rank) for image in best] == ranks
    assert {image.path for image in best[:2]} == {"p000/2.jpg", "p000/3.jpg"}
    rest = images.embedding[[4, 5, 6]].astype(np.float64).sum(axis=0)
    own = {image.path: image.own_cosine for image in best_images(gallery_of(images), 4)}
    assert own["p001/3.jpg"] == pytest.approx(float(unit(rest) @ images.embedding[7]), abs=1e-4)


def test_a_gallery_survives_its_file_and_says_what_it_is(tmp_path: Path) -> None:
    images = draw(5, 3)
    images.reasons[[2, 7]] = ["blurred", "not_a_face;blurred"]
    gallery = gallery_of(images)
    write_gallery(tmp_path / "g.npz", gallery)
    again = read_gallery(tmp_path / "g.npz")
    assert (again.model, again.model_sha256, again.entries) == ("drawn", "a" * 64, gallery.entries)
    np.testing.assert_array_equal(again.templates, gallery.templates)
    arrays = np.load(tmp_path / "g.npz", allow_pickle=False)
    assert str(arrays["format"]) == "facerts.gallery/1"
    assert arrays["people"][arrays["person"]].tolist() == gallery.enrollments.person.tolist()
    np.testing.assert_array_equal(arrays["templates"], gallery.templates)
    assert arrays["reasons"].tolist() == [*["", "", "blurred"], *[""] * 4, "not_a_face;blurred", *[""] * 7]
    assert again.enrollments.reasons_of(7) == ("not_a_face", "blurred")
    assert again.enrollments.reasons_of(0) == ()
    with pytest.raises(Error, match="npz"):
        write_gallery(tmp_path / "g.bin", gallery)


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("format", np.array("facerts.gallery/2"), "not a gallery of format"),
        ("person", np.full(6, -1), "'person' has -1"),
        ("person", np.full(6, 2), "'person' has 2"),
        ("person", np.zeros(6, dtype=int), "has no image"),
        ("people", np.array(["a", "a"]), "listed twice"),
        ("embedding", np.zeros((6, SIZE), dtype=np.float32), "unit length"),
        ("embedding", np.full((6, SIZE), np.nan, dtype=np.float32), "'embedding' has NaN"),
        ("embedding", np.full((6, SIZE), 1e300), r"'embedding' has 1e\+300"),
        (
            "templates",
            np.ones((2, 3), dtype=np.float32),
            r"'templates' has the shape \(2, 3\), not \(2, 64\)",
        ),
        ("quality", np.zeros(5, dtype=np.float32), r"'quality' has the shape \(5,\), not \(6,\)"),
        ("quality", np.full(6, np.inf, dtype=np.float32), "'quality' has inf"),
        ("percentile", np.full(6, 1e300), r"'percentile' has 1e\+300"),
        ("percentile", np.full(6, -1.0), "'percentile' has -1"),
        ("path", np.array("x"), "'path' is 0-dimensional"),
        ("reasons", None, "there is no array 'reasons'"),
        ("reasons", np.array([*[""] * 5, "ugly"]), "reasons of a face are 'ugly'"),
        ("reasons", np.array([*[""] * 5, "blurred;cut_off"]), "reasons of a face"),
        ("reasons", np.array([*[""] * 5, "blurred;"]), "reasons of a face"),
        ("model", None, "there is no array 'model'"),
        ("people", np.array([{}, {}], dtype=object), "cannot be read"),
    ],
)
def test_a_hostile_file_is_refused(tmp_path: Path, name: str, value: Any, problem: str) -> None:
    write_gallery(tmp_path / "g.npz", gallery_of(draw(2, 3)))
    arrays = dict(np.load(tmp_path / "g.npz"))
    del arrays[name]
    np.savez(tmp_path / "g.npz", **arrays, **({} if value is None else {name: value}))
    with pytest.raises(DataError, match=f"g.npz.*{problem}"):
        read_gallery(tmp_path / "g.npz")


def test_no_gallery_takes_more_than_its_file_may_hold(tmp_path: Path) -> None:
    for name, content in galleries.HOSTILE.items():
        (tmp_path / f"{name}.npz").write_bytes(content)
    for path, sentence in read_bounded("gallery", sorted(tmp_path.iterdir()), memory=256 << 20).items():
        expected = {
            "many people without images": "a person has no image",
            "embeddings of many numbers": "100,000 numbers, and 4,096 is the limit",
        }.get(path.stem, "images, of .* more than the .* bytes of memory")
        assert re.search(f"^{re.escape(str(path))}: a broken gallery: .*{expected}", sentence), sentence


def test_what_is_written_can_be_read_again_or_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("facerts.galleries.gallery_file.MAX_BYTES", 0)
    path = tmp_path / "g.npz"
    images = draw(1, 1).take(np.zeros(300, dtype=int))
    write_gallery(path, gallery_of(images))
    assert len(read_gallery(path).enrollments) == 300
    before = path.read_bytes()
    long = replace(
        images,
        person=np.full(300, "a" * 200),
        embedding=np.ones((300, 1), np.float32),
        reasons=np.full(300, ""),
    )
    with pytest.raises(Error, match=r"g\.npz: nothing was written.* texts of up to 211 letters"):
        write_gallery(path, gallery_of(long))
    assert path.read_bytes() == before


def test_paths_that_other_files_cannot_store_are_escaped(tmp_path: Path) -> None:
    odd = replace(draw(2, 1), path=np.array(["\ud800.jpg", "c\0d.jpg"]))
    write_gallery(tmp_path / "g.npz", gallery_of(odd))
    assert read_gallery(tmp_path / "g.npz").enrollments.path.tolist() == ["\\ud800.jpg", "c\\x00d.jpg"]


def test_people_and_images_come_and_go(scorer: Scorer, people: Path, tmp_path: Path) -> None:
    gallery = Gallery.build(scorer, people)
    names = sorted(path.name for path in people.iterdir())
    assert gallery.people.tolist() == names
    paths = sorted(str(path) for path in people.rglob("*.jpg"))
    assert sorted(path for _, path in gallery.entries) == paths
    crop = facerts.images.read(paths[0])
    expected = scorer.embed([crop]).embedding[0]
    row = gallery.enrollments.path.tolist().index(paths[0])
    np.testing.assert_allclose(gallery.enrollments.embedding[row], expected, atol=1e-5)

    write_synthetic_faces(tmp_path / "more", identities=1, images=2, seed=9)
    more = [str(path) for path in sorted((tmp_path / "more").rglob("*.jpg"))]
    added = gallery.add(scorer, more, person="new")
    assert added.entries == sorted([*gallery.entries, *(("new", path) for path in more)])
    assert added.add(scorer, more, person="new").entries == added.entries
    assert len(gallery.entries) == 12

    left = added.remove(people=[names[0]], images=[("new", more[1])])
    assert left.people.tolist() == sorted([*names[1:], "new"])
    assert ("new", more[0]) in left.entries
    assert ("new", more[1]) not in left.entries
    with pytest.raises(DataError, match="nobody is not in the gallery"):
        added.remove(people=["nobody"])
    with pytest.raises(DataError, match="every image"):
        gallery.remove(people=names)


def test_poor_images_are_kept_out_and_named(scorer: Scorer, people: Path) -> None:
    qualities = Gallery.build(scorer, people).enrollments.quality
    middle = float(np.median(qualities))
    gallery = Gallery.build(scorer, people, min_quality=middle)
    assert len(gallery.entries) == int((qualities >= middle).sum())
    assert all("below_threshold" in image.reasons for image in gallery.rejected)
    assert {image.why for image in gallery.rejected} >= {"below the threshold"}
    assert len(gallery.entries) + len(gallery.rejected) == 12
    with pytest.raises(DataError, match="none of the 12 images can be enrolled"):
        Gallery.build(scorer, people, min_quality=1e9)
    with pytest.raises(DataError, match="one subfolder of images for each person"):
        Gallery.build(scorer, next(people.iterdir()))


def test_what_is_not_a_face_is_kept_out_unless_all_is_enrolled(
    scorer: Scorer, people: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = min(str(path) for path in people.rglob("*.jpg"))

    def with_reasons(self: Scorer, *arguments: Any, **options: Any) -> Iterator[ScoredFace]:
        everything = options["min_quality"] == -math.inf
        for face in score_each(self, *arguments, **options):
            poor = face.row.path == first
            reasons = ("not_a_face", "blurred") if poor else ("noisy",)
            yield replace(face, row=replace(face.row, reasons=reasons, accepted=everything or None))

    score_each = Scorer.score_each
    monkeypatch.setattr(Scorer, "score_each", with_reasons)
    gallery = Gallery.build(scorer, people)
    (rejected,) = gallery.rejected
    assert (rejected.path, rejected.why) == (first, "not a face; blurred")
    assert rejected.reasons == ("not_a_face", "blurred")
    assert set(gallery.enrollments.reasons.tolist()) == {"noisy"}
    everything = Gallery.build(scorer, people, min_quality=-math.inf)
    assert len(everything.entries) == 12
    row = everything.enrollments.path.tolist().index(first)
    assert everything.enrollments.reasons[row] == "not_a_face;blurred"
    reasons = {image.path: image.reasons for image in best_images(everything, 3)}
    assert reasons[first] == ("not_a_face", "blurred")


def test_another_models_gallery_is_refused(scorer: Scorer, people: Path, tmp_path: Path) -> None:
    model = write_embedder(tmp_path / "other.onnx", seed=7)
    write_description(model)
    gallery = Gallery.build(facerts.load(model, detector="none"), people)
    for use in (gallery.search, gallery.add):
        with pytest.raises(ModelError, match="cannot be compared"):
            use(scorer, people)
    own = Gallery.build(scorer, people)
    short = replace(own.enrollments, embedding=own.enrollments.embedding[:, :-1])
    with pytest.raises(DataError, match=r"have 7 numbers, .* have 8; build it again"):
        replace(own, enrollments=short).search(scorer, people)


def test_any_name_of_a_person_becomes_a_folder_of_the_copies(tmp_path: Path) -> None:
    (tmp_path / "1.jpg").write_bytes(b"image")
    people = ["Ann", "An\0n", "An\ud800n", "..", "", "Ann/Bea", "Ann_Bea", "x" * 300]
    images = [BestImage(person, 1, str(tmp_path / "1.jpg"), 1.0, None, None, ()) for person in people]
    written = copy_images(images, tmp_path / "best")
    assert len({path.parent for path in written}) == len(people)
    assert {path.parent.parent for path in written} == {tmp_path / "best"}
    assert copy_images(images, tmp_path / "best") == []


def test_copies_are_found_whatever_the_names_of_images(tmp_path: Path) -> None:
    image = tmp_path / "\udcff.jpg"
    image.write_bytes(b"image")
    (copied,) = copy_images(
        [BestImage("Ann", 1, storable(str(image)), 1.0, None, None, ())], tmp_path / "best"
    )
    assert (copied.name, copied.read_bytes()) == (image.name, b"image")


def test_frames_are_added_under_names_of_their_content(scorer: Scorer, people: Path) -> None:
    gallery = Gallery.build(scorer, people, min_quality=-math.inf)
    frames = [draw_face(90, 0), draw_face(90, 1)]
    more = gallery.add(scorer, frames[:1], person="Ann", min_quality=-math.inf)
    more = more.add(scorer, frames[1], person="Ann", min_quality=-math.inf)
    assert len(more.entries) == len(gallery.entries) + 2
    again = more.add(scorer, [encode_png(frames[0]), *frames], person="Ann", min_quality=-math.inf)
    # The bytes of a file are not the pixels of a frame, but the same frames are the same images.
    assert len(again.entries) == len(gallery.entries) + 3
    files = [io.BytesIO(encode_png(frame)) for frame in frames]
    assert (
        len(gallery.add(scorer, files, person="Ann", min_quality=-math.inf).entries)
        == len(gallery.entries) + 2
    )
    assert (
        len(
            {
                path
                for _, path in gallery.add(
                    scorer,
                    [io.BytesIO(encode_png(frame)) for frame in frames],
                    person="Ann",
                    min_quality=-math.inf,
                ).entries
            }
        )
        == len(gallery.entries) + 2
    )
    bgr = np.ascontiguousarray(frames[0][..., ::-1])
    turned = gallery.add(scorer, bgr, person="Ann", min_quality=-math.inf, color="BGR")
    of_ann = more.enrollments.embedding[[entry[0] == "Ann" for entry in more.entries]]
    of_turned = turned.enrollments.embedding[[entry[0] == "Ann" for entry in turned.entries]]
    assert float((of_ann @ of_turned[0]).max()) == pytest.approx(1, abs=1e-5)
    (match,) = more.search(scorer, bgr, color="BGR", min_quality=-math.inf, fpir=0.1)
    assert match.person == "Ann"
