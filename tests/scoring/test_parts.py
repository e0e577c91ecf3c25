"""A quality and a recognizer side by side: which of them a command runs, how often, and what each is asked for."""

import multiprocessing
import pickle
from collections import Counter

import numpy as np
import pytest

import facerts
from facerts.datasets import open_source
from facerts.datasets.synthetic import draw_face, write_synthetic_faces
from facerts.embedding import FaceOutputs
from facerts.errors import Error
from facerts.images import encode_png
from facerts.scoring import Scorer
from facerts.scoring.prepare import PreparedImage
from facerts.serving import Settings
from tests.color_people import ColorEmbedder
from tests.command import run
from tests.detectors import Finds, face_at
from tests.serving.conftest import post, running

QUALITY, RECOGNIZER = "facerts-quality", "facerts-small"
CROPS = np.stack([draw_face(person, 0) for person in range(3)])
FILES = [encode_png(crop) for crop in CROPS]


def test_a_command_runs_the_parts_that_it_needs_once_for_each_face(passed, tmp_path, capsys):
    people, gallery = tmp_path / "people", tmp_path / "g.npz"
    write_synthetic_faces(people, identities=2, images=3)
    first, second, *_ = sorted(people.rglob("*.jpg"))
    both, own = {QUALITY: 1, RECOGNIZER: 1}, ("--set", "min_quality=-9")
    for crops, each, arguments in [
        (6, {QUALITY: 1}, ("score", people)),
        (6, {RECOGNIZER: 1}, ("score", people, "--model", RECOGNIZER)),
        (6, {QUALITY: 1}, ("score", people, "--model", QUALITY, "--out", tmp_path / "rows.csv")),
        (2, both, ("verify", first, second)),
        (2, {RECOGNIZER: 1}, ("verify", first, second, "--model", RECOGNIZER)),
        (2, {RECOGNIZER: 1}, ("verify", first, second, "--set", "quality=own")),
        (6, both, ("embed", people, "--out", tmp_path / "faces.npz")),
        (6, both, ("gallery", "build", people, "--out", gallery, *own)),
        (1, both, ("gallery", "add", gallery, first, "--person", "Anna", *own)),
        (6, both, ("gallery", "search", gallery, people, *own)),
        (6, both, ("people", "find", people, "--out", tmp_path / "found", *own)),
        (0, both, ("people", "find", people, "--out", tmp_path / "found", *own)),
    ]:
        passed.clear()
        status = run(*arguments)
        assert status != 2, capsys.readouterr().err
        assert +passed == Counter({name: count * crops for name, count in each.items() if crops}), arguments


def test_a_video_and_a_request_run_each_part_once_for_each_face(passed, tmp_path):
    scorer = facerts.load()
    scorer.detector = Finds(face_at(0, 0))
    assert [track.faces for track in scorer.video([CROPS[0]] * 5, min_quality=-9)] == [5]
    assert passed == {QUALITY: 5, RECOGNIZER: 5}
    scorer = facerts.load(detector="none")
    write_synthetic_faces(tmp_path / "people", identities=2, images=2)
    facerts.Gallery.create(tmp_path / "g.npz", scorer, open_source(tmp_path / "people"), min_quality=-9)
    with running(scorer, Settings(gallery=tmp_path / "g.npz")) as client:
        for to, images, each, options in [
            ("score", 3, {QUALITY: 1}, {}),
            ("score", 3, {QUALITY: 1, RECOGNIZER: 1}, {"embeddings": True}),
            ("verify", 2, {QUALITY: 1, RECOGNIZER: 1}, {}),
            ("search", 1, {QUALITY: 1, RECOGNIZER: 1}, {}),
        ]:
            passed.clear()
            assert post(client, *FILES[:images], to=to, **options).is_success, to
            assert +passed == Counter({name: count * images for name, count in each.items()}), to


def test_an_embedding_is_computed_when_it_is_read_or_in_a_batch(passed):
    scorer = facerts.load(detector="none")
    faces = scorer.faces(FILES)
    assert passed == {QUALITY: 3}
    expected = facerts.Recognizer(RECOGNIZER)(CROPS)
    passed.clear()
    np.testing.assert_allclose(faces[1].embedding, expected[1], atol=1e-6)
    assert faces[1].embedding is faces[1].embedding
    assert passed == {RECOGNIZER: 1}
    assert faces[0].similarity(faces[2]) == pytest.approx(float(expected[0] @ expected[2]), abs=1e-6)
    assert passed == {RECOGNIZER: 3}
    passed.clear()
    assert all(face.vector is not None for face in scorer.faces(FILES, embed=True))
    assert passed == {QUALITY: 3, RECOGNIZER: 3}
    other = facerts.load(recognizer="facerts-small-noteacher", detector="none").faces(FILES[0])[0]
    with pytest.raises(facerts.Error, match="different recognizers"):
        faces[0].similarity(other)
    with pytest.raises(facerts.Error, match=r"give a face, as Scorer\.faces returns them, not a str"):
        faces[0].similarity("b.jpg")
    with pytest.raises(facerts.Error, match=r"no recognizer.*recognizer=NAME"):
        _ = Scorer(facerts.Quality()).faces(FILES[0])[0].embedding


