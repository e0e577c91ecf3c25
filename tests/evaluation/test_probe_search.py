from dataclasses import replace

import numpy as np
import pytest

from facerts.datasets import Roster, TemplateBenchmark
from facerts.embedding import FaceOutputs
from facerts.errors import DataError
from facerts.evaluation.probe_search import identification_of
from facerts.evaluation.wording import measured
from facerts.metrics.intervals import resampled_rate_interval
from tests.evaluation.conftest import Unread, unit

SIZE, REPLICATES = 16, 60
RANKS, FPIRS = (1, 2, 5), (0.02, 0.1, 0.4)


def rates(outputs, benchmark, gallery="G1", **options):
    """Measures of a gallery, by their names."""
    section = identification_of(outputs, benchmark, **options)
    return {one.name: one for one in section.measures if one.of["gallery"] == gallery}


def fnir(target):
    return f"FNIR at FPIR {100 * target:g}%"


def benchmark_of(subjects, gallery, probes):
    """One image a template; galleries and probes are rows of templates."""
    rows = np.arange(len(subjects))
    return TemplateBenchmark(
        "drawn",
        Unread(len(subjects)),
        rows,
        rows,
        rows,
        np.empty((0, 2), dtype=np.int64),
        np.empty(0, dtype=bool),
        tuple(Roster(f"G{n}", templates, subjects[templates]) for n, templates in enumerate(gallery, 1)),
        None if probes is None else Roster("probes", probes, subjects[probes]),
    )


@pytest.fixture(scope="module", params=["distinct scores", "equal scores"])
def case(request):
    """40 people of 8 templates; up to four of each are in a gallery, people 0 to 19 in G1, 15 to 29 in G2."""
    random = np.random.default_rng(2)
    subjects = np.repeat(np.arange(40) * 7 + 3, 8)  # neither from 0 nor without gaps
    centers = random.normal(size=(40, SIZE))
    embedding = unit(np.repeat(centers, 8, axis=0) + 1.3 * random.normal(size=(len(subjects), SIZE)))
    if request.param == "equal scores":
        embedding = np.sign(embedding) / np.float32(np.sqrt(SIZE))  # cosines are whole sixteenths, exactly
    person, place = np.arange(len(subjects)) // 8, np.arange(len(subjects)) % 8
    kept = place < 1 + person % 4
    galleries = [np.flatnonzero(kept & (person < 20)), np.flatnonzero(kept & (person >= 15) & (person < 30))]
    # More probes of some people than of others.
    probes = np.flatnonzero((place >= 4) & (place < 5 + person % 4))
    return FaceOutputs(embedding), benchmark_of(subjects, galleries, random.permutation(probes))


def slow_ranks(outputs, gallery, probes):
    """Best score and rank of each probe, by sorting people by their best score; 0 where a person is unknown."""
    similarity = outputs.embedding[probes.templates] @ outputs.embedding[gallery.templates].T
    ranks = []
    for row, subject in zip(similarity, probes.subjects, strict=True):
        best = {int(who): float(row[gallery.subjects == who].max()) for who in np.unique(gallery.subjects)}
        # Equal scores: the right person last.
        order = sorted(best, key=lambda who: (-best[who], who == subject))
        ranks.append(order.index(int(subject)) + 1 if int(subject) in best else 0)
    return similarity.max(axis=1).astype(np.float64), np.array(ranks)


def slow_fnir(best, ranks, mated, target):
    """The fewest misses over all thresholds at which few enough non-mated probes pass."""
    others = best[~mated]
    thresholds = [-np.inf, *(np.nextafter(value, np.inf) for value in others)]
    allowed = [t for t in thresholds if np.mean(others >= t) <= target + 1e-12]
    return min(float(np.mean((ranks[mated] != 1) | (best[mated] < t))) for t in allowed)


@pytest.mark.parametrize("number", [0, 1])
def test_rates_are_those_of_the_sorted_similarities(case, number):
    outputs, benchmark = case
    gallery, probes = benchmark.galleries[number], benchmark.probes
    entry = rates(outputs, benchmark, gallery.name, ranks=RANKS, fpirs=FPIRS, replicates=5)
    best, ranks = slow_ranks(outputs, gallery, probes)
    mated = ranks > 0
    counts = {"people": (20, 15)[number], "mated": mated.sum(), "non-mated": (~mated).sum()}
    assert {name: entry[name].value for name in counts} == counts
    assert list(entry) == [*(f"rank {k}" for k in RANKS), *map(fnir, FPIRS), *counts]
    assert entry["rank 1"].of == {"gallery": gallery.name, "pooling": "mean"}
    for k in RANKS:
        assert entry[f"rank {k}"].value == np.mean(ranks[mated] <= k)
    for target in FPIRS:
        point = entry[fnir(target)]
        assert point.value == pytest.approx(slow_fnir(best, ranks, mated, target))
        assert point.passing == np.sum(best[~mated] >= point.threshold) <= target * (~mated).sum()
        assert point.n == mated.sum()


