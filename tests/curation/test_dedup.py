"""Equal images and near-duplicates, mislabeled images, and identities that look like one person."""

from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from facerts.curation import embeddings
from facerts.curation.dedup import (
    DedupThresholds,
    IdentityPair,
    choose_dropped,
    dedup,
    merge_labels,
    pair_identities,
)
from facerts.curation.output_spec import OutputSpec
from facerts.curation.pairwise import identity_means, similar_pairs
from facerts.curation.rearrange import unpack
from facerts.datasets import Subset, open_images, open_source
from facerts.errors import DataError
from facerts.images import encode_png, read
from tests.contents import content, files_in
from tests.curation.conftest import embeddings_of
from tests.detectors import Finds, face_at

THRESHOLDS = DedupThresholds(threshold=0.999, identity_threshold=0.97)


@pytest.fixture
def run_dedup(faces, embedder, tmp_path):
    def run(thresholds=THRESHOLDS, **options):
        return dedup(open_source(faces), OutputSpec(tmp_path / "out.tar"), embedder, thresholds, **options)

    return run


def lists(report):
    """The images that were dropped, and the pairs of identities."""
    return report["dropped"]["list"], report["identity_pairs"]["list"]


def pairs_of(report):
    return {(row["first"], row["second"]): row for row in report["identity_pairs"]["list"]}


def expected_duplicates(faces, threshold):
    """The near-duplicates of better images of the same identity, one comparison at a time."""
    vectors, length, people, files = embeddings_of(faces)
    duplicates = set()
    for person in set(people):
        kept = []
        own = [row for row, name in enumerate(people) if name == person]
        for row in sorted(own, key=lambda row: -length[row]):
            if any(vectors[row] @ vectors[other] >= threshold for other in kept):
                duplicates.add(files[row])
            else:
                kept.append(row)
    return duplicates


@pytest.mark.parametrize("threshold", [0.999, 0.9])
def test_the_best_of_near_duplicates_is_kept(run_dedup, faces, tmp_path, threshold):
    report = run_dedup(replace(THRESHOLDS, threshold=threshold))
    rows = report["dropped"]["list"]
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
    gone = Counter((Path(file).parent.name, Path(file).read_bytes()) for file in expected)
    assert content(tmp_path / "out.tar") == content(faces) - gone


def test_identities_that_look_like_one_person_are_reported_and_kept(run_dedup, faces, tmp_path):
    report = run_dedup()
    pairs = pairs_of(report)
    # One pair by means and all images, one by a single shared image.
    assert set(pairs) == {("other_0004", "person_0004"), ("person_0002", "person_0003")}
    same, shared = pairs["other_0004", "person_0004"], pairs["person_0002", "person_0003"]
    assert (same["one_person"], same["shared_images"], same["share"]) == (True, 8, 1.0)
    assert (shared["one_person"], shared["shared_images"]) == (False, 1)
    assert sorted(Path(path).name for path in shared["example"]) == ["0000.jpg", "0100.png"]
    vectors, _, people, _ = embeddings_of(faces)
    means = [vectors[[name == person for name in people]].mean(axis=0) for person in ("person_0002", "person_0003")]
    cosine = means[0] @ means[1] / np.linalg.norm(means[0]) / np.linalg.norm(means[1])
    assert shared["mean_cosine"] == pytest.approx(cosine, abs=1e-3)
    assert report["identity_pairs"]["one_person"] == 1
    assert len(open_source(tmp_path / "out.tar").identities) == 9


@pytest.mark.parametrize(
    ("action", "dropped"),
    [
        ("merge", {"near-duplicate": 3 + 8}),
        ("drop", {"near-duplicate": 3, "identity resembles another": 8}),
    ],
)
def test_of_two_identities_of_one_person_one_is_left(run_dedup, tmp_path, action, dropped):
    report = run_dedup(identity_action=action)
    source = open_source(tmp_path / "out.tar")
    assert len(source.identities) == 8
    assert {"other_0004", "person_0004"} & set(source.identities) in ({"other_0004"}, {"person_0004"})
    assert report["dropped"]["by_reason"] == dropped


