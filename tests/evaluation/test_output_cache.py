"""Evaluations embed once: a second one of the same model and images takes what the first one kept."""

import json
import shutil
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from facerts.datasets import open_source
from facerts.datasets.synthetic import draw_face
from facerts.detection.detector import Detection
from facerts.embedding import FaceOutputs, OnnxQuality, load_embedder
from facerts.embedding.embed import score_source
from facerts.embedding.output_cache import OutputCache
from facerts.evaluation.benchmark_runs import run_pairs
from facerts.evaluation.corruption_benchmark import run_corruptions
from facerts.evaluation.evaluation_options import EvaluationOptions
from facerts.evaluation.ood import run_ood
from facerts.evaluation.result_folder import load_result
from facerts.images import encode_png
from tests.command import run
from tests.foreign import quality_description, write_description, write_embedder, write_quality

pytestmark = pytest.mark.usefixtures("few_changes", "few_replicates")

# Crops of each kind of evaluation; the first is that of every run of the tests.
IMAGES = {"reject": 120, "verification": 120, "identification": 64, "ood": 64 + 24}
KINDS = ["reject", *(pytest.param(kind, marks=pytest.mark.slow) for kind in list(IMAGES)[1:])]
STEPS = 1 + 2 * 5


@pytest.fixture
def model(tmp_path):
    return write_description(write_embedder(tmp_path / "model.onnx"))


def quality_file(path):
    write_quality(path).with_suffix(".json").write_text(json.dumps(quality_description(name=path.stem)))
    return path


def content(folder):
    """What a result says, but for its date and command."""
    result, arrays = load_result(folder)
    fields = {k: v for k, v in result.to_json().items() if k not in {"command", "created"}}
    return fields, {name: values.tolist() for name, values in arrays.items()}


@pytest.fixture
def command(kind, model, named, drawn_faces, non_faces):
    """An evaluation of the model, without the mirror images of pairs."""
    data = {
        "verification": ["--data", named, "--set", "flip=false", "--reference", non_faces],
        "reject": ["--data", named, "--set", "flip=false", "--fmr", "0.01"],
        "identification": ["--data", drawn_faces],
        "ood": ["--in", drawn_faces, "--out-of", non_faces],
        "corruptions": ["--data", drawn_faces, "--images", "2"],
    }
    return ["evaluate", kind, "--model", model, *data[kind]]


@pytest.mark.parametrize("kind", [*KINDS, pytest.param("corruptions", marks=pytest.mark.slow)])
def test_a_second_evaluation_runs_no_network_and_gives_the_same_numbers(command, tmp_path, passed):
    assert run(*command, "--out", tmp_path / "first") == 0
    once = passed.total()
    assert once > 0
    assert run(*command, "--out", tmp_path / "other", "--set", f"output_cache={tmp_path / 'first' / 'cache'}") == 0
    assert passed.total() == once
    assert not (tmp_path / "other" / "cache").exists()
    assert run(*command, "--out", tmp_path / "alone") == 0
    assert passed.total() == 2 * once
    assert content(tmp_path / "alone") == content(tmp_path / "first") == content(tmp_path / "other")


@pytest.mark.parametrize("kind", KINDS)
def test_each_part_runs_once_for_each_crop(kind, command, model, tmp_path, passed):
    def passes(name, *options):
        passed.clear()
        assert run(*command, "--out", tmp_path / name, *options) == 0
        return Counter(passed)

    quality = quality_file(tmp_path / "alone.onnx")
    own = passes("own")
    assert passes("same file", "--quality", model) == passes("named", "--quality", "own") == own
    # Verification also embeds the reference, and swaps channels; the mirror images of identification need no quality.
    again = own["model"] - IMAGES[kind] if kind == "verification" else 0
    assert passes("two", "--quality", quality) == {**own, "alone": IMAGES[kind] + again}
    assert passes("two", "--quality", quality) == {}, "the cache has the outputs of both"
    if kind == "ood":
        two, arrays = load_result(tmp_path / "two")
        expected = score_source(open_source(command[5]), {"q": OnnxQuality(quality)})["q"]
        np.testing.assert_allclose(arrays["ood/non-faces/faces/quality"], expected, atol=1e-5)
        assert two.model.name == "model with alone"
    assert run(*command, "--out", tmp_path / "own", "--quality", quality) == 2, "it holds another model's results"


def test_a_second_quality_needs_no_pass_of_the_recognizers(model, drawn_faces, tmp_path, passed):
    write_description(write_embedder(tmp_path / "other.onnx", seed=1))
    recognizers = ["--recognizer", tmp_path / "other.onnx", "--recognizer", model]
    command = ["evaluate", "corruptions", "--data", drawn_faces, "--images", "2"]
    found = {}
    for name in ("one", "two", "alone"):
        more = [*recognizers * (name != "alone"), "--set", f"output_cache={tmp_path / 'cache'}"]
        passed.clear()
        quality = quality_file(tmp_path / f"{name}.onnx")
        assert run(*command, "--model", quality, "--out", tmp_path / name, *more) == 0
        recognized = dict.fromkeys(("model", "other"), 2 * STEPS + 2) if name == "one" else {}
        assert passed == {name: 2 * STEPS, **recognized}
        result, arrays = load_result(tmp_path / name)
        section = result.of_kind("corruptions")["faces"]
        agreement = [one.value for one in section.measures if one.of.get("score") == "cosine of model"]
        found[name] = section, agreement, *(arrays.get(f"corruptions/faces/blur/{key}") for key in ("cosine", "kept"))
    for one, other in zip(found["one"][1:], found["two"][1:], strict=True):
        np.testing.assert_array_equal(one, other)
    section, agreement, cosine, kept = found["alone"]
    assert (agreement, cosine, section.find("ρ, all")) == ([], None, None)
    np.testing.assert_array_equal(kept, found["two"][3])


