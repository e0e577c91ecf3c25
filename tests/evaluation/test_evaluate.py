import json
from dataclasses import replace

import numpy as np
import pytest

from facerts.datasets import open_benchmark, open_source
from facerts.datasets.template_benchmark import templates_from_identities
from facerts.embedding import FaceOutputs
from facerts.errors import DataError, Error, ModelError
from facerts.evaluation import embed_source, evaluate_verification
from facerts.evaluation.benchmark_runs import run_identification, run_pairs
from facerts.evaluation.comparison import compare
from facerts.evaluation.corruption_benchmark import run_corruptions
from facerts.evaluation.evaluation_options import EvaluationOptions
from facerts.evaluation.measure import Evaluation
from facerts.evaluation.ood import ood_of, run_ood
from facerts.evaluation.pair_verification import verification_of
from facerts.evaluation.rejection import reject_of
from facerts.evaluation.result_folder import ResultFolder
from facerts.images import decode_crop
from facerts.metrics.pair_intervals import verification_intervals


def test_with_flip_the_mirrors_embedding_is_added_and_quality_is_the_crops(plain, drawn_faces):
    source = open_source(drawn_faces)
    outputs = embed_source(plain, source, flip=True, progress=False)
    crops = np.stack([decode_crop(source.read(i), where="x") for i in range(len(source))])
    own, mirrored = plain(crops), plain(crops[:, :, ::-1])
    summed = own.embedding + mirrored.embedding
    np.testing.assert_allclose(outputs.embedding, summed / np.linalg.norm(summed, axis=1, keepdims=True), atol=1e-6)
    np.testing.assert_array_equal(outputs.quality, own.quality)


def test_verification_tells_all_that_its_numbers_rest_on(plain, drawn_benchmark):
    section, arrays = evaluate_verification(plain, drawn_benchmark, progress=False)
    found = {one.name: one for one in section.measures}
    assert (found["accuracy"].n, found["genuine pairs"].value, found["impostor pairs"].value) == (
        200,
        100,
        100,
    )
    low, high = found["accuracy"].ci95
    assert low <= found["accuracy"].value <= high
    assert found["accuracy"].value > 0.6
    # One of 100 impostors is the least that can be shown.
    assert [name for name in found if "FNMR" in name] == ["FNMR at FMR 10%", "FNMR at FMR 1%"]
    point = found["FNMR at FMR 1%"]
    assert point.passing <= 1
    assert point.ci95[0] <= point.value <= point.ci95[1]
    assert len(arrays["scores"]) == 200
    written = json.loads(json.dumps(section.to_json(), allow_nan=False))
    assert Evaluation.model_validate(written) == section


def test_intervals_draw_people_where_they_are_known_and_pairs_otherwise(plain, named, benchmark_folder):
    sections, arrays = zip(
        *(
            evaluate_verification(plain, open_benchmark(path), progress=False)
            for path in (named, benchmark_folder / "people.bin")
        ),
        strict=True,
    )
    people, pairs = sections
    assert (people.interval, "of 30 people" in people.text) == ("bootstrap over subjects", True)
    assert (pairs.interval, "people" in pairs.text) == ("bootstrap over pairs", False)
    assert "subjects" in arrays[0]
    assert "subjects" not in arrays[1]
    # The pairs are the same, so nothing else may differ by more than rounding.
    for key in ("AUROC", "EER"):
        assert people.measure(key).value == pytest.approx(pairs.measure(key).value, abs=1e-6)
        assert people.measure(key).ci95 != pytest.approx(pairs.measure(key).ci95, abs=1e-6)
    benchmark = open_benchmark(named)
    subjects = arrays[0]["subjects"][arrays[0]["pairs"]]
    scores = arrays[0]["scores"].astype(np.float64)
    expected = verification_intervals(scores, benchmark.same, [0.1], subjects=subjects)
    assert people.measure("AUROC").ci95 == pytest.approx(expected.auroc, abs=1e-3)
    low, high = people.measure("FNMR at FMR 10%").ci95
    assert (1 - high, 1 - low) == pytest.approx(expected.tar_at_far[0.1], abs=0.02)


def test_people_who_contradict_the_pairs_are_not_drawn(plain, named, tmp_path):
    """Benchmarks may come with pairs that their names disagree with; their readers say so and go on."""
    benchmark = open_benchmark(named)
    odd = replace(benchmark, same=np.where(np.arange(200) == 17, ~benchmark.same, benchmark.same))
    outputs = embed_source(plain, odd.images, flip=False, progress=False)
    section, arrays = verification_of(outputs, odd, flip=False)
    assert section.interval == "bootstrap over pairs"
    assert "subjects" not in arrays
    assert reject_of(outputs, odd, fmr=0.02)[0].interval == "bootstrap over pairs"
    section.data_sha256 = {odd.name: "a" * 64}
    folder = ResultFolder(tmp_path, plain)
    folder.add("verification", odd.name, section, arrays)
    folder.write()
    (differences,) = compare([tmp_path, tmp_path])[0].differences
    assert differences.interval == "bootstrap over pairs"


