"""Near-duplicates, mislabeled images, and identities that look like one person."""

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
from facerts.curation.curation_job import JobOptions
from facerts.curation.dedup import DedupThresholds, dedup, similar_identities
from facerts.curation.embeddings import SourceEmbedder
from facerts.curation.identity_pairs import IdentityAction
from facerts.curation.output_spec import OutputSpec
from facerts.curation.pack import unpack
from facerts.datasets import Subset, open_images, open_source
from facerts.detection.detector import Detection
from facerts.errors import DataError
from facerts.images import encode_png, read
from facerts.images.align import TEMPLATE
from tests.contents import Content, content, files_in
from tests.curation.conftest import embeddings_of

THRESHOLDS = DedupThresholds(threshold=0.999, identity_threshold=0.97)

Dedup = Callable[..., dict[str, Any]]


@pytest.fixture
def run_dedup(faces: Path, embedder: SourceEmbedder, tmp_path: Path) -> Dedup:
    def run(thresholds: DedupThresholds = THRESHOLDS, **options: Any) -> dict[str, Any]:
        return dedup(open_source(faces), OutputSpec(tmp_path / "out.tar"), embedder, thresholds, **options)

    return run


def read_list(folder: Path, kind: str, stem: str = "out") -> list[dict[str, Any]]:
    path = folder / f"{stem}.{kind}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def expected_duplicates(faces: Path, threshold: float) -> set[str]:
    """The near-duplicates of better images of the same identity, one comparison at a time."""
    vectors, length, people, files = embeddings_of(faces)
    duplicates = set()
    for person in set(people):
        kept: list[int] = []
        own = [row for row, name in enumerate(people) if name == person]
        for row in sorted(own, key=lambda row: -length[row]):
            if any(vectors[row] @ vectors[other] >= threshold for other in kept):
                duplicates.add(files[row])
            else:
                kept.append(row)
    return duplicates


@pytest.mark.parametrize("threshold", [0.999, 0.9])
def test_the_best_of_near_duplicates_is_kept(
    run_dedup: Dedup, faces: Path, tmp_path: Path, threshold: float
) -> None:
    report = run_dedup(replace(THRESHOLDS, threshold=threshold))
    rows = read_list(tmp_path, "dropped")
    expected = expected_duplicates(faces, threshold)
    assert {row["image"] for row in rows} == expected
    assert len(expected) == 3 if threshold == 0.999 else len(expected) > 10
    vectors, length, people, files = embeddings_of(faces)
    for row in rows:
        dropped, kept = files.index(row["image"]), files.index(row["resembles"])
        assert row["resembles"] not in expected
        assert people[dropped] == people[kept] == row["identity"]
        assert length[kept] >= length[dropped]
        assert row["cosine"] == pytest.approx(vectors[dropped] @ vectors[kept], abs=1e-4)
    assert report["dropped"]["by_reason"] == {"near-duplicate": len(expected)}
    remaining = content(tmp_path / "out.tar")
    assert remaining == content(faces) - content_of(expected)


def content_of(files: set[str]) -> Content:
    return Counter((Path(file).parent.name, Path(file).read_bytes()) for file in files)


def test_identities_that_look_like_one_person_are_reported_and_kept(
    run_dedup: Dedup, faces: Path, tmp_path: Path
) -> None:
    report = run_dedup()
    pairs = {(row["first"], row["second"]): row for row in read_list(tmp_path, "pairs")}
    # One pair by means and all images, one by a single shared image.
    assert set(pairs) == {("other_0004", "person_0004"), ("person_0002", "person_0003")}
    same, shared = pairs["other_0004", "person_0004"], pairs["person_0002", "person_0003"]
    assert (same["one_person"], same["similar_images"], same["share"]) == (True, 8, 1.0)
    assert (shared["one_person"], shared["similar_images"]) == (False, 1)
    assert sorted(Path(path).name for path in shared["example"]) == ["0000.jpg", "0100.png"]
    vectors, _, people, _ = embeddings_of(faces)
    means = [
        vectors[[name == person for name in people]].mean(axis=0) for person in ("person_0002", "person_0003")
    ]
    cosine = means[0] @ means[1] / np.linalg.norm(means[0]) / np.linalg.norm(means[1])
    assert shared["mean_cosine"] == pytest.approx(cosine, abs=1e-3)
    assert report["identity_pairs"]["one_person"] == 1
    assert len(open_source(tmp_path / "out.tar").identities) == 9


def test_merging_identities_removes_their_common_duplicates(run_dedup: Dedup, tmp_path: Path) -> None:
    report = run_dedup(identity_action=IdentityAction.MERGE)
    source = open_source(tmp_path / "out.tar")
    assert len(source.identities) == 8
    assert {"other_0004", "person_0004"} & set(source.identities) in ({"other_0004"}, {"person_0004"})
    assert report["dropped"]["by_reason"] == {"near-duplicate": 3 + 8}