def test_images_of_different_identities_need_not_be_compared(run_dedup):
    (pair,) = lists(run_dedup(replace(THRESHOLDS, images_across=False)))[1]
    assert (pair["first"], pair["shared_images"], pair["example"]) == ("other_0004", 0, None)


def test_images_far_from_their_identity_are_dropped_on_request(run_dedup, faces, tmp_path):
    minimum = 0.6
    report = run_dedup(DedupThresholds(threshold=1.0, identity_threshold=0.97, min_own_cosine=minimum))
    vectors, _, people, files = embeddings_of(faces)
    rows = report["dropped"]["list"]
    dropped = {row["image"] for row in rows}
    assert len(rows) == len(dropped)
    own_cosines = {}
    for row, person in enumerate(people):
        others = [other for other, name in enumerate(people) if name == person and other != row]
        mean = vectors[others].mean(axis=0)
        own_cosines[files[row]] = vectors[row] @ mean / np.linalg.norm(mean)
    assert dropped == {file for file, own in own_cosines.items() if own < minimum}
    assert 0 < len(dropped) < len(files) / 2
    assert report["own_cosine"]["quantiles"]["0.5"] == pytest.approx(np.median(list(own_cosines.values())), abs=1e-3)
    assert report["dropped"]["by_reason"] == {"far from its identity": len(dropped)}


def test_the_cache_is_used_as_long_as_it_is_valid(faces, embedder, tmp_path, monkeypatch):
    cached = replace(embedder, cache=tmp_path / "cache")

    def run(name, embedder, source=faces):
        return dedup(open_source(source), OutputSpec(tmp_path / name), embedder, THRESHOLDS)

    fresh, first = run("fresh", embedder), run("first", cached)
    calls = []
    original = embeddings.embed_source

    def counting_embed(*args, **options):
        calls.append(1)
        return original(*args, **options)

    monkeypatch.setattr(embeddings, "embed_source", counting_embed)
    assert lists(run("second", cached)) == lists(first) == lists(fresh)
    assert not calls
    unpack(open_source(faces), tmp_path / "faces")
    broken = tmp_path / "faces" / "person_0001" / "0000.jpg"
    broken.write_bytes((tmp_path / "faces" / "person_0002" / "0001.jpg").read_bytes())
    run("changed", cached, tmp_path / "faces")
    assert calls
    assert not list((tmp_path / "cache").glob(".*"))


def test_a_cache_that_cannot_be_written_is_not_needed(faces, embedder, tmp_path, capsys):
    (tmp_path / "file").write_bytes(b"")
    cached = replace(embedder, cache=tmp_path / "file" / "cache")
    fresh, uncached = (
        dedup(open_source(faces), OutputSpec(tmp_path / name), backend, THRESHOLDS)
        for name, backend in (("fresh", embedder), ("uncached", cached))
    )
    assert lists(fresh) == lists(uncached)
    assert "the embeddings are not kept for the next command" in capsys.readouterr().err


def test_unreadable_images_are_dropped_and_named(faces, embedder, tmp_path):
    unpack(open_source(faces), tmp_path / "faces")
    broken = tmp_path / "faces" / "person_0005" / "0003.jpg"
    broken.write_bytes(broken.read_bytes()[:200])
    report = dedup(open_source(tmp_path / "faces"), OutputSpec(tmp_path / "out.tar"), embedder, THRESHOLDS)
    (row,) = [row for row in report["dropped"]["list"] if row["reason"] == "cannot be read"]
    assert row["image"] == str(broken)
    assert "truncated" in row["error"]
    assert report["dropped"]["by_reason"]["cannot be read"] == 1
    # What cannot be decoded still has bytes to compare; a link that leads nowhere has none.
    (tmp_path / "faces" / "person_0005" / "loop.jpg").symlink_to("loop.jpg")
    by_bytes = dedup(open_source(tmp_path / "faces"), OutputSpec(tmp_path / "once.tar"))
    assert by_bytes["dropped"]["by_reason"] == {"cannot be read": 1}


