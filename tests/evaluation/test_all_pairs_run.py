from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from facerts.datasets.listed_pairs import load_pair_list
from facerts.embedding import FaceOutputs
from facerts.errors import Error
from facerts.evaluation import embed_source
from facerts.evaluation.benchmark_runs import run_pairs
from facerts.evaluation.evaluation_options import EvaluationOptions
from facerts.evaluation.result_folder import load_result
from facerts.metrics.verification import roc
from tests.evaluation.conftest import Plain

EVERY = EvaluationOptions(every_pair=True, keep_crops=False, flip=False, fmr=0.01)


@pytest.fixture(scope="module")
def repeated(named, tmp_path_factory) -> Path:
    """The list of pairs, over images of which one stands twice by another name of the same person."""
    folder = tmp_path_factory.mktemp("repeated")
    shutil.copytree(named.parent, folder / "people")
    listing = folder / "people" / named.name
    keys = [listing.parent / key for key in listing.read_text().splitlines()[1].split(",")[:2]]
    keys[1].write_bytes(keys[0].read_bytes())
    return listing


def slow_pairs(
    listing: Path,
) -> tuple[FaceOutputs, NDArray[np.int64], NDArray[np.bool_], NDArray[np.float64]]:
    """Every pair of the images that differ, one by one: outputs, rows, same, cosine."""
    benchmark = load_pair_list(listing)
    images, labels = benchmark.images, benchmark.images.labels
    assert labels is not None
    outputs = embed_source(Plain(), images, flip=False, progress=False)
    seen: dict[bytes, int] = {}
    rows = [row for row in range(len(images)) if seen.setdefault(images.read(row), row) == row]
    pairs = np.array([(a, b) for place, a in enumerate(rows) for b in rows[place + 1 :]])
    vectors = outputs.embedding.astype(np.float64)
    cosine = np.array([vectors[a] @ vectors[b] for a, b in pairs])
    return outputs, pairs, labels[pairs[:, 0]] == labels[pairs[:, 1]], cosine


def test_numbers_are_those_of_every_pair_one_by_one(repeated, tmp_path):
    run_pairs(Plain(), ["verification"], [repeated], tmp_path, EVERY)
    content, arrays = load_result(tmp_path)
    section = content.of_kind("verification")["named"]
    found = {one.name: one for one in section.measures if one.of == {"pairs": "all pairs"}}
    _, pairs, same, cosine = slow_pairs(repeated)
    assert len(np.unique(pairs)) == section.images - 1
    assert found["genuine pairs"].value == same.sum()
    assert found["impostor pairs"].value == (~same).sum()
    curve = roc(cosine, same)
    assert found["AUROC"].value == pytest.approx(curve.auroc(), abs=1e-3)
    assert found["EER"].value == pytest.approx(curve.eer(), abs=1e-3)
    # 6,000 impostor pairs show one in a thousand, and no less.
    rates = {"FNMR at FMR 10%": 0.1, "FNMR at FMR 1%": 0.01, "FNMR at FMR 0.1%": 0.001}
    assert [name for name in found if name.startswith("FNMR")] == list(rates)
    for name, rate in rates.items():
        point, expected = found[name], curve.tar_at_far(rate)
        assert point.value == pytest.approx(1 - expected.tar, abs=1.01 / same.sum())
        assert point.passing == round(expected.achieved_far * (~same).sum()) <= rate * (~same).sum()
        assert point.threshold == pytest.approx(np.sort(cosine[~same])[::-1][point.passing], abs=1e-6)
    assert arrays["verification/named/all_genuine"].sum() == same.sum()
    assert arrays["verification/named/all_impostors"].sum() == (~same).sum()
    edges = arrays["verification/named/all_edges"]
    expected_counts, _ = np.histogram(cosine[~same], edges)
    assert np.abs(np.cumsum(arrays["verification/named/all_impostors"] - expected_counts)).max() <= 1
    fmr, fnmr = (arrays[f"verification/named/all_{key}"] for key in ("fmr", "fnmr"))
    assert (fmr[0], fmr[-1], fnmr[-1]) == (0, 1, 0)
    assert (np.diff(fmr) >= 0).all()
    assert (np.diff(fnmr) <= 0).all()


