import shutil

import numpy as np
import pytest

from facerts.datasets.listed_pairs import load_pair_list
from facerts.errors import Error
from facerts.evaluation import embed_source
from facerts.evaluation.benchmark_runs import run_pairs
from facerts.evaluation.evaluation_options import EvaluationOptions
from facerts.evaluation.result_folder import load_result
from facerts.metrics.all_pairs import all_pairs
from facerts.metrics.error_versus_reject import error_versus_reject
from tests.evaluation.conftest import Plain

EVERY = EvaluationOptions(every_pair=True, keep_crops=False, flip=False, fmr=0.01)


@pytest.fixture(scope="module")
def repeated(named, tmp_path_factory):
    """The list of pairs, over images of which one stands twice by another name of the same person."""
    folder = tmp_path_factory.mktemp("repeated")
    shutil.copytree(named.parent, folder / "people")
    listing = folder / "people" / named.name
    keys = [listing.parent / key for key in listing.read_text().splitlines()[1].split(",")[:2]]
    keys[1].write_bytes(keys[0].read_bytes())
    return listing


@pytest.fixture(scope="module")
def different(repeated):
    """The images that are not repetitions: their outputs, and all pairs of them."""
    images = load_pair_list(repeated).images
    seen = {}
    rows = np.array([row for row in range(len(images)) if seen.setdefault(images.read(row), row) == row])
    outputs = embed_source(Plain(), images, flip=False, progress=False).take(rows)
    assert len(outputs) == len(images) - 1
    return outputs, all_pairs(outputs.embedding, images.labels[rows])


@pytest.fixture(scope="module")
def result(repeated, tmp_path_factory):
    out = tmp_path_factory.mktemp("result")
    run_pairs(Plain(), ["verification", "reject"], [repeated], out, EVERY)
    return load_result(out)


def test_numbers_are_those_of_all_pairs_of_the_images_that_differ(result, different):
    content, arrays = result
    section = content.of_kind("verification")["named"]
    found = {one.name: one for one in section.measures if one.of == {"pairs": "all pairs"}}
    _, every = different
    counts = [found[f"{kind} pairs"].value for kind in ("genuine", "impostor")]
    assert counts == [len(every.genuine), every.impostors]
    assert found["AUROC"].value == pytest.approx(every.auroc()[0])
    assert found["EER"].value == pytest.approx(every.roc().eer())
    # 6,000 impostor pairs show one in a thousand, and no less.
    rates = {"FNMR at FMR 10%": 0.1, "FNMR at FMR 1%": 0.01, "FNMR at FMR 0.1%": 0.001}
    assert [name for name in found if name.startswith("FNMR")] == list(rates)
    for name, rate in rates.items():
        point, expected = found[name], every.tar_at_far(rate)
        assert (point.value, point.threshold) == (pytest.approx(1 - expected.tar), pytest.approx(expected.threshold))
        assert point.passing == every.accepted(expected.threshold) <= rate * every.impostors
    drawn = {key: arrays[f"verification/named/all_{key}"] for key in ("genuine", "impostors", "edges", "fmr", "fnmr")}
    assert [drawn["genuine"].sum(), drawn["impostors"].sum()] == counts
    expected_counts, _ = np.histogram(every.tail, drawn["edges"])
    assert np.abs(np.cumsum(drawn["impostors"] - expected_counts)).max() <= 1
    assert (drawn["fmr"][0], drawn["fmr"][-1], drawn["fnmr"][-1]) == (0, 1, 0)


def test_without_identities_all_pairs_are_refused_by_name(plain, benchmark_folder, tmp_path):
    with pytest.raises(Error, match=r"people: all pairs need the identity of each image.*\.bin"):
        run_pairs(plain, ["verification"], [benchmark_folder / "people.bin"], tmp_path / "r", EVERY)
    assert not (tmp_path / "r").exists()
    assert not plain.batches  # nothing is embedded for nothing


@pytest.mark.parametrize(("every", "far"), [(False, 0.001), (True, 1e-5)])
def test_a_rate_beyond_the_pairs_names_itself_and_how_many_it_needs(plain, named, tmp_path, every, far):
    options = EvaluationOptions(every_pair=every, fmrs=(0.1, far), keep_crops=False)
    with pytest.raises(Error) as error:
        run_pairs(plain, ["verification"], [named], tmp_path / "r", options)
    assert f"FMR {far:g} needs at least {round(1 / far):,} impostor pairs" in str(error.value)
    assert ("all pairs of named" in str(error.value)) == every
    assert ("measure all pairs" in str(error.value)) != every
    assert not (tmp_path / "r").exists()
    # How many pairs all of them are is known once repetitions are.
    assert bool(plain.batches) == every
    plain.batches.clear()
    with pytest.raises(Error, match=r"named: 1\.5 is not a valid FMR"):
        run_pairs(plain, ["reject"], [named], tmp_path / "r", EvaluationOptions(fmr=1.5))
    assert not plain.batches


def test_reject_on_all_pairs_is_that_of_the_images_that_differ(result, different):
    content, arrays = result
    section = content.of_kind("reject")["named"]
    outputs, every = different
    of_all = [one for one in section.measures if one.of["pairs"] == "all pairs"]
    assert list(dict.fromkeys(one.of["score"] for one in of_all)) == ["quality", "norm", "sharpness"]
    assert section.interval == "bootstrap over subjects"
    expected = error_versus_reject(every, {"quality": outputs.quality}, [0.01])[0.01]
    assert (of_all[0].n, of_all[0].threshold) == (len(every.genuine), pytest.approx(expected.threshold))
    curve = expected.by["quality"]
    for name, values in (("fnmr", curve.fnmr), ("low", curve.ci95[0]), ("high", curve.ci95[1])):
        np.testing.assert_allclose(arrays[f"reject/named/all pairs/quality/{name}"], values, atol=1e-9)
    shown = section.measure("10% left out", pairs="all pairs", score="quality")
    assert shown.value == pytest.approx(curve.fnmr[10])
    assert shown.ci95 == pytest.approx(tuple(curve.ci95[:, 10]))


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