def test_photos_are_aligned_and_dropped_if_they_have_no_face(drawn_faces, embedder, tmp_path):
    # Finds the face in the photos below, unless the photo is of one color.
    detector = Finds(face_at(40, 40), where=lambda image: image.std() >= 1)
    for number, shift in enumerate((0, 0, 9)):
        photo = np.full((200, 200, 3), 100 + shift, dtype=np.uint8)
        face = read(drawn_faces / "person_0001" / f"000{shift // 9}.jpg")
        photo[40:152, 40:152] = face
        (tmp_path / "photos" / "a").mkdir(parents=True, exist_ok=True)
        (tmp_path / "photos" / "a" / f"{number}.png").write_bytes(encode_png(photo))
    (tmp_path / "photos" / "a" / "plain.png").write_bytes(encode_png(np.full((200, 200, 3), 90, dtype=np.uint8)))
    source = open_source(tmp_path / "photos")
    report = dedup(source, OutputSpec(tmp_path / "out.tar"), embedder, THRESHOLDS, detector=detector)
    assert report["dropped"]["by_reason"] == {"cannot be read": 1, "near-duplicate": 1}
    (faceless,) = [row for row in report["dropped"]["list"] if row["reason"] == "cannot be read"]
    assert faceless["error"].endswith("plain.png: no face was found")
    assert report["settings"]["detector"] == detector.identity
    # The photos are written, not the crops.
    assert set(content(tmp_path / "out.tar")) <= set(content(tmp_path / "photos"))


def test_a_source_without_readable_images_is_an_error(embedder, tmp_path):
    (tmp_path / "bad" / "a").mkdir(parents=True)
    (tmp_path / "bad" / "a" / "1.jpg").write_bytes(b"no")
    with pytest.raises(DataError, match="none of its 1 images can be embedded"):
        dedup(open_source(tmp_path / "bad"), OutputSpec(tmp_path / "out"), embedder)
    assert files_in(tmp_path) == ["bad", "bad/a", "bad/a/1.jpg"]


def test_without_identities_all_images_are_compared(faces, embedder, tmp_path):
    report = dedup(open_images(faces), OutputSpec(tmp_path / "out.tar"), embedder, THRESHOLDS)
    # Three of person 1, one of persons 2 and 3, eight of persons 4.
    assert report["dropped"]["by_reason"] == {"near-duplicate": 12}
    assert "identity_pairs" not in report


def test_identity_pairs_do_not_depend_on_the_order_of_images(faces, embedder):
    mean_threshold, image_threshold = 0.8, 0.95
    ordered = open_source(faces)
    source = Subset(ordered, np.random.default_rng(2).permutation(len(ordered)))
    labels, kept = source.labels, np.ones(len(source), dtype=bool)
    vectors, _, people, files = embeddings_of(faces)
    embedding = vectors[[files.index(source.location(index)) for index in range(len(source))]]
    means = identity_means(embedding.astype(np.float32), labels, kept, len(source.identities))
    (block,) = similar_pairs(means, mean_threshold, "")
    alike = set(zip(block.first.tolist(), block.second.tolist(), strict=True))
    (block,) = similar_pairs(embedding.astype(np.float32), image_threshold, "")
    duplicates = [pair for pair in zip(*block, strict=True) if labels[pair[0]] != labels[pair[1]]]
    similar = pair_identities(source, kept, duplicates, alike, means)
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
    actual = {names: (pair.one_person, pair.details["shared_images"]) for names, pair in pairs.items()}
    assert actual == expected
    assert len({one_person for one_person, _ in expected.values()}) == 2
    assert len({images for _, images in expected.values()}) > 2