def test_the_smaller_of_two_identities_can_be_dropped(run_dedup: Dedup, tmp_path: Path) -> None:
    report = run_dedup(identity_action=IdentityAction.DROP)
    assert report["dropped"]["by_reason"] == {"near-duplicate": 3, "identity resembles another": 8}
    assert len(open_source(tmp_path / "out.tar").identities) == 8


def test_images_of_different_identities_need_not_be_compared(run_dedup: Dedup, tmp_path: Path) -> None:
    run_dedup(replace(THRESHOLDS, images_across=False))
    (pair,) = read_list(tmp_path, "pairs")
    assert (pair["first"], pair["similar_images"], pair["example"]) == ("other_0004", 0, None)


def test_images_far_from_their_identity_are_dropped_on_request(
    run_dedup: Dedup, faces: Path, tmp_path: Path
) -> None:
    minimum = 0.6
    report = run_dedup(DedupThresholds(threshold=1.0, identity_threshold=0.97, min_own_cosine=minimum))
    vectors, _, people, files = embeddings_of(faces)
    rows = read_list(tmp_path, "dropped")
    dropped = {row["image"] for row in rows}
    assert len(rows) == len(dropped)
    own_cosines = {}
    for row, person in enumerate(people):
        others = [other for other, name in enumerate(people) if name == person and other != row]
        mean = vectors[others].mean(axis=0)
        own_cosines[files[row]] = vectors[row] @ mean / np.linalg.norm(mean)
    assert dropped == {file for file, own in own_cosines.items() if own < minimum}
    assert 0 < len(dropped) < len(files) / 2
    assert report["own_cosine"]["quantiles"]["0.5"] == pytest.approx(
        np.median(list(own_cosines.values())), abs=1e-3
    )
    assert report["dropped"]["by_reason"] == {"far from its identity": len(dropped)}


@pytest.mark.parametrize("faiss", [False, True])
def test_a_dry_run_reports_the_same_and_writes_no_images(
    run_dedup: Dedup, tmp_path: Path, embedder: SourceEmbedder, faces: Path, faiss: bool
) -> None:
    real = run_dedup()
    backend = replace(embedder, search="faiss" if faiss else "numpy")
    output = OutputSpec(tmp_path / "dry")
    report = dedup(open_source(faces), output, backend, THRESHOLDS, options=JobOptions(dry_run=True))
    assert read_list(tmp_path, "dropped", "dry.dry-run") == read_list(tmp_path, "dropped")
    assert read_list(tmp_path, "pairs", "dry.dry-run") == read_list(tmp_path, "pairs")
    assert report["written"][0]["images"] == real["written"][0]["images"]
    dry = {"dry.dry-run.json", "dry.dry-run.dropped.jsonl", "dry.dry-run.pairs.jsonl"}
    assert {name for name in files_in(tmp_path) if name.startswith("dry")} == dry


