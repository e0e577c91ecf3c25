"""The people of a benchmark are removed from a data set, checked against a comparison of all pairs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from facerts.curation.exclude_overlap import exclude_overlap, open_benchmark_images
from facerts.curation.output_spec import OutputSpec
from facerts.datasets import Subset, open_source, pairs_from_identities
from facerts.datasets.bin_set import write_bin
from facerts.errors import DataError, Error
from tests.contents import content
from tests.curation.conftest import embeddings_of

Exclude = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def benchmark(faces, tmp_path_factory):
    """A folder with images of persons 4 and 6."""
    folder = tmp_path_factory.mktemp("benchmark") / "bench"
    folder.mkdir()
    for number in range(4):
        (folder / f"4_{number}.png").write_bytes((faces / "other_0004" / f"{number}.png").read_bytes())
        (folder / f"6_{number}.jpg").write_bytes((faces / "person_0006" / f"000{number}.jpg").read_bytes())
    return folder


@pytest.fixture
def run_exclude(faces, benchmark, embedder, tmp_path):
    def run(**options):
        return exclude_overlap(open_source(faces), [benchmark], OutputSpec(tmp_path / "out.tar"), embedder, **options)

    return run


def nearest(faces, benchmark):
    """The maximum cosine of the mean and of the single images of each identity to the benchmark."""
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
def test_identities_that_look_like_somebody_in_the_benchmark_are_dropped(
    run_exclude, faces, benchmark, tmp_path, single_images, threshold, monkeypatch
):
    monkeypatch.setattr("facerts.curation.exclude_overlap.BLOCK_SIZE", 5)
    report = run_exclude(threshold=threshold, single_images=single_images)
    means, singles = nearest(faces, benchmark)
    maximum = {person: max(means[person], singles[person]) if single_images else means[person] for person in means}
    dropped = {person for person, cosine in maximum.items() if cosine >= threshold}
    assert 0 < len(dropped) < 9
    remaining = content(tmp_path / "out.tar")
    assert {person for person, _ in remaining} == set(means) - dropped
    assert all(row[0] in dropped for row in content(faces) - remaining)
    rows = report["dropped"]["list"]
    assert {row["identity"] for row in rows} == dropped
    assert len(rows) == report["dropped"]["images"] == sum(content(faces).values()) - sum(remaining.values())
    for row in rows:
        assert row["cosine"] == pytest.approx(maximum[row["identity"]], abs=1e-3)
        assert Path(row["resembles"]).parent == benchmark
        if not single_images:
            assert row["by"] == "mean"
    assert report["overlap"]["identities"] == len(dropped)
    kept = [row["identity"] for row in report["overlap"]["nearest_kept"]]
    assert kept == sorted(set(means) - dropped, key=lambda person: -maximum[person])


def test_every_kind_of_benchmark_is_accepted(faces, embedder, tmp_path):
    source = open_source(faces)
    people = [1, 2, 6, 7]
    some = Subset(source, np.flatnonzero(np.isin(source.labels, people)))
    pairs = pairs_from_identities(some, genuine=20, impostors=20, seed=0)
    images = [pairs.images.read(int(index)) for index in pairs.pairs.reshape(-1)]
    write_bin(tmp_path / "set.bin", images, pairs.same.tolist())
    lfw = tmp_path / "lfw"
    for person in ("A", "B", "C"):
        for number in range(1, 4):
            path = lfw / person / f"{person}_{number:04d}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes((faces / "person_0007" / f"000{number}.jpg").read_bytes())
    (lfw / "pairs.txt").write_text("2 1\n" + 2 * "A 1 2\nA 1 B 2\n")
    named = open_benchmark_images(lfw)
    keys = sorted(named.key(index) for index in range(len(named)))
    assert keys == ["A/A_0001.jpg", "A/A_0002.jpg", "B/B_0002.jpg"]
    both = [lfw, tmp_path / "set.bin"]
    report = exclude_overlap(
        source, both, OutputSpec(tmp_path / "out.tar"), embedder, threshold=0.9999, single_images=True
    )
    assert report["benchmarks"]["images"] == len(named) + len(images)
    dropped = set(source.identities) - set(open_source(tmp_path / "out.tar").identities)
    assert dropped == {source.identities[label] for label in people} | {"person_0007"}


def test_unreadable_images_of_the_benchmark_are_reported(faces, benchmark, embedder, tmp_path):
    broken = tmp_path / "bench"
    broken.mkdir()
    for image in benchmark.iterdir():
        (broken / image.name).write_bytes(image.read_bytes())
    (broken / "0_broken.jpg").write_bytes(b"no")

    def dropped(single_images):
        output = OutputSpec(tmp_path / f"{single_images}.tar")
        report = exclude_overlap(
            open_source(faces), [broken], output, embedder, threshold=0.9, single_images=single_images
        )
        assert len(report["benchmarks"]["unreadable"]) == 1
        return [row for row in report["overlap"]["left_out"] if row["identity"] == "other_0004"]

    # The other matches still have the right names, with and without single images.
    (by_mean,), (by_image,) = dropped(False), dropped(True)
    assert Path(by_mean["resembles"]).name.startswith("4_")
    assert Path(by_image["resembles"]).read_bytes() == Path(by_image["by"]).read_bytes()


def test_a_source_without_identities_is_refused(non_faces, benchmark, embedder, tmp_path):
    with pytest.raises(DataError, match="no identities to exclude"):
        exclude_overlap(open_source(non_faces), [benchmark], OutputSpec(tmp_path / "out"), embedder)


def test_a_dry_run_explains_why_nobody_remains(faces, embedder, tmp_path):
    def run(**options):
        output = OutputSpec(tmp_path / "out", **options)
        return exclude_overlap(open_source(faces), [faces], output, embedder, threshold=0.99, single_images=True)

    with pytest.raises(Error, match=r"no image is left .* --dry-run"):
        run()
    assert not any(tmp_path.iterdir())
    report = run(dry_run=True)
    assert report["written"][0]["images"] == 0
    assert report["overlap"]["identities"] == 9
