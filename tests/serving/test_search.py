"""``/v1/search``: what the gallery says of each face, over HTTP."""

from dataclasses import replace

import numpy as np
import pytest

from facerts.errors import DataError, ModelError
from facerts.galleries import Gallery
from facerts.images import encode_png
from facerts.scoring import Scorer
from facerts.serving import Settings, build
from tests.postgres_server import postgres_server
from tests.serving.conftest import NAMES, bright_squares, crop, photo, post, problem, refused, running, variant


@pytest.fixture(scope="module")
def client(searcher, gallery_file):
    with running(searcher, Settings(gallery=gallery_file, fpir=0.2)) as client:
        yield client


def search(client, *images, **options):
    return post(client, *images, to="search", **options)


def test_candidates_and_decisions_are_those_of_the_gallery(client, searcher, gallery_file, tmp_path):
    probes = [encode_png(variant(person, 4)) for person in range(10)]
    for number, probe in enumerate(probes):
        (tmp_path / f"{number}.png").write_bytes(probe)
    gallery = Gallery(gallery_file)
    for fpir in (0.3, 0.2):
        answer = search(client, *probes, fpir=fpir, k=3).json()
        assert answer["fpir"] == fpir
        assert answer["threshold"] == gallery.threshold(fpir).cosine
        matches = gallery.search(searcher, tmp_path, fpir=fpir, k=3)
        for image, match in zip(answer["images"], matches, strict=True):
            (face,) = image["faces"]
            assert face["decision"] == match.decision.value
            assert [candidate["person"] for candidate in face["candidates"]] == [name for name, _ in match.candidates]
            cosines = [candidate["cosine"] for candidate in face["candidates"]]
            assert cosines == pytest.approx([cosine for _, cosine in match.candidates], abs=1e-5)
        assert {match.decision.value for match in matches} == {"match", "unknown"}
    assert len(search(client, probes[0]).json()["images"][0]["faces"][0]["candidates"]) == 1


def test_an_answer_has_all_that_scores_have(searcher, gallery_file):
    with running(
        Scorer(searcher.quality, searcher.recognizer, bright_squares()),
        Settings(gallery=gallery_file, max_faces=2),
    ) as client:
        images = b"no image", encode_png(photo([])), encode_png(photo([150, 0, 200, 250]))
        options = {"embeddings": True, "min_quality": 0.5, "fpir": 0.9}
        answer = search(client, *images, **options).json()
        del options["fpir"]
        scores = post(client, *images, **options).json()
        faces = answer["images"][2]["faces"]
        assert [face["decision"] for face in faces] == ["too poor to say", "match"]
        assert [face["accepted"] for face in faces] == [False, True]
        assert answer["images"][0]["error"].startswith("not ")
        assert answer["images"][1]["faces"] == []
        for face in faces:
            assert set(face) - set(scores["images"][2]["faces"][0]) == {"decision", "candidates"}
            del face["decision"], face["candidates"]
        del answer["fpir"], answer["threshold"]
        assert answer == scores
        assert len(search(client, images[2], largest=True).json()["images"][0]["faces"]) == 1


def test_too_poor_is_below_the_threshold_of_the_request_the_service_or_the_model(client, searcher, gallery_file):
    def outcome(client, level, **options):
        answer = search(client, crop(level), **options).json()
        (face,) = answer["images"][0]["faces"]
        return answer["min_quality"], face["decision"], len(face["candidates"])

    assert outcome(client, 15) == (-0.85, "too poor to say", 0)
    assert outcome(client, 40)[0] == -0.85
    assert outcome(client, 40)[2] == 1
    assert outcome(client, 40, keep=0.95) == (-0.5, "too poor to say", 0)
    assert outcome(client, 15, min_quality=-1)[2] == 1
    with running(searcher, Settings(gallery=gallery_file, keep=0.95)) as strict:
        assert outcome(strict, 40) == (-0.5, "too poor to say", 0)
    with running(searcher, Settings(gallery=gallery_file, min_quality=-1)) as lax:
        assert outcome(lax, 15)[2] == 1