def test_intervals_are_those_of_probes_repeated_one_by_one(case):
    outputs, benchmark = case
    gallery, probes = benchmark.galleries[0], benchmark.probes
    entry = rates(outputs, benchmark, ranks=RANKS, fpirs=FPIRS, replicates=REPLICATES)
    best, ranks = slow_ranks(outputs, gallery, probes)
    people = np.unique(probes.subjects)
    random = np.random.default_rng(0)
    drawn = {}
    for _ in range(REPLICATES):
        chosen = people[random.integers(0, len(people), len(people))]
        rows = np.concatenate([np.flatnonzero(probes.subjects == who) for who in chosen])
        repeated, mated = ranks[rows], ranks[rows] > 0
        for k in RANKS:
            drawn.setdefault(f"rank {k}", []).append(float(np.mean(repeated[mated] <= k)))
        for target in FPIRS:
            drawn.setdefault(fnir(target), []).append(slow_fnir(best[rows], repeated, mated, target))
    searched = len(np.intersect1d(people, gallery.subjects))
    for name in drawn:
        point = entry[name]
        # Of what never happened, resampling would say that it cannot.
        expected = resampled_rate_interval(np.array(drawn[name]), point.value, searched)
        np.testing.assert_allclose(point.ci95, expected, atol=1e-9)
        assert point.ci95[0] < point.ci95[1]


def test_many_templates_of_another_person_count_as_one_person_ahead():
    embedding = np.eye(SIZE, dtype=np.float32)[[0, 0, 0, 0, 0, 0, 1, 2, 0]]
    embedding[-1] = unit(np.arange(SIZE, 0, -1))
    benchmark = benchmark_of(np.array([4] * 6 + [5, 6, 5]), [np.arange(8)], np.array([8]))
    entry = rates(FaceOutputs(embedding), benchmark, ranks=(1, 2), replicates=5)
    assert [entry[f"rank {k}"].value for k in (1, 2)] == [0, 1]


def test_ties_that_go_on_beyond_the_search_do_not_help():
    people = 30
    subjects = np.tile(np.arange(people), 2)
    embedding = np.ones((2 * people, SIZE), dtype=np.float32) / np.sqrt(np.float32(SIZE))
    benchmark = benchmark_of(subjects, [np.arange(people)], np.arange(people, 2 * people))
    entry = rates(FaceOutputs(embedding), benchmark, ranks=(1, 10, 30), replicates=5)
    # Among the first 30 of 30 people is everybody.
    assert {name: one.value for name, one in entry.items() if "rank" in name} == {"rank 1": 0, "rank 10": 0}
    # Nor does it matter how single images are pooled.
    with_quality = FaceOutputs(embedding, quality=np.arange(2 * people, dtype=np.float32))
    found = identification_of(with_quality, benchmark, replicates=5).measures
    assert {one.of["pooling"] for one in found} == {"mean"}


def test_without_non_mated_probes_there_are_ranks_alone(case):
    outputs, benchmark = case
    probes, gallery = benchmark.probes, benchmark.galleries[0]
    inside = np.isin(probes.subjects, gallery.subjects)
    closed = Roster("inside", probes.templates[inside], probes.subjects[inside])
    entry = rates(outputs, replace(benchmark, galleries=(gallery,), probes=closed), replicates=5)
    whole = rates(outputs, benchmark, replicates=5)
    assert entry["non-mated"].value == 0
    assert not any("FNIR" in name for name in entry)
    for k in (1, 5, 10):
        assert entry[f"rank {k}"].value == whole[f"rank {k}"].value


def test_a_threshold_that_lets_everybody_pass_is_null(case):
    entry = rates(*case, ranks=(1,), fpirs=(1.0,), replicates=5)
    point, first = entry[fnir(1)], entry["rank 1"]
    assert point.threshold is None
    assert point.value == pytest.approx(1 - first.value)
    np.testing.assert_allclose(sorted(1 - np.array(point.ci95)), sorted(first.ci95), atol=1e-12)


def test_the_first_search_is_said_in_words(case):
    section = identification_of(*case, replicates=5)
    first, missed = section.measures[0], section.measure("FNIR at FPIR 10%")
    assert section.findings == [
        f"Among 20 people it ranks the right one first in {measured(first.value, first.ci95)} of {first.n} searches.",
        f"Where 10% of the searches for strangers may find somebody, it misses "
        f"{measured(missed.value, missed.ci95)} of the enrolled.",
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"probes": None}, "drawn: identification needs .* no probes"),
        ({"galleries": ()}, "drawn: identification needs .* no galleries"),
        (
            {"probes": Roster("strangers", np.array([0, 1]), np.array([-1, -2]))},
            "drawn: G1 contains none of the probes' people",
        ),
    ],
)
def test_nothing_to_search_is_refused(case, change, message):
    outputs, benchmark = case
    with pytest.raises(DataError, match=message):
        identification_of(outputs, replace(benchmark, **change))