def test_an_embedder_without_a_file_runs_once():
    embedder = ColorEmbedder(sha256="")
    outputs = Scorer.of(embedder).embed(CROPS)
    assert outputs.quality is not None
    assert embedder.runs == 1


def test_faces_are_taken_in_place_of_images(passed):
    scorer = facerts.load(detector="none")
    first, second, _ = scorer.faces(FILES)
    passed.clear()
    by_face, by_crop = (scorer.verify(*pair, min_quality=-9) for pair in ((first, second), FILES[:2]))
    assert by_face.similarity == pytest.approx(by_crop.similarity)
    assert passed == {QUALITY: 2, RECOGNIZER: 4}
    assert by_face.decision == by_crop.decision
    assert scorer.verify(first, FILES[0], min_quality=-9).decision == "same"
    assert scorer.verify(first, second, min_quality=9).decision == "inconclusive"
    other = facerts.load(recognizer="facerts-small-noteacher", detector="none")
    with pytest.raises(facerts.Error, match="of another model"):
        other.verify(first, FILES[1])
    assert facerts.annotate(CROPS[0], [first]).shape[1] == 448


def test_the_quality_decides_and_says_in_a_word_what_it_means():
    scorer, quality = facerts.load(detector="none"), facerts.Quality()
    usable, good = quality.threshold(0.95), quality.threshold(0.8)
    rows = scorer.score(CROPS)
    for row in rows:
        assert row.accepted == (row.quality >= usable and "not_a_face" not in row.reasons)
    decide = scorer.row_builder(scorer.min_quality())
    values = np.array([usable - 1e-4, usable + 1e-4, good - 1e-4, good + 1e-4, good + 1e-4], np.float32)
    prepared = PreparedImage("x", [CROPS[0]] * 5, [None] * 5, [(), (), (), (), ("not_a_face",)])
    faces = decide.rows(prepared, FaceOutputs(np.empty((5, 0), np.float32), quality=values))
    assert [face.verdict for face in faces] == ["poor", "usable", "usable", "good", "not a face"]
    assert {row.accepted for row in scorer.score(CROPS, keep="none")} == {None}
    assert {row.accepted for row in scorer.score(CROPS, keep=1.0)} <= {True, False}


def faces_of(work):
    """In another process."""
    scorer, face = work
    again = scorer.faces(CROPS)
    return [face.quality for face in again], face.similarity(again[0])


def test_a_scorer_and_a_face_can_be_sent_to_another_process():
    scorer = facerts.load()
    faces = scorer.faces(CROPS)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        (found,) = pool.map(faces_of, [(scorer, faces[0])])
    assert found[0] == [face.quality for face in faces]
    assert found[1] == pytest.approx(1)
    own = facerts.load(RECOGNIZER)
    assert pickle.loads(pickle.dumps(own)).model().models[0].name == RECOGNIZER
    assert len(pickle.loads(pickle.dumps(own)).model().models) == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        *(({name: 5}, f"{name} must be a name or a path, not 5") for name in ("model", "quality", "recognizer")),
        ({"detector": b"x"}, "detector must be a name or a path, not bytes"),
        ({"providers": 3}, "providers must be a list of names, not 3"),
        ({"det_threshold": "x"}, "det_threshold must be a number, not str"),
        ({"min_face_size": "x"}, "min_face_size must be a number, not str"),
        *(({"threads": value}, f"threads must be a whole number from 1 on, not {value}") for value in (0, -1, 2.5)),
        ({"batch_size": "4"}, "batch_size must be a whole number from 1 on, not str"),
    ],
)
def test_arguments_of_another_kind_are_named(arguments, sentence):
    with pytest.raises(Error, match=f"^{sentence}$"):
        facerts.load(**arguments)


def test_arguments_of_a_decision_of_another_kind_are_named():
    scorer = facerts.load(detector="none")
    for name in ("min_quality", "keep"):
        with pytest.raises(Error, match=f"^{name} must be a number, not list$"):
            scorer.score(CROPS, **{name: [1]})
    for name in ("fmr", "threshold"):
        with pytest.raises(Error, match=f"^{name} must be a number, not str$"):
            scorer.verify(*CROPS[:2], **{name: "0.1"})
