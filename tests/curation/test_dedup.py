"""Near-duplicates, strangers among an identity's pictures, and identities that look like one person."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from facerts.curation import embeddings
from facerts.curation.curation_job import Settings
from facerts.curation.dedup import Limits, dedup
from facerts.curation.embeddings import Embedding
from facerts.curation.identities import look_alikes
from facerts.curation.identity_pairs import Across
from facerts.curation.output_spec import Target
from facerts.curation.pack import unpack
from facerts.datasets import Subset, open_images, open_source
from facerts.detection.base import Detection
from facerts.errors import DataError, Error
from facerts.images import encode_png, read
from facerts.images.align import TEMPLATE
from facerts.io.files import sha256_file
from tests.contents import Content, content, files_in
from tests.curation.conftest import embeddings_of

LIMITS = Limits(threshold=0.999, identity_threshold=0.97)

Make = Callable[..., dict[str, Any]]


@pytest.fixture
def make(faces: Path, embedding: Embedding, tmp_path: Path) -> Make:
    def run(limits: Limits = LIMITS, **options: Any) -> dict[str, Any]:
        return dedup(open_source(faces), Target(tmp_path / "out.tar"), embedding, limits, **options)

    return run


def listed(folder: Path, kind: str, stem: str = "out") -> list[dict[str, Any]]:
    path = folder / f"{stem}.{kind}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def expected_repeats(faces: Path, threshold: float) -> set[str]:
    """The near-duplicates of better pictures of the same identity, one comparison at a time."""
    vectors, length, people, files = embeddings_of(faces)
    gone = set()
    for person in set(people):
        kept: list[int] = []
        mine = [row for row, name in enumerate(people) if name == person]
        for row in sorted(mine, key=lambda row: -length[row]):
            if any(vectors[row] @ vectors[other] >= threshold for other in kept):
                gone.add(files[row])
            else:
                kept.append(row)
    return gone


@pytest.mark.parametrize("threshold", [0.999, 0.9])
def test_of_pictures_that_are_almost_the_same_the_best_stays(
    make: Make, faces: Path, tmp_path: Path, threshold: float
) -> None:
    report = make(replace(LIMITS, threshold=threshold))
    rows = listed(tmp_path, "dropped")
    expected = expected_repeats(faces, threshold)
    assert {row["picture"] for row in rows} == expected
    assert len(expected) == 3 if threshold == 0.999 else len(expected) > 10
    vectors, length, people, files = embeddings_of(faces)
    for row in rows:
        gone, stays = files.index(row["picture"]), files.index(row["resembles"])
        assert row["resembles"] not in expected
        assert people[gone] == people[stays] == row["identity"]
        assert length[stays] >= length[gone]
        assert row["cosine"] == pytest.approx(vectors[gone] @ vectors[stays], abs=1e-4)
    assert report["dropped"]["by_reason"] == {"near-duplicate": len(expected)}
    left = content(tmp_path / "out.tar")
    assert left == content(faces) - content_of(expected)


def content_of(files: set[str]) -> Content:
    return Counter((Path(file).parent.name, Path(file).read_bytes()) for file in files)


def test_identities_that_look_like_one_person_are_told_and_stay(
    make: Make, faces: Path, tmp_path: Path
) -> None:
    report = make()
    pairs = {(row["first"], row["second"]): row for row in listed(tmp_path, "pairs")}
    # By their means and all their pictures; and by one picture that two people share.
    assert set(pairs) == {("other_0004", "person_0004"), ("person_0002", "person_0003")}
    same, shared = pairs["other_0004", "person_0004"], pairs["person_0002", "person_0003"]
    assert (same["one_person"], same["similar_pictures"], same["share"]) == (True, 8, 1.0)
    assert (shared["one_person"], shared["similar_pictures"]) == (False, 1)
    assert sorted(Path(path).name for path in shared["example"]) == ["0000.jpg", "0100.png"]
    vectors, _, people, _ = embeddings_of(faces)
    means = [
        vectors[[name == person for name in people]].mean(axis=0) for person in ("person_0002", "person_0003")
    ]
    cosine = means[0] @ means[1] / np.linalg.norm(means[0]) / np.linalg.norm(means[1])
    assert shared["mean_cosine"] == pytest.approx(cosine, abs=1e-3)
    assert report["identity_pairs"]["one_person"] == 1
    assert len(open_source(tmp_path / "out.tar").identities) == 9


def test_they_can_be_merged_and_then_their_pictures_are_each_other_s_repeats(
    make: Make, tmp_path: Path
) -> None:
    report = make(across=Across.MERGE)
    source = open_source(tmp_path / "out.tar")
    assert len(source.identities) == 8
    assert {"other_0004", "person_0004"} & set(source.identities) in ({"other_0004"}, {"person_0004"})
    assert report["dropped"]["by_reason"] == {"near-duplicate": 3 + 8}


def test_or_the_smaller_one_be_dropped(make: Make, tmp_path: Path) -> None:
    report = make(across=Across.DROP)
    assert report["dropped"]["by_reason"] == {"near-duplicate": 3, "identity resembles another": 8}
    assert len(open_source(tmp_path / "out.tar").identities) == 8


def test_pictures_of_different_identities_need_not_be_compared(make: Make, tmp_path: Path) -> None:
    make(replace(LIMITS, pictures_across=False))
    (pair,) = listed(tmp_path, "pairs")
    assert (pair["first"], pair["similar_pictures"], pair["example"]) == ("other_0004", 0, None)


def test_pictures_far_from_their_identity_go_if_asked(make: Make, faces: Path, tmp_path: Path) -> None:
    limit = 0.6
    report = make(Limits(threshold=1.0, identity_threshold=0.97, min_own_cosine=limit))
    vectors, _, people, files = embeddings_of(faces)
    rows = listed(tmp_path, "dropped")
    gone = {row["picture"] for row in rows}
    assert len(rows) == len(gone)
    owns = {}
    for row, person in enumerate(people):
        others = [other for other, name in enumerate(people) if name == person and other != row]
        mean = vectors[others].mean(axis=0)
        owns[files[row]] = vectors[row] @ mean / np.linalg.norm(mean)
    assert gone == {file for file, own in owns.items() if own < limit}
    assert 0 < len(gone) < len(files) / 2
    assert report["own_cosine"]["quantiles"]["0.5"] == pytest.approx(np.median(list(owns.values())), abs=1e-3)
    assert report["dropped"]["by_reason"] == {"far from its identity": len(gone)}


@pytest.mark.parametrize("faiss", [False, True])
def test_a_dry_run_tells_the_same_and_writes_no_picture(
    make: Make, tmp_path: Path, embedding: Embedding, faces: Path, faiss: bool
) -> None:
    real = make()
    found = replace(embedding, search="faiss" if faiss else "numpy")
    target = Target(tmp_path / "dry")
    told = dedup(open_source(faces), target, found, LIMITS, settings=Settings(dry_run=True))
    assert listed(tmp_path, "dropped", "dry.dry-run") == listed(tmp_path, "dropped")
    assert listed(tmp_path, "pairs", "dry.dry-run") == listed(tmp_path, "pairs")
    assert told["written"][0]["images"] == real["written"][0]["images"]
    dry = {"dry.dry-run.json", "dry.dry-run.dropped.jsonl", "dry.dry-run.pairs.jsonl"}
    assert {name for name in files_in(tmp_path) if name.startswith("dry")} == dry


def test_the_report_says_by_which_model_and_limits(make: Make, model: Path) -> None:
    told = make()["settings"]
    assert told["model"]["sha256"] == sha256_file(model)
    assert (told["threshold"], told["identity_threshold"], told["min_own_cosine"]) == (0.999, 0.97, None)
    assert (told["by"], told["across"], told["flip"], told["search"]) == (
        "embedding",
        "report",
        False,
        "numpy",
    )


def test_embeddings_are_taken_from_the_cache_as_long_as_they_fit(
    faces: Path, embedding: Embedding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached = replace(embedding, cache=tmp_path / "cache")

    def run(name: str, how: Embedding, source: Path = faces) -> dict[str, Any]:
        return dedup(open_source(source), Target(tmp_path / name), how, LIMITS)

    run("fresh", embedding)
    run("first", cached)
    embedded_again: list[int] = []
    original = embeddings.embed_source

    def watched(*args: Any, **options: Any) -> Any:
        embedded_again.append(1)
        return original(*args, **options)

    monkeypatch.setattr(embeddings, "embed_source", watched)
    run("second", cached)
    assert not embedded_again
    for kind in ("dropped", "pairs"):
        assert (
            listed(tmp_path, kind, "first")
            == listed(tmp_path, kind, "second")
            == listed(tmp_path, kind, "fresh")
        )
    run("flipped", replace(cached, flip=True))
    assert embedded_again
    embedded_again.clear()
    unpack(open_source(faces), tmp_path / "faces")
    victim = tmp_path / "faces" / "person_0001" / "0000.jpg"
    victim.write_bytes((tmp_path / "faces" / "person_0002" / "0001.jpg").read_bytes())
    run("changed", cached, tmp_path / "faces")
    assert embedded_again
    assert not list((tmp_path / "cache").glob(".*"))


def test_pictures_that_cannot_be_read_are_left_out_and_named(
    faces: Path, embedding: Embedding, tmp_path: Path
) -> None:
    unpack(open_source(faces), tmp_path / "faces")
    victim = tmp_path / "faces" / "person_0005" / "0003.jpg"
    victim.write_bytes(victim.read_bytes()[:200])
    report = dedup(open_source(tmp_path / "faces"), Target(tmp_path / "out.tar"), embedding, LIMITS)
    (row,) = [row for row in listed(tmp_path, "dropped") if row["reason"] == "cannot be read"]
    assert row["picture"] == str(victim)
    assert "truncated" in row["error"]
    assert report["dropped"]["by_reason"]["cannot be read"] == 1


def test_photos_are_aligned_and_those_without_a_face_left_out(
    drawn_faces: Path, embedding: Embedding, tmp_path: Path
) -> None:
    class Middle:
        """Finds the face of the canvas below, unless the photo is all of one color."""

        identity = "middle"

        def __call__(self, image: NDArray[np.uint8]) -> list[Detection]:
            if image.std() < 1:
                return []
            return [Detection(np.array([40.0, 40, 152, 152]), TEMPLATE.astype(np.float64) + 40, 1.0)]

    for number, shift in enumerate((0, 0, 9)):
        photo = np.full((200, 200, 3), 100 + shift, dtype=np.uint8)
        face = read(drawn_faces / "person_0001" / f"000{shift // 9}.jpg")
        photo[40:152, 40:152] = face
        (tmp_path / "photos" / "a").mkdir(parents=True, exist_ok=True)
        (tmp_path / "photos" / "a" / f"{number}.png").write_bytes(encode_png(photo))
    (tmp_path / "photos" / "a" / "plain.png").write_bytes(
        encode_png(np.full((200, 200, 3), 90, dtype=np.uint8))
    )
    source = open_source(tmp_path / "photos")
    report = dedup(source, Target(tmp_path / "out.tar"), embedding, LIMITS, align=Middle())
    assert report["dropped"]["by_reason"] == {"cannot be read": 1, "near-duplicate": 1}
    (faceless,) = [row for row in listed(tmp_path, "dropped") if row["reason"] == "cannot be read"]
    assert faceless["error"].endswith("plain.png: no face was found")
    assert report["settings"]["align"] == "middle"
    # What is written are the photos, not the crops.
    assert set(content(tmp_path / "out.tar")) <= set(content(tmp_path / "photos"))


def test_nothing_readable_is_an_error_and_leaves_nothing(embedding: Embedding, tmp_path: Path) -> None:
    (tmp_path / "bad" / "a").mkdir(parents=True)
    (tmp_path / "bad" / "a" / "1.jpg").write_bytes(b"no")
    with pytest.raises(DataError, match="none of its 1 pictures can be embedded"):
        dedup(open_source(tmp_path / "bad"), Target(tmp_path / "out"), embedding)
    assert files_in(tmp_path) == ["bad", "bad/a", "bad/a/1.jpg"]


def test_without_identities_all_pictures_are_compared(
    faces: Path, embedding: Embedding, tmp_path: Path
) -> None:
    report = dedup(open_images(faces), Target(tmp_path / "out.tar"), embedding, LIMITS)
    # Three of person 1, one of persons 2 and 3, eight of persons 4.
    assert report["dropped"]["by_reason"] == {"near-duplicate": 12}
    assert "identity_pairs" not in report


def test_pairs_of_identities_are_found_in_any_order_of_the_pictures(
    faces: Path, embedding: Embedding
) -> None:
    by_means, by_pictures = 0.8, 0.95
    ordered = open_source(faces)
    source = Subset(ordered, np.random.default_rng(2).permutation(len(ordered)))
    assert source.labels is not None
    vectors, _, people, files = embeddings_of(faces)
    rows = [files.index(source.location(index)) for index in range(len(source))]
    found = look_alikes(
        source,
        vectors[rows].astype(np.float32),
        np.ones(len(source), dtype=bool),
        by_means=by_means,
        by_pictures=by_pictures,
        backend="numpy",
    )
    pairs = {(source.identities[pair.first], source.identities[pair.second]): pair for pair in found}
    of = {person: vectors[[name == person for name in people]] for person in set(people)}
    expected = {}
    for one, other in combinations(sorted(of), 2):
        means = [of[person].mean(axis=0) for person in (one, other)]
        cosine = means[0] @ means[1] / np.linalg.norm(means[0]) / np.linalg.norm(means[1])
        close = of[one] @ of[other].T >= by_pictures
        # Of equally many pictures the second identity's count.
        fewer = close.any(axis=1) if len(of[one]) < len(of[other]) else close.any(axis=0)
        if cosine >= by_means or close.any():
            expected[one, other] = (cosine >= by_means or fewer.mean() >= 0.5, int(fewer.sum()))
    told = {names: (pair.one_person, pair.facts["similar_pictures"]) for names, pair in pairs.items()}
    assert told == expected
    assert len({one_person for one_person, _ in expected.values()}) == 2
    assert len({pictures for _, pictures in expected.values()}) > 2


def test_a_threshold_must_be_a_cosine() -> None:
    with pytest.raises(Error, match="--identity-threshold 0"):
        Limits(identity_threshold=0)
