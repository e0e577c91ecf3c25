"""People of a benchmark leave the data set: who, is what a comparison of each with each says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from facerts.benchmarks import pairs_from_identities
from facerts.benchmarks.bin_sets import write_bin
from facerts.curation.curation_job import Settings
from facerts.curation.embeddings import Embedding
from facerts.curation.exclude_overlap import Nearest, disjoin, open_benchmark_images
from facerts.curation.output_spec import Target
from facerts.curation.pack import unpack
from facerts.datasets import Joined, Subset, open_source
from facerts.embedding import load_embedder
from facerts.errors import DataError, Error
from facerts.hub.registry import find_model
from tests.contents import content
from tests.curation.conftest import embeddings_of

Make = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def benchmark(faces: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of pictures: some of persons 4 and 6, brighter, so that no file is in both."""
    folder = tmp_path_factory.mktemp("benchmark") / "bench"
    folder.mkdir()
    for number in range(4):
        (folder / f"4_{number}.png").write_bytes((faces / "other_0004" / f"{number}.png").read_bytes())
        (folder / f"6_{number}.jpg").write_bytes((faces / "person_0006" / f"000{number}.jpg").read_bytes())
    return folder


@pytest.fixture
def make(faces: Path, benchmark: Path, embedding: Embedding, tmp_path: Path) -> Make:
    def run(**options: Any) -> dict[str, Any]:
        return disjoin(open_source(faces), [benchmark], Target(tmp_path / "out.tar"), embedding, **options)

    return run


def nearest(faces: Path, benchmark: Path) -> tuple[dict[str, float], dict[str, float]]:
    """The highest cosine of each identity's mean, and of its single pictures, to the benchmark's pictures."""
    vectors, _, people, _ = embeddings_of(faces)
    others = embeddings_of(benchmark)[0]
    means, singles = {}, {}
    for person in set(people):
        own = vectors[[name == person for name in people]]
        mean = own.mean(axis=0)
        means[person] = float((others @ mean).max() / np.linalg.norm(mean))
        singles[person] = float((own @ others.T).max())
    return means, singles


