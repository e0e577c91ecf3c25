import numpy as np
import pytest

from facerts.datasets import open_benchmark, open_images
from facerts.embedding import load_table
from facerts.errors import DataError
from facerts.evaluation import embed_source
from facerts.evaluation.benchmark_runs import run_pairs
from facerts.evaluation.evaluation_options import EvaluationOptions
from facerts.evaluation.result_folder import load_result
from tests.evaluation.conftest import Plain

OPTIONS = EvaluationOptions(flip=False, every_pair=True, fmr=0.01, keep_crops=False)


def table_of(path, *sources, flip=False):
    """What Plain says of images, in another order, as somebody else's file."""
    names = []
    columns = {"embeddings": [], "quality": [], "norm": [], "uncertainty": []}
    for source in sources:
        outputs = embed_source(Plain(), source, flip=flip, progress=False)
        names += [source.key(row) for row in range(len(source))]
        columns["embeddings"].append(outputs.embedding)
        for key in ("quality", "norm", "uncertainty"):
            columns[key].append(getattr(outputs, key))
    order = np.random.default_rng(0).permutation(len(names))
    joined = {key: np.concatenate(parts)[order] for key, parts in columns.items()}
    np.savez(path, names=np.array(names)[order], **joined)
    return load_table(path)


def test_a_table_gives_the_numbers_of_the_model_whose_outputs_it_holds(named, tmp_path):
    table = table_of(tmp_path / "elsewhere.npz", open_benchmark(named).images)
    run_pairs(Plain(), ["verification", "reject"], [named], tmp_path / "model", OPTIONS)
    run_pairs(table, ["verification", "reject"], [named], tmp_path / "table", OPTIONS)
    (model, arrays), (other, copies) = (load_result(tmp_path / name) for name in ("model", "table"))
    who = {"name": "elsewhere", "sha256": table.sha256, "method": "unknown", "recipe_sha256": ""}
    assert other.model.to_json() == who
    section, copy = (one.of_kind("verification")["named"] for one in (model, other))
    assert (section.settings.pop("flip"), copy.settings.pop("flip")) == (False, None)
    copy.text = section.text
    for kind, name, expected in model.each():
        found = other.of_kind(kind)[name]
        assert (found.findings, found.text) == (expected.findings, expected.text)
        for one, another in zip(found.measures, expected.measures, strict=True):
            assert (one.name, one.of, one.value) == (another.name, another.of, pytest.approx(another.value, abs=1e-5))
    assert copies.keys() == arrays.keys()
    for key in ("names", "same", "pairs", "folds", "subjects"):
        np.testing.assert_array_equal(copies[f"verification/named/{key}"], arrays[f"verification/named/{key}"])
    for key in ("scores", "quality", "norm", "uncertainty", "sharpness"):
        np.testing.assert_allclose(copies[f"verification/named/{key}"], arrays[f"verification/named/{key}"], atol=1e-5)


def test_a_table_of_flipped_embeddings_is_taken_as_it_is(named, tmp_path):
    table = table_of(tmp_path / "flipped.npz", open_benchmark(named).images, flip=True)
    run_pairs(Plain(), ["verification"], [named], tmp_path / "model", EvaluationOptions(flip=True))
    scores = [load_result(tmp_path / "model")[1]["verification/named/scores"]]
    for flip in (False, True):
        run_pairs(table, ["verification"], [named], tmp_path / f"table{flip}", EvaluationOptions(flip=flip))
        scores.append(load_result(tmp_path / f"table{flip}")[1]["verification/named/scores"])
    np.testing.assert_allclose(scores[1], scores[0], atol=1e-5)
    np.testing.assert_array_equal(scores[1], scores[2])


def test_a_reference_needs_rows_too(named, non_faces, tmp_path):
    images = open_benchmark(named).images
    table = table_of(tmp_path / "t.npz", images)
    reference = open_images(non_faces)
    with pytest.raises(DataError, match="images of things have no row"):
        run_pairs(table, ["verification"], [named], tmp_path / "r", EvaluationOptions(reference=reference))