def test_the_cache_is_used_as_long_as_it_is_valid(
    faces: Path, embedder: SourceEmbedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached = replace(embedder, cache=tmp_path / "cache")

    def run(name: str, embedder: SourceEmbedder, source: Path = faces) -> dict[str, Any]:
        return dedup(open_source(source), OutputSpec(tmp_path / name), embedder, THRESHOLDS)

    run("fresh", embedder)
    run("first", cached)
    calls: list[int] = []
    original = embeddings.embed_source

    def counting_embed(*args: Any, **options: Any) -> Any:
        calls.append(1)
        return original(*args, **options)

    monkeypatch.setattr(embeddings, "embed_source", counting_embed)
    run("second", cached)
    assert not calls
    for kind in ("dropped", "pairs"):
        assert (
            read_list(tmp_path, kind, "first")
            == read_list(tmp_path, kind, "second")
            == read_list(tmp_path, kind, "fresh")
        )
    run("flipped", replace(cached, flip=True))
    assert calls
    calls.clear()
    unpack(open_source(faces), tmp_path / "faces")
    broken = tmp_path / "faces" / "person_0001" / "0000.jpg"
    broken.write_bytes((tmp_path / "faces" / "person_0002" / "0001.jpg").read_bytes())
    run("changed", cached, tmp_path / "faces")
    assert calls
    assert not list((tmp_path / "cache").glob(".*"))


def test_a_cache_that_cannot_be_written_is_not_needed(
    faces: Path, embedder: SourceEmbedder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_bytes(b"")
    cached = replace(embedder, cache=tmp_path / "file" / "cache")
    for name, backend in (("fresh", embedder), ("uncached", cached)):
        dedup(open_source(faces), OutputSpec(tmp_path / name), backend, THRESHOLDS)
    assert read_list(tmp_path, "pairs", "fresh") == read_list(tmp_path, "pairs", "uncached")
    assert "the embeddings are not kept for the next command" in capsys.readouterr().err


def test_unreadable_images_are_dropped_and_named(
    faces: Path, embedder: SourceEmbedder, tmp_path: Path
) -> None:
    unpack(open_source(faces), tmp_path / "faces")
    broken = tmp_path / "faces" / "person_0005" / "0003.jpg"
    broken.write_bytes(broken.read_bytes()[:200])
    report = dedup(open_source(tmp_path / "faces"), OutputSpec(tmp_path / "out.tar"), embedder, THRESHOLDS)
    (row,) = [row for row in read_list(tmp_path, "dropped") if row["reason"] == "cannot be read"]
    assert row["image"] == str(broken)
    assert "truncated" in row["error"]
    assert report["dropped"]["by_reason"]["cannot be read"] == 1


def test_photos_are_aligned_and_dropped_if_they_have_no_face(
    drawn_faces: Path, embedder: SourceEmbedder, tmp_path: Path
) -> None:
    class CenterDetector:
        """A detector that finds the face in the photos below, unless the photo is of one color."""

        identity = "center"

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
    report = dedup(source, OutputSpec(tmp_path / "out.tar"), embedder, THRESHOLDS, detector=CenterDetector())
    assert report["dropped"]["by_reason"] == {"cannot be read": 1, "near-duplicate": 1}
    (faceless,) = [row for row in read_list(tmp_path, "dropped") if row["reason"] == "cannot be read"]
    assert faceless["error"].endswith("plain.png: no face was found")
    assert report["settings"]["detector"] == "center"
    # The photos are written, not the crops.
    assert set(content(tmp_path / "out.tar")) <= set(content(tmp_path / "photos"))


def test_a_source_without_readable_images_is_an_error(embedder: SourceEmbedder, tmp_path: Path) -> None:
    (tmp_path / "bad" / "a").mkdir(parents=True)
    (tmp_path / "bad" / "a" / "1.jpg").write_bytes(b"no")
    with pytest.raises(DataError, match="none of its 1 images can be embedded"):
        dedup(open_source(tmp_path / "bad"), OutputSpec(tmp_path / "out"), embedder)
    assert files_in(tmp_path) == ["bad", "bad/a", "bad/a/1.jpg"]


def test_without_identities_all_images_are_compared(
    faces: Path, embedder: SourceEmbedder, tmp_path: Path
) -> None:
    report = dedup(open_images(faces), OutputSpec(tmp_path / "out.tar"), embedder, THRESHOLDS)
    # Three of person 1, one of persons 2 and 3, eight of persons 4.
    assert report["dropped"]["by_reason"] == {"near-duplicate": 12}
    assert "identity_pairs" not in report


def test_identity_pairs_do_not_depend_on_the_order_of_images(faces: Path, embedder: SourceEmbedder) -> None:
    mean_threshold, image_threshold = 0.8, 0.95
    ordered = open_source(faces)
    source = Subset(ordered, np.random.default_rng(2).permutation(len(ordered)))
    assert source.labels is not None
    vectors, _, people, files = embeddings_of(faces)
    rows = [files.index(source.location(index)) for index in range(len(source))]
    similar = similar_identities(
        source,
        vectors[rows].astype(np.float32),
        np.ones(len(source), dtype=bool),
        mean_threshold=mean_threshold,
        image_threshold=image_threshold,
        backend="numpy",
    )
    pairs = {(source.identities[pair.first], source.identities[pair.second]): pair for pair in similar}
    by_person = {person: vectors[[name == person for name in people]] for person in set(people)}
    expected = {}
    for one, other in combinations(sorted(by_person), 2):
        means = [by_person[person].mean(axis=0) for person in (one, other)]
        cosine = means[0] @ means[1] / np.linalg.norm(means[0]) / np.linalg.norm(means[1])
        close = by_person[one] @ by_person[other].T >= image_threshold
        # With equal numbers of images, those of the second identity count.
        smaller = close.any(axis=1) if len(by_person[one]) < len(by_person[other]) else close.any(axis=0)
        if cosine >= mean_threshold or close.any():
            expected[one, other] = (cosine >= mean_threshold or smaller.mean() >= 0.5, int(smaller.sum()))
    actual = {names: (pair.one_person, pair.details["similar_images"]) for names, pair in pairs.items()}
    assert actual == expected
    assert len({one_person for one_person, _ in expected.values()}) == 2
    assert len({images for _, images in expected.values()}) > 2
