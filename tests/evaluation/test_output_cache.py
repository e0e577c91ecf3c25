"""Evaluations embed once: a second one of the same model and images takes what the first one kept."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from facerts.datasets import open_source
from facerts.datasets.synthetic import draw_face
from facerts.detection.detector import Detection
from facerts.embedding import OnnxQuality, load_embedder
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

Evaluate = Callable[[Path, EvaluationOptions], object]


pytestmark = pytest.mark.usefixtures("few_changes")


@pytest.fixture
def model(tmp_path) -> Path:
    return write_description(write_embedder(tmp_path / "model.onnx"))


def content(folder: Path) -> tuple[Any, dict[str, Any]]:
    """What a result says, but for its date and command."""
    result, arrays = load_result(folder)
    fields = {k: v for k, v in result.to_json().items() if k not in {"command", "created"}}
    return fields, {name: values.tolist() for name, values in arrays.items()}


IMAGES = {
    "verification": 120,
    "reject": 120,
    "identification": 64,
    "ood": 64 + 24,
    "corruptions": 2 * (1 + 2 * 5) + 2,
}
SLOW_KINDS = ("verification", "identification", "ood", "corruptions")
EVERY_KIND = pytest.mark.parametrize(
    "kind", ["reject", *(pytest.param(kind, marks=pytest.mark.slow) for kind in SLOW_KINDS)]
)
# Those of a recognizer and a quality; the corruption benchmark takes either.
EVERY_PAIR = pytest.mark.parametrize("kind", EVERY_KIND.args[1][:-1])


@pytest.fixture
def command(kind, model, named, drawn_faces, non_faces) -> list[str | Path]:
    """An evaluation of the model, without the mirror images of pairs."""
    data: dict[str, list[str | Path]] = {
        "verification": ["--data", named, "--set", "flip=false", "--reference", non_faces],
        "reject": ["--data", named, "--set", "flip=false", "--fmr", "0.01"],
        "identification": ["--data", drawn_faces],
        "ood": ["--in", drawn_faces, "--out-of", non_faces],
        "corruptions": ["--data", drawn_faces, "--images", "2"],
    }
    return ["evaluate", kind, "--model", model, *data[kind]]


@EVERY_KIND
def test_a_second_evaluation_runs_no_network_and_gives_the_same_numbers(command, tmp_path, passed):
    assert run(*command, "--out", tmp_path / "alone") == 0
    alone = passed.total()
    assert alone > 0
    assert run(*command, "--out", tmp_path / "first") == 0
    assert passed.total() == 2 * alone
    assert run(*command, "--out", tmp_path / "other", "--set", f"output_cache={tmp_path / 'first' / 'cache'}") == 0
    assert passed.total() == 2 * alone
    assert not (tmp_path / "other" / "cache").exists()
    assert content(tmp_path / "alone") == content(tmp_path / "first") == content(tmp_path / "other")


@EVERY_PAIR
@pytest.mark.usefixtures("few_replicates")
def test_each_part_runs_once_for_each_crop(kind, command, model, tmp_path, passed):
    def passes(name: str, *options: str | Path) -> Counter[str]:
        passed.clear()
        assert run(*command, "--out", tmp_path / name, *options) == 0
        return Counter(passed)

    quality = write_quality(tmp_path / "alone.onnx")
    quality.with_suffix(".json").write_text(json.dumps(quality_description(name="alone")))
    own = passes("own")
    assert passes("same file", "--quality", model) == passes("named", "--quality", "own") == own
    # Verification also embeds the reference, and swaps channels; the mirror images of identification need no quality.
    again = own["model"] - IMAGES[kind] if kind == "verification" else 0
    assert passes("two", "--quality", quality) == {**own, "alone": IMAGES[kind] + again}
    assert passes("two", "--quality", quality) == {}, "the cache has the outputs of both"
    if kind == "ood":
        (_, of_own), (two, of_two) = (load_result(tmp_path / name) for name in ("own", "two"))
        expected = score_source(open_source(command[5]), {"q": OnnxQuality(quality)})["q"]
        np.testing.assert_allclose(of_two["ood/non-faces/faces/quality"], expected, atol=1e-5)
        assert not np.allclose(of_own["ood/non-faces/faces/quality"], expected)
        assert two.model.name == "model with alone"
    assert run(*command, "--out", tmp_path / "own", "--quality", quality) == 2, "it holds another model's results"


def test_a_second_quality_needs_no_pass_of_the_recognizers(model, drawn_faces, tmp_path, passed):
    recognizers = [tmp_path / "other.onnx", model]
    write_description(write_embedder(recognizers[0], seed=1))
    command = ["evaluate", "corruptions", "--data", drawn_faces, "--images", "2"]
    steps, named = 1 + 2 * 5, [part for path in recognizers for part in ("--recognizer", path)]
    for name in ("one", "two", "alone"):
        quality = write_quality(tmp_path / f"{name}.onnx")
        quality.with_suffix(".json").write_text(json.dumps(quality_description(name=name)))
        command_of = [*command, "--model", quality, "--out", tmp_path / name, *named * (name != "alone")]
        passed.clear()
        assert run(*command_of, "--set", f"output_cache={tmp_path / 'cache'}") == 0
        recognized = dict.fromkeys(("model", "other"), IMAGES["corruptions"]) if name == "one" else {}
        assert passed == {name: 2 * steps, **recognized}
    (first, of_first), (second, of_second), (alone, of_alone) = (
        load_result(tmp_path / name) for name in ("one", "two", "alone")
    )
    own = [one.of_kind("corruptions")["faces"] for one in (first, second)]
    agreement = [[one.value for one in section.measures if one.of.get("score") == "cosine of model"] for section in own]
    assert agreement[0] == agreement[1] != []
    cosine, kept = ("corruptions/faces/blur/" + name for name in ("cosine", "kept"))
    np.testing.assert_array_equal(of_first[cosine], of_second[cosine])
    np.testing.assert_array_equal(of_alone[kept], of_second[kept])
    assert cosine not in of_alone
    assert alone.of_kind("corruptions")["faces"].find("ρ, all") is None


def evaluation_of(data: Path, out: Path) -> Evaluate:
    return lambda model, options: run_pairs(load_embedder(model), ["reject"], [data], out, options)


@pytest.mark.parametrize("change", ["image", "model", "description", "flip", "batch", "detector", "versions"])
def test_what_changes_the_outputs_makes_new_ones(change, model, named, tmp_path, passed, monkeypatch):
    named = shutil.copytree(named.parent, tmp_path / "people") / named.name
    options = EvaluationOptions(fmr=0.01, flip=False, cache=OutputCache(tmp_path / "cache"))
    evaluation_of(named, tmp_path / "a")(model, options)
    before = passed.total()
    evaluation_of(named, tmp_path / "b")(model, options)
    assert passed.total() == before
    if change == "image":
        image = sorted(named.parent.rglob("*.*g"))[0]
        image.write_bytes(encode_png(draw_face(77, 0)))
    elif change == "model":
        write_embedder(model, seed=1)
    elif change == "description":
        beside = model.with_suffix(".json")
        fields = json.loads(beside.read_text())
        fields["input"]["mean"] = [100, 100, 100]
        beside.write_text(json.dumps(fields))
    elif change == "flip":
        options = replace(options, flip=True)
    elif change == "batch":
        options = replace(options, batch_size=7)
    elif change == "detector":
        options = replace(options, detector=Detects("one"))
    else:
        monkeypatch.setattr("facerts.evaluation.evaluation_options.installed_versions", lambda: {"numpy": "9"})
    evaluation_of(named, tmp_path / "c")(model, options)
    assert passed.total() > before


@pytest.mark.parametrize("damage", ["empty", "truncated", "flipped", "other", "rows", "infinite", "pickled", "folder"])
def test_a_damaged_file_is_noticed_and_made_again(damage, model, named, tmp_path, passed, capsys):
    options = EvaluationOptions(fmr=0.01, cache=OutputCache(tmp_path / "cache"))
    evaluation_of(named, tmp_path / "a")(model, options)
    before = passed.total()
    (file,) = (tmp_path / "cache").iterdir()
    good = file.read_bytes()
    arrays = dict(np.load(file))
    if damage in {"empty", "truncated", "flipped"}:
        cut = {"empty": b"", "truncated": good[: len(good) // 2]}
        half = len(good) // 2
        file.write_bytes(cut.get(damage, good[:half] + bytes([good[half] ^ 1]) + good[half + 1 :]))
    elif damage == "folder":
        file.unlink()
        file.mkdir()
    else:
        changed = {
            "other": {"key": np.array("0" * 64)},
            "rows": {"embedding": arrays["embedding"][1:]},
            "infinite": {"embedding": arrays["embedding"] * np.float32(np.nan)},
            "pickled": {"extra/x": np.array([{}] * len(arrays["embedding"]))},
        }[damage]
        np.savez(file, **{**arrays, **changed})
    capsys.readouterr()
    evaluation_of(named, tmp_path / "b")(model, options)
    assert passed.total() == 2 * before
    assert f"warning: {file}" in capsys.readouterr().err
    assert content(tmp_path / "a") == content(tmp_path / "b")
    if damage != "folder":
        assert file.read_bytes() == good


class Detects:
    """A detector that finds a face of the given width in bright images alone."""

    def __init__(self, identity: str, width: float = 40.0) -> None:
        self.identity, self._width, self.calls = identity, width, 0

    def __call__(self, image: NDArray[np.uint8]) -> list[Detection]:
        self.calls += 1
        if image.mean() < 60:
            return []
        points = np.array([[38, 52], [38 + self._width, 52], [56, 72], [42, 92], [70, 92]], dtype=float)
        return [Detection(np.array([10.0, 10, 100, 100]), points, 0.9)]


@pytest.fixture
def photos(tmp_path) -> Path:
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(6):
        level = 1.0 if number else 0.1
        image = (draw_face(number, 0) * level).astype(np.uint8)
        (folder / f"{number}.png").write_bytes(encode_png(image))
    return folder


@pytest.mark.slow
def test_photos_keep_what_was_detected_in_them(model, photos, non_faces, tmp_path, passed):
    options = EvaluationOptions(keep_crops=False, cache=OutputCache(tmp_path / "cache"))

    def evaluate(name: str, detector: Detects) -> Any:
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


def test_a_folder_that_cannot_be_written_costs_the_cache_alone(model, named, tmp_path, capsys):
    (tmp_path / "file").write_text("no folder")
    options = EvaluationOptions(fmr=0.01, cache=OutputCache(tmp_path / "file" / "cache"))
    evaluation_of(named, tmp_path / "a")(model, options)
    assert "are not kept" in capsys.readouterr().err
    assert (tmp_path / "a" / "result.json").is_file()