@pytest.mark.parametrize("single_images", [False, True])
@pytest.mark.parametrize("threshold", [0.85, 0.95])
def test_whoever_looks_like_somebody_in_the_benchmark_leaves_as_a_whole(
    make: Make,
    faces: Path,
    benchmark: Path,
    tmp_path: Path,
    single_images: bool,
    threshold: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("facerts.curation.exclude_overlap.BLOCK", 5)
    report = make(threshold=threshold, single_images=single_images)
    means, singles = nearest(faces, benchmark)
    highest = {
        person: max(means[person], singles[person]) if single_images else means[person] for person in means
    }
    goes = {person for person, cosine in highest.items() if cosine >= threshold}
    assert 0 < len(goes) < 9
    left = content(tmp_path / "out.tar")
    assert {person for person, _ in left} == set(means) - goes
    assert all(row[0] in goes for row in content(faces) - left)
    rows = [json.loads(line) for line in (tmp_path / "out.dropped.jsonl").read_text().splitlines()]
    assert {row["identity"] for row in rows} == goes
    assert len(rows) == report["dropped"]["images"] == sum(content(faces).values()) - sum(left.values())
    for row in rows:
        assert row["cosine"] == pytest.approx(highest[row["identity"]], abs=1e-3)
        assert Path(row["resembles"]).parent == benchmark
        if not single_images:
            assert row["by"] == "mean"
    assert report["overlap"]["identities"] == len(goes)
    kept = [row["identity"] for row in report["overlap"]["nearest_kept"]]
    assert kept == sorted(set(means) - goes, key=lambda person: -highest[person])


def test_the_nearest_stays_whatever_comes_later() -> None:
    nearest = Nearest(3)
    nearest.add(np.array([0, 1]), np.float32([0.5, 0.9]), np.array([3, 4]), np.array([-1, -1]))
    nearest.add(
        np.array([0, 1, 0, 0]), np.float32([0.6, 0.8, 0.7, 0.65]), np.array([5, 6, 7, 8]), np.arange(4)
    )
    assert nearest.cosine.tolist() == pytest.approx([0.7, 0.9, -np.inf])
    assert nearest.row.tolist() == [7, 4, -1]
    assert nearest.picture.tolist() == [2, -1, -1]


def test_single_images_find_one_stray_picture(make: Make, faces: Path, benchmark: Path) -> None:
    means, singles = nearest(faces, benchmark)
    strays = {person for person in means if singles[person] >= 0.999 > means[person]}
    assert strays  # person 6 has pictures in the benchmark, and a mean that is none of them
    report = make(threshold=0.999, single_images=True)
    by = {row["identity"]: row["by"] for row in report["overlap"]["left_out"]}
    assert strays <= set(by)
    assert all(Path(by[person]).parent.name == person for person in strays)


def test_any_kind_of_benchmark_is_taken(faces: Path, embedding: Embedding, tmp_path: Path) -> None:
    source = open_source(faces)
    assert source.labels is not None
    people = [1, 2, 6, 7]
    some = Subset(source, np.flatnonzero(np.isin(source.labels, people)))
    pairs = pairs_from_identities(some, genuine=20, impostors=20, seed=0)
    images = [pairs.images.read(int(index)) for index in pairs.pairs.reshape(-1)]
    write_bin(tmp_path / "set.bin", images, pairs.same.tolist())
    lfw = tmp_path / "lfw"
    for person in ("A", "B", "C"):
        for number in range(1, 4):
            place = lfw / person / f"{person}_{number:04d}.jpg"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes((faces / "person_0007" / f"000{number}.jpg").read_bytes())
    (lfw / "pairs.txt").write_text("1 1\nA 1 2\nA 1 B 2\n")
    named = open_benchmark_images(lfw)
    keys = sorted(named.key(index) for index in range(len(named)))
    assert keys == ["A/A_0001.jpg", "A/A_0002.jpg", "B/B_0002.jpg"]
    both = [lfw, tmp_path / "set.bin"]
    report = disjoin(
        source, both, Target(tmp_path / "out.tar"), embedding, threshold=0.9999, single_images=True
    )
    assert report["benchmarks"]["images"] == len(named) + len(images)
    gone = set(source.identities) - set(open_source(tmp_path / "out.tar").identities)
    assert gone == {source.identities[label] for label in people} | {"person_0007"}


def test_pictures_of_the_benchmark_that_cannot_be_read_are_told(
    faces: Path, benchmark: Path, embedding: Embedding, tmp_path: Path
) -> None:
    broken = tmp_path / "bench"
    broken.mkdir()
    for picture in benchmark.iterdir():
        (broken / picture.name).write_bytes(picture.read_bytes())
    (broken / "0_broken.jpg").write_bytes(b"no")

    def told(single_images: bool) -> list[dict[str, Any]]:
        target = Target(tmp_path / f"{single_images}.tar")
        report = disjoin(
            open_source(faces), [broken], target, embedding, threshold=0.9, single_images=single_images
        )
        assert len(report["benchmarks"]["unreadable"]) == 1
        return [row for row in report["overlap"]["left_out"] if row["identity"] == "other_0004"]

    # The others are still told by the right names, those whose very pictures are in the benchmark too.
    (by_mean,), (by_picture,) = told(False), told(True)
    assert Path(by_mean["resembles"]).name.startswith("4_")
    assert Path(by_picture["resembles"]).read_bytes() == Path(by_picture["by"]).read_bytes()


def test_identities_are_needed(
    drawn_things: Path, benchmark: Path, embedding: Embedding, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match="this source has none"):
        disjoin(open_source(drawn_things), [benchmark], Target(tmp_path / "out"), embedding)


def test_where_nobody_is_left_a_dry_run_says_why(faces: Path, embedding: Embedding, tmp_path: Path) -> None:
    def run(**options: Any) -> dict[str, Any]:
        target = Target(tmp_path / "out")
        return disjoin(
            open_source(faces), [faces], target, embedding, threshold=0.99, single_images=True, **options
        )

    with pytest.raises(Error, match=r"no picture is left .* --dry-run"):
        run()
    assert not any(tmp_path.iterdir())
    report = run(settings=Settings(dry_run=True))
    assert report["written"][0]["images"] == 0
    assert report["overlap"]["identities"] == 9


def test_real_people_leave_whose_other_pictures_are_in_lfw(facerts_data: Path, tmp_path: Path) -> None:
    how = Embedding(load_embedder(find_model("facerts-small"), threads=1))
    lfw = open_source(facerts_data / "lfw")
    strangers = open_source(facerts_data / "faces" / "val-000000.tar")
    assert lfw.labels is not None
    assert strangers.labels is not None
    several = np.flatnonzero(np.bincount(lfw.labels) >= 2)[:60]
    of_each = [np.flatnonzero(lfw.labels == label)[:2] for label in several]
    unpack(Subset(lfw, [first for first, _ in of_each]), tmp_path / "bench")
    merged = Joined([Subset(lfw, [second for _, second in of_each]), Subset(strangers, np.arange(200))])
    report = disjoin(merged, [tmp_path / "bench"], Target(tmp_path / "out.tar"), how, threshold=0.5)
    left = set(open_source(tmp_path / "out.tar").identities)
    people = {lfw.identities[label] for label in several}
    assert report["in"]["identities"] == 100
    # One picture against one: the model misses some.
    assert len(people - left) >= 40
    assert len(left - people) >= 38