def test_without_identities_all_pairs_are_refused_by_name(plain, benchmark_folder, tmp_path):
    with pytest.raises(Error, match=r"people: all pairs need the identity of each image.*\.bin"):
        run_pairs(plain, ["verification"], [benchmark_folder / "people.bin"], tmp_path / "r", EVERY)
    assert not (tmp_path / "r").exists()
    assert not plain.batches  # nothing is embedded for nothing


@pytest.mark.parametrize(("every", "far"), [(False, 0.001), (True, 1e-5)])
def test_a_rate_beyond_the_pairs_names_itself_and_how_many_it_needs(plain, named, tmp_path, every, far):
    options = EvaluationOptions(every_pair=every, fars=(0.1, far), keep_crops=False)
    with pytest.raises(Error) as error:
        run_pairs(plain, ["verification"], [named], tmp_path / "r", options)
    assert f"FAR {far:g} needs at least {round(1 / far):,} impostor pairs" in str(error.value)
    assert ("all pairs of named" in str(error.value)) == every
    assert ("measure all pairs" in str(error.value)) != every
    assert not (tmp_path / "r").exists()
    # How many pairs all of them are is known once repetitions are.
    assert bool(plain.batches) == every


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.5, float("nan")])
def test_a_rate_that_is_none_is_refused(plain, named, tmp_path, rate):
    for every in (False, True):
        options = EvaluationOptions(every_pair=every, fars=(rate,), keep_crops=False)
        with pytest.raises(Error, match=r"not a valid FAR; .* above 0 and at most 1"):
            run_pairs(plain, ["verification"], [named], tmp_path / "r", options)
    plain.batches.clear()
    with pytest.raises(Error, match=r"not a valid FMR; .* between 0 and 1"):
        run_pairs(plain, ["reject"], [named], tmp_path / "r", EvaluationOptions(fmr=min(rate, 1.0)))
    assert not plain.batches


def test_reject_on_every_pair_is_that_of_the_pairs_one_by_one(repeated, tmp_path):
    run_pairs(Plain(), ["reject"], [repeated], tmp_path, EVERY)
    content, arrays = load_result(tmp_path)
    section = content.of_kind("reject")["named"]
    outputs, pairs, same, cosine = slow_pairs(repeated)
    assert outputs.quality is not None
    limit = np.sort(cosine[~same])[::-1][int(0.01 * (~same).sum())]
    worse = outputs.quality[pairs[same]].min(axis=1)
    wrong = (cosine[same] <= limit)[np.argsort(worse, kind="stable")]
    of_all = [one for one in section.measures if one.of["pairs"] == "all pairs"]
    assert list(dict.fromkeys(one.of["score"] for one in of_all)) == ["quality", "norm", "sharpness"]
    assert section.interval == "bootstrap over subjects"
    assert of_all[0].n == same.sum()
    assert of_all[0].threshold == pytest.approx(limit, abs=1e-6)
    curve, low, high = (arrays[f"reject/named/all pairs/quality/{name}"] for name in ("fnmr", "low", "high"))
    for share in (0.0, 0.1, 0.5):
        gone = int(share * len(wrong) + 1e-9)
        place = round(100 * share)
        assert curve[place] == pytest.approx(wrong[gone:].mean(), abs=2e-2)
        assert low[place] <= curve[place] <= high[place]
        if share < 0.5:
            shown = section.measure(f"{100 * share:g}% left out", pairs="all pairs", score="quality")
            assert (shown.value, shown.ci95) == (curve[place], (low[place], high[place]))


def test_people_without_two_different_images_make_no_genuine_pairs(plain, named, tmp_path):
    lines = ["first,second,same,fold,first_subject,second_subject"]
    for person in range(20):
        a, b = f"person_{person:04d}", f"person_{(person + 1) % 20:04d}"
        folder = tmp_path / "people" / a
        folder.mkdir(parents=True)
        for image in ("0000.jpg", "0001.jpg"):
            shutil.copy(named.parent / a / "0000.jpg", folder / image)
        lines.append(f"{a}/0000.jpg,{a}/0001.jpg,1,{person % 10},{a},{a}")
        lines.append(f"{a}/0000.jpg,{b}/0000.jpg,0,{person % 10},{a},{b}")
    listing = tmp_path / "people" / "twice.csv"
    listing.write_text("\n".join(lines))
    with pytest.raises(Error, match="twice: all pairs need at least two people, and two images of one"):
        run_pairs(plain, ["verification"], [listing], tmp_path / "r", EVERY)