@pytest.fixture(scope="module")
def repeated(drawn_faces, tmp_path_factory):
    """The drawn faces with copies.

    Of person 1 two images again (one of them twice); one of person 2 with person 3; most of person 4 again as a
    person of another name, who has one image of their own.
    """
    folder = tmp_path_factory.mktemp("repeated") / "faces"
    unpack(open_source(drawn_faces), folder)

    def copy(one, other):
        (folder / other).parent.mkdir(exist_ok=True)
        (folder / other).write_bytes((folder / one).read_bytes())

    copy("person_0001/0000.jpg", "person_0001/0100.jpg")
    copy("person_0001/0000.jpg", "person_0001/0101.jpg")
    copy("person_0001/0005.jpg", "person_0001/0102.jpg")
    copy("person_0002/0003.jpg", "person_0003/0100.jpg")
    for number in range(4):
        copy(f"person_0004/000{number}.jpg", f"another/{number}.jpg")
    copy("person_0006/0000.jpg", "another/own.jpg")
    (folder / "person_0006" / "0000.jpg").unlink()
    return folder


@pytest.fixture
def by_bytes(repeated, tmp_path):
    return partial(dedup, open_source(repeated), OutputSpec(tmp_path / "once.tar"))


def test_within_an_identity_the_first_stays_and_between_identities_all_stay(by_bytes, repeated, tmp_path):
    report = by_bytes()
    once = content(tmp_path / "once.tar")
    assert set(once) == set(content(repeated))
    assert max(once.values()) == 1
    dropped = report["dropped"]
    assert (dropped["images"], dropped["identities"], dropped["by_reason"]) == (3, 0, {"equal bytes": 3})
    assert {(Path(row["image"]).name, Path(row["resembles"]).name) for row in dropped["list"]} == {
        ("0100.jpg", "0000.jpg"),
        ("0101.jpg", "0000.jpg"),
        ("0102.jpg", "0005.jpg"),
    }
    pairs = pairs_of(report)
    assert pairs["another", "person_0004"]["shared_images"] == 4
    assert pairs["another", "person_0004"]["one_person"] is True
    assert pairs["another", "person_0004"]["share"] == 0.8
    assert pairs["person_0002", "person_0003"]["one_person"] is False
    assert len(pairs) == 2


def test_one_person_of_two_names_can_be_merged(by_bytes, tmp_path):
    report = by_bytes(identity_action="merge")
    source = open_source(tmp_path / "once.tar")
    assert "another" not in source.identities
    assert report["written"][0]["identities"] == 8
    assert report["dropped"]["by_reason"] == {"equal bytes": 7}
    merged_one = [row for row in content(source) if row[0] == "person_0004"]
    assert len(merged_one) == 9  # eight of its own and the other's own
    assert "person_0004/another_own.jpg" in [source.key(index) for index in range(len(source))]
    # The image that two people share says nothing of who is on it.
    assert {"person_0002", "person_0003"} <= set(source.identities)


def test_or_the_one_with_fewer_images_be_dropped(by_bytes, repeated, tmp_path):
    report = by_bytes(identity_action="drop")
    assert set(open_source(tmp_path / "once.tar").identities) == set(open_source(repeated).identities) - {"another"}
    assert report["dropped"]["by_reason"] == {"equal bytes": 3, "identity resembles another": 5}
    assert report["dropped"]["identities"] == 1
    gone = [row for row in report["dropped"]["list"] if row["identity"] == "another"]
    assert {row["resembles"] for row in gone} == {"person_0004"}


def pair(first, second, sure, one_person=True):
    return IdentityPair(first, second, one_person, sure)


def test_whoever_hangs_together_becomes_the_one_with_the_most_images():
    images = np.array([2, 5, 5, 9, 1, 1, 3])
    becomes = merge_labels([pair(0, 1, 1), pair(1, 2, 1), pair(4, 5, 1), pair(3, 6, 9, one_person=False)], images)
    assert becomes.tolist() == [1, 1, 1, 3, 4, 4, 6]


def test_nobody_is_dropped_for_one_who_is_dropped():
    images = np.array([3, 2, 1, 4])
    gone = choose_dropped([pair(1, 2, 0.8), pair(0, 1, 0.9), pair(0, 3, 0.1, one_person=False)], images)
    assert set(gone) == {1}  # it goes for 0, the surer pair; 2 resembles nobody who stays