def test_the_model_s_page_tells_of_the_gallery_and_nothing_tells_names(client, searcher, gallery_file):
    body = client.get("/v1/model").json()["gallery"]
    assert body.pop("threshold") == Gallery(gallery_file).threshold(0.2).cosine
    assert body == {"people": 6, "images": 18, "fpir": 0.2, "min_quality": -0.85}
    for path in ("/", "/docs", "/openapi.json", "/v1/model", "/metrics"):
        assert not [name for name in NAMES if name in client.get(path).text]
    with running(searcher, Settings(gallery=gallery_file)) as other:
        threshold = other.get("/v1/model").json()["gallery"]["threshold"]
        assert threshold == Gallery(gallery_file).threshold(0.01).cosine
        assert search(other, crop(200)).json()["threshold"] == threshold


def test_without_a_gallery(searcher):
    with running(searcher, Settings()) as client:
        assert client.get("/v1/model").json()["gallery"] is None
        refused(search(client, crop(200)), (422, "invalid"), "no gallery to search in; start it with --gallery")


def test_a_gallery_that_cannot_be_searched_is_refused_at_the_start(searcher, scorer, gallery_file, tmp_path):
    images = Gallery(gallery_file).read()
    wide = np.eye(9, dtype=np.float32)[np.arange(len(images)) % 9]
    Gallery(tmp_path / "one.npz").replace(images.take(images.person == NAMES[0]))
    Gallery(tmp_path / "wide.npz").replace(replace(images, embedding=wide))
    (tmp_path / "text.npz").write_text("no gallery")
    for model, path, error, message in (
        (scorer, gallery_file, ModelError, "of the model searcher .*embeddings of bright .*model=NAME"),
        (searcher, tmp_path / "gone.npz", DataError, "gone"),
        (searcher, tmp_path / "text.npz", DataError, r"text\.npz"),
        (searcher, tmp_path / "one.npz", DataError, "at least two people"),
        (searcher, tmp_path / "wide.npz", DataError, "have 9 numbers, and those of its model have 8"),
    ):
        with pytest.raises(error, match=message):
            build(model, Settings(gallery=path))


def test_impossible_options_are_refused(client):
    for options in (*({"fpir": fpir} for fpir in (0, -0.1, 1, 1e-20, "nan")), {"k": 0}, {"k": 11}):
        assert problem(search(client, crop(200), **options)) == (422, "invalid"), options


def test_a_gallery_in_a_database_is_searched_as_it_is_now(searcher, gallery_file, caplog):
    with postgres_server() as server:
        server.execute("CREATE EXTENSION vector")
        address = server.address(gallery="people", password="s3cr3t")
        known, gallery = Gallery(gallery_file), Gallery(address)
        images = known.read()
        gallery.replace(images)
        probe = encode_png(variant(0, 4))
        with running(searcher, Settings(gallery=address, fpir=0.2)) as client:
            (face,) = search(client, probe).json()["images"][0]["faces"]
            (match,) = known.search(searcher, probe, fpir=0.2)
            assert face["decision"] == match.decision.value == "match"
            assert face["candidates"][0]["person"] == match.person
            assert client.get("/v1/model").json()["gallery"]["people"] == len(images.people)
            gallery.remove(people=[str(match.person)])
            (face,) = search(client, probe).json()["images"][0]["faces"]
            assert face["candidates"][0]["person"] != match.person
            assert client.get("/v1/model").json()["gallery"]["people"] == len(images.people) - 1
            # Neither another model's embeddings nor where the database is reach a client.
            gallery.replace(replace(images, model_sha256="b" * 64))
            assert problem(search(client, probe)) == (503, "busy")
            server.stop()
            for answer in (search(client, probe), client.get("/v1/model")):
                assert problem(answer) == (503, "busy")
                assert "postgres" not in answer.text
            server.start()
            gallery.replace(images)
            assert search(client, probe).json()["images"][0]["faces"][0]["decision"] == "match"
    assert "cannot be reached" in caplog.text
    assert "s3cr3t" not in caplog.text


def test_searches_are_counted(searcher, gallery_file):
    with running(searcher, Settings(gallery=gallery_file, fpir=0.2, min_quality=-0.5)) as client:
        known, stranger = encode_png(variant(0, 0)), encode_png(variant(8, 0))
        assert search(client, known, known, stranger, crop(0), b"no image").status_code == 200
        assert search(client, b"no image").json()["code"] == "unusable_images"
        body = client.get("/metrics").text
    for decision, count in (("match", 2), ("unknown", 1), ("too poor to say", 1)):
        assert f'facerts_searches_total{{decision="{decision}"}} {count}.0' in body
    assert 'facerts_images_total{outcome="failed"} 2.0' in body
    assert 'facerts_requests_total{route="/v1/search",status="200"} 1.0' in body