class Detects:
    """A detector that finds a face of the given width in bright images alone."""

    def __init__(self, identity, width=40.0):
        self.identity, self._width, self.calls = identity, width, 0

    def __call__(self, image):
        self.calls += 1
        if image.mean() < 60:
            return []
        points = np.array([[38, 52], [38 + self._width, 52], [56, 72], [42, 92], [70, 92]], dtype=float)
        return [Detection(np.array([10.0, 10, 100, 100]), points, 0.9)]


def other_mean(description):
    fields = json.loads(description.read_text())
    fields["input"]["mean"] = [100, 100, 100]
    description.write_text(json.dumps(fields))


@pytest.mark.parametrize("change", ["image", "model", "description", "flip", "batch", "detector", "versions"])
def test_what_changes_the_outputs_makes_new_ones(change, model, named, tmp_path, passed, monkeypatch):
    named = shutil.copytree(named.parent, tmp_path / "people") / named.name
    options = EvaluationOptions(fmr=0.01, flip=False, cache=OutputCache(tmp_path / "cache"))

    def passes(options):
        passed.clear()
        run_pairs(load_embedder(model), ["reject"], [named], tmp_path / f"{len(list(tmp_path.iterdir()))}", options)
        return passed.total()

    assert passes(options) > 0
    assert passes(options) == 0
    if change == "image":
        sorted(named.parent.rglob("*.*g"))[0].write_bytes(encode_png(draw_face(77, 0)))
    elif change == "model":
        write_embedder(model, seed=1)
    elif change == "description":
        other_mean(model.with_suffix(".json"))
    elif change == "versions":
        monkeypatch.setattr("facerts.evaluation.evaluation_options.installed_versions", lambda: {"numpy": "9"})
    changes = {"flip": {"flip": True}, "batch": {"batch_size": 7}, "detector": {"detector": Detects("one")}}
    assert passes(replace(options, **changes.get(change, {}))) > 0


@pytest.mark.parametrize("damage", ["empty", "truncated", "flipped", "other", "rows", "infinite", "pickled", "folder"])
def test_a_damaged_file_is_noticed_and_made_again(damage, tmp_path, capsys):
    cache, made = OutputCache(tmp_path / "cache"), []
    random = np.random.default_rng(0)
    vectors, quality = (random.normal(size=size).astype(np.float32) for size in ((5, 300), 5))

    def outputs():
        made.append(damage)
        return FaceOutputs(vectors, quality=quality, extras={"x": -quality})

    cache.outputs({"model": "a"}, 5, outputs)
    (file,) = (tmp_path / "cache").iterdir()
    good, arrays, half = file.read_bytes(), dict(np.load(file)), file.stat().st_size // 2
    if damage in (cut := {"empty": b"", "truncated": good[:half]}) or damage == "flipped":
        file.write_bytes(cut.get(damage, good[:half] + bytes([good[half] ^ 1]) + good[half + 1 :]))
    elif damage == "folder":
        file.unlink()
        file.mkdir()
    else:
        changed = {
            "other": {"key": np.array("0" * 64)},
            "rows": {"embedding": vectors[1:]},
            "infinite": {"embedding": vectors * np.float32(np.nan)},
            "pickled": {"extra/x": np.array([{}] * 5)},
        }
        np.savez(file, **{**arrays, **changed[damage]})
    found = cache.outputs({"model": "a"}, 5, outputs)
    assert len(made) == 2
    assert f"warning: {file}" in capsys.readouterr().err
    if damage != "folder":
        assert file.read_bytes() == good
        found = cache.outputs({"model": "a"}, 5, outputs)
        assert len(made) == 2
    for values, expected in ((found.embedding, vectors), (found.quality, quality), (found.extras["x"], -quality)):
        np.testing.assert_array_equal(values, expected)


def test_a_folder_that_cannot_be_written_costs_the_cache_alone(tmp_path, capsys):
    (tmp_path / "file").write_text("no folder")
    kept = OutputCache(tmp_path / "file" / "cache").outputs({}, 2, lambda: FaceOutputs(np.eye(2, dtype=np.float32)))
    assert kept.embedding.tolist() == [[1, 0], [0, 1]]
    assert "are not kept" in capsys.readouterr().err


@pytest.mark.slow
def test_photos_keep_what_was_detected_in_them(model, non_faces, tmp_path, passed):
    photos = tmp_path / "photos"
    photos.mkdir()
    for number in range(6):
        image = draw_face(number, 0) * (1.0 if number else 0.1)
        (photos / f"{number}.png").write_bytes(encode_png(image.astype(np.uint8)))
    options = EvaluationOptions(keep_crops=False, cache=OutputCache(tmp_path / "cache"))

    def evaluate(name, detector):
        embedder, settings, out = load_embedder(model), replace(options, detector=detector), tmp_path / name
        run_ood(embedder, [str(photos)], [str(non_faces)], out, settings)
        run_corruptions(embedder, [str(photos)], out, settings, images=2)
        return content(out)

    first = evaluate("a", Detects("forty"))
    before, again = passed.total(), Detects("forty")
    assert evaluate("b", again) == first
    assert (passed.total(), again.calls) == (before, 0)
    assert "No face was found in 1 photos" in str(first[0]["sections"]["ood"]["non-faces"]["notes"])
    assert first[1]["ood/non-faces/photos/face_size"] == [0.0, 40.0, 40.0, 40.0, 40.0, 40.0]
    wider = evaluate("c", Detects("fifty", 50.0))
    assert passed.total() == 2 * before
    assert wider[1]["ood/non-faces/photos/face_size"][1] == 50.0