@pytest.mark.parametrize(
    ("same", "message"),
    [
        ([1] * 20, r"outside fold 0 there are 18 genuine and 0 impostor pairs"),
        ([0] * 20, r"outside fold 0 there are 0 genuine and 18 impostor pairs"),
        ([0] * 4 + [1] * 2 + [0] * 14, r"outside fold 2 there are 0 genuine and 18 impostor pairs"),
    ],
    ids=["no impostors", "nobody genuine", "all genuine pairs in one fold"],
)
def test_pairs_that_no_threshold_can_be_chosen_on_are_refused_before_anything_is_embedded(
    plain, drawn_benchmark, tmp_path, same, message
):
    lines = ["first,second,same"]
    for row, flag in enumerate(same):
        for side in "ab":
            (tmp_path / f"{row}{side}.jpg").write_bytes(drawn_benchmark.images.read(row))
        lines.append(f"{row}a.jpg,{row}b.jpg,{flag}")
    (tmp_path / "list.csv").write_text("\n".join(lines))
    with pytest.raises(DataError, match="list: " + message):
        run_pairs(plain, ["verification"], [tmp_path / "list.csv"], tmp_path / "r")
    assert not plain.batches


@pytest.fixture
def templates(plain, benchmark_folder, monkeypatch):
    """What the path "pooled" opens: templates of one image, and every pair of some of them."""
    source = open_source(benchmark_folder / "people")
    drawn = templates_from_identities(source)
    first, second = np.triu_indices(60, 1)
    subject = np.empty(len(drawn.template_ids), dtype=np.int64)
    subject[drawn.template] = source.labels
    pairs = np.stack([first, second], axis=1)
    benchmark = replace(drawn, name="pooled", pairs=pairs, same=subject[first] == subject[second])
    monkeypatch.setattr("facerts.evaluation.benchmark_runs.is_template_benchmark", lambda path: str(path) == "pooled")
    monkeypatch.setattr("facerts.evaluation.benchmark_runs.open_templates", lambda path: benchmark)
    return benchmark


def test_what_templates_cannot_be_asked_for_is_refused_and_not_left_out(plain, templates, tmp_path):
    impostors = int((~templates.same).sum())
    all_pairs, rate = EvaluationOptions(every_pair=True), EvaluationOptions(fmrs=(1e-5,))
    for kind, options, message in (
        (
            "reject",
            EvaluationOptions(),
            "pooled: error versus reject needs pairs of images, .* has templates",
        ),
        ("verification", all_pairs, "pooled: all pairs are pairs of images, .* templates"),
        ("verification", rate, f"pooled: FMR 1e-05 needs .* there are {impostors:,}"),
    ):
        with pytest.raises(Error, match=message):
            run_pairs(plain, [kind], ["pooled"], tmp_path / "r", options)
    assert not plain.batches
    with pytest.raises(Error, match="two sources have the same name, 'pooled'"):
        run_pairs(plain, ["verification"], ["pooled", "pooled"], tmp_path / "r")


def test_a_model_without_scores_cannot_reject(plain, drawn_benchmark):
    outputs = embed_source(plain, drawn_benchmark.images, flip=False, progress=False)
    with pytest.raises(ModelError, match="neither a quality nor a norm"):
        reject_of(FaceOutputs(outputs.embedding), drawn_benchmark)


def scored(values):
    quality = np.array(values, dtype=np.float32)
    return FaceOutputs(np.ones((len(values), 1), dtype=np.float32), quality=quality, uncertainty=-quality)


def test_ood_measures_every_source_by_itself_and_all_together():
    section, arrays = ood_of(
        {"sharp": scored([3, 4, 5]), "soft": scored([1, 2, 3])},
        {"pets": scored([0, 1, 2])},
        {name: ["x"] * 3 for name in ("sharp", "soft", "pets")},
    )
    area = {one.of["faces"]: one.value for one in section.measures if one.name == "AUROC"}
    assert area == pytest.approx({"sharp and soft": (9 + 7) / 18, "sharp": 1.0, "soft": 7 / 9})
    assert "Faces: sharp 3, soft 3." in section.text
    assert arrays["pets/quality"].tolist() == [0, 1, 2]
    with pytest.raises(Error, match="--in"):
        ood_of({}, {"pets": scored([1])}, {"pets": ["x"]})


def test_names_that_would_overwrite_each_other_are_refused(plain, benchmark_folder, drawn_faces, tmp_path):
    with pytest.raises(Error, match="two sources have the same name, 'people'"):
        run_pairs(plain, ["verification"], [benchmark_folder / "people.bin"] * 2, tmp_path / "r")
    with pytest.raises(Error, match="two sources have the same name"):
        run_ood(plain, [str(drawn_faces)], [str(drawn_faces)], tmp_path / "r")
    with pytest.raises(Error, match="two sources have the same name"):
        run_corruptions(plain, [str(drawn_faces)] * 2, tmp_path / "r", images=2)
    with pytest.raises(Error, match="two sources have the same name, 'faces'"):
        run_identification(plain, [str(drawn_faces)] * 2, tmp_path / "r")
    with pytest.raises(DataError, match="excludes every image"):
        run_ood(plain, [str(drawn_faces)], [str(drawn_faces)], tmp_path / "r", exclude_faces="*")


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": "other"}'])
def test_a_folder_with_something_else_is_refused(plain, tmp_path, text):
    (tmp_path / "result.json").write_text(text)
    with pytest.raises(DataError, match=r"result\.json"):
        ResultFolder(tmp_path, plain)
