from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper
from torch.nn import functional as F

import facerts
from facerts.datasets import open_source
from facerts.embedding import load_embedder
from facerts.errors import DataError, Error, ModelError
from facerts.training.class_head.leave_one_out_means import LeaveOneOutMeans
from facerts.training.methods import METHODS
from facerts.training.posthoc import GraftResult, HeadSettings, add_quality, posthoc_quality
from facerts.training.posthoc.features import Features
from facerts.training.posthoc.train_heads import held_out, train_heads
from facerts.training.recipe import Augmentation
from tests.foreign import SIZE, write_description, write_embedder

SHORT = HeadSettings(hidden=16, epochs=3, batch_size=16, holdout=0.25)


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    model = write_embedder(tmp_path / "theirs.onnx")
    write_description(model, license="theirs", terms="ask", source="a friend")
    return model


def scored(model: Path, faces: Path, out: Path, method: str = "rts", **options: Any) -> GraftResult:
    return add_quality(method, model, faces, out, **{"settings": SHORT, **options})


def test_the_file_has_their_embedding_and_our_quality(
    foreign: Path, drawn_faces: Path, tmp_path: Path, crops: NDArray[np.uint8]
) -> None:
    out = tmp_path / "new" / "scored.onnx"
    done = scored(foreign, drawn_faces, out, overrides=["kl_weight=3"], terms="drawn")
    assert done.trained.method.config.kl_weight == 3
    assert done.parity.cosine >= 0.99999
    assert done.parity.quality_error is not None
    assert done.parity.quality_error <= 1e-3
    before, after = load_embedder(foreign), load_embedder(out)
    theirs, ours = before(crops), after(crops)
    assert np.array_equal(theirs.embedding, ours.embedding)
    assert np.array_equal(theirs.norm, ours.norm)  # type: ignore[arg-type]
    np.testing.assert_allclose(ours.uncertainty, np.exp(-ours.quality), rtol=1e-5)
    assert ours.extras["log_scale"].shape == (len(crops), 16)
    assert np.ptp(ours.quality) > 1e-3
    description = after.description
    assert description.input == before.description.input
    assert description.outputs["embedding"] == "vector"
    assert (description.method, description.quality) == ("rts, post hoc", "output:quality")
    assert [description.license, description.source, description.terms] == [
        "theirs",
        "a friend",
        "ask; drawn",
    ]
    assert description.embedding_size == SIZE
    assert "48 images of 6 identities" in description.training_data
    assert facerts.load(out).score(list(crops))[0].quality == pytest.approx(float(ours.quality[0]), abs=1e-6)
    assert sorted(path.name for path in out.parent.iterdir()) == ["scored.features", "scored.onnx"]


@pytest.mark.slow
def test_other_outputs_of_the_embedder_do_not_change(
    drawn_faces: Path, tmp_path: Path, crops: NDArray[np.uint8]
) -> None:
    model = write_embedder(tmp_path / "theirs.onnx", quality=True)
    write_description(model, quality="output:bright", polarity="lower_is_better")
    once, twice = tmp_path / "once.onnx", tmp_path / "twice.onnx"
    scored(model, drawn_faces, once)
    # With a model that already has a tensor called quality.
    scored(once, drawn_faces, twice, "relaxed_softmax")
    session = onnxruntime.InferenceSession(str(twice), providers=["CPUExecutionProvider"])
    assert [tensor.name for tensor in session.get_inputs()] == ["face"]
    names = [tensor.name for tensor in session.get_outputs()]
    assert names[:2] == ["vector", "bright"]
    assert {"quality", "posthoc_quality"} < set(names)
    assert load_embedder(twice).description.quality == "output:posthoc_quality"
    np.testing.assert_array_equal(load_embedder(once)(crops).embedding, load_embedder(twice)(crops).embedding)
    assert not np.allclose(load_embedder(once)(crops).quality, load_embedder(twice)(crops).quality)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("embedder", "description"),
    [
        ({"batch": 1}, {"input_batch": 1}),
        ({"batch": 4}, {"input_batch": 4}),
        ({"layout": "NHWC"}, {"input_layout": "NHWC", "input_color": "BGR"}),
        ({}, {"normalize_embedding": False, "quality": "none"}),
        ({"opset": 11}, {}),
    ],
)
def test_inputs_of_every_kind(
    embedder: dict[str, Any],
    description: dict[str, Any],
    drawn_faces: Path,
    tmp_path: Path,
    crops: NDArray[np.uint8],
) -> None:
    options = dict(embedder)
    opset = options.pop("opset", None)
    model = write_embedder(tmp_path / "theirs.onnx", **options)
    if opset is not None:
        old = onnx.load(str(model))
        old.opset_import[0].version, old.ir_version = opset, 6
        onnx.save(old, str(model))
    write_description(model, **description)
    out = tmp_path / "scored.onnx"
    # The parity check would fail for an embedding that is described as unit but is not.
    if description.get("normalize_embedding") is False:
        _normalize(model)
    scored(model, drawn_faces, out)
    theirs, ours = load_embedder(model)(crops[:5]), load_embedder(out)(crops[:5])
    assert np.array_equal(theirs.embedding, ours.embedding)
    assert load_embedder(out).description.input == load_embedder(model).description.input
    np.testing.assert_allclose(ours.quality, load_embedder(out)(crops).quality[:5], atol=1e-5)  # type: ignore[index]


def _normalize(path: Path) -> None:
    model = onnx.load(str(path))
    model.graph.node.append(helper.make_node("LpNormalization", ["vector"], ["unit"], axis=1))
    model.graph.node.append(helper.make_node("ReduceL2", ["vector"], ["length"], axes=[1], keepdims=0))
    del model.graph.output[:]
    model.graph.output.append(helper.make_tensor_value_info("unit", TensorProto.FLOAT, ["N", SIZE]))
    model.graph.output.append(helper.make_tensor_value_info("length", TensorProto.FLOAT, ["N"]))
    onnx.save(model, str(path))
    write_description(
        path,
        normalize_embedding=False,
        outputs={"embedding": "unit", "norm": "length"},
        quality="norm",
    )


@pytest.mark.slow
@pytest.mark.parametrize(("tap", "size"), [("flat", 147), ("pooled", 3)])
def test_a_tapped_tensor_is_a_feature(
    tap: str, size: int, foreign: Path, drawn_faces: Path, tmp_path: Path, crops: NDArray[np.uint8]
) -> None:
    out = tmp_path / "scored.onnx"
    done = scored(foreign, drawn_faces, out, tap=tap)
    assert done.trained.heads.sizes == (SIZE, size)
    with np.load(done.cache) as stored:
        assert stored["tap"].shape == (64, size)
        # The mean over a map, or the tensor itself; here both are the brightness of an image.
        crop = open_source(drawn_faces).crop(5).astype(np.float64) / 127.5 - 1
        np.testing.assert_allclose(stored["tap"][5].mean(), crop.mean(), atol=1e-5)
    assert np.array_equal(load_embedder(foreign)(crops).embedding, load_embedder(out)(crops).embedding)
    assert set(load_embedder(out)(crops).extras) == {"log_scale"}
    plain = scored(foreign, drawn_faces, tmp_path / "plain.onnx")
    assert plain.trained.loss != done.trained.loss


def test_a_file_is_no_cache_and_not_changed(foreign: Path, drawn_faces: Path, tmp_path: Path) -> None:
    cache = tmp_path / "text"
    cache.write_bytes(b"text")
    with pytest.raises(Error, match="a cache is a folder"):
        scored(foreign, drawn_faces, tmp_path / "a.onnx", cache=cache)
    assert cache.read_bytes() == b"text"


def test_a_file_that_fails_the_parity_check_is_not_written(
    foreign: Path, drawn_faces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(graph: Any, tensors: Any, scorer: Any, path: Path) -> dict[str, str]:
        with torch.no_grad():
            scorer.heads.mean.add_(0.1)
        names = original(graph, tensors, scorer, path)
        with torch.no_grad():
            scorer.heads.mean.sub_(0.1)
        return names

    original = posthoc_quality.graft
    monkeypatch.setattr(posthoc_quality, "graft", wrong)
    with pytest.raises(ModelError, match="no file was written"):
        scored(foreign, drawn_faces, tmp_path / "new" / "a.onnx")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["a.features"]


def test_means_without_the_image_by_a_slow_loop() -> None:
    random = np.random.default_rng(0)
    unit = random.normal(size=(11, 5))
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    labels = np.array([0, 0, 1, 2, 2, 2, 1, 0, 3, 3, 4])
    means = LeaveOneOutMeans(torch.from_numpy(unit), torch.from_numpy(labels), 5)
    rows = np.array([7, 3, 8, 2])
    embedding = random.normal(size=(4, 5)) * 7
    expected = np.empty((4, 5))
    for i, row in enumerate(rows):
        for identity in range(5):
            others = [j for j in range(11) if labels[j] == identity and j != row]
            mean = np.mean([unit[j] for j in others], axis=0)
            expected[i, identity] = embedding[i] @ mean / np.linalg.norm(embedding[i]) / np.linalg.norm(mean)
    at = torch.from_numpy(labels[rows])
    bound = means.without(torch.from_numpy(unit[rows]), at)
    actual = bound.cosines(torch.from_numpy(embedding))
    np.testing.assert_allclose(actual, expected, atol=1e-12)
    own, nearest = bound.own_and_nearest(torch.from_numpy(embedding), at)
    np.testing.assert_allclose(own, expected[np.arange(4), labels[rows]], atol=1e-12)
    others = np.where(np.arange(5) == labels[rows][:, None], -np.inf, expected)
    np.testing.assert_allclose(nearest, others.max(axis=1), atol=1e-12)
    entropy = bound(torch.from_numpy(embedding), at, lambda c: c - 0.25, torch.tensor([8.0, 2.0, 4.0, 1.0]))
    logits = expected.copy()
    logits[np.arange(4), labels[rows]] -= 0.25
    logits *= np.array([8.0, 2.0, 4.0, 1.0])[:, None]
    slow = [np.log(np.exp(row).sum()) - row[label] for row, label in zip(logits, labels[rows], strict=True)]
    np.testing.assert_allclose(entropy, slow, atol=1e-12)
    assert not means.weight.requires_grad
    # The means themselves have not changed.
    np.testing.assert_allclose(
        means.cosines(torch.from_numpy(unit)),
        unit @ F.normalize(means.weight.detach()).numpy().T,
        atol=1e-12,
    )


def _people(identities: int, images: int, spoiled: int) -> tuple[Features, NDArray[np.int64]]:
    """Identities in 8 dimensions; the last images of each are noise with smaller norms."""
    random = np.random.default_rng(0)
    labels = np.repeat(np.arange(identities), images)
    centers = random.normal(size=(identities, 8))
    vectors = centers[labels] + 0.2 * random.normal(size=(len(labels), 8))
    poor = np.tile(np.arange(images) >= images - spoiled, identities)
    vectors[poor] = random.normal(size=(poor.sum(), 8)) + 3.0 * np.eye(8)[0]
    norm = np.linalg.norm(vectors, axis=1)
    unit = (vectors / norm[:, None]).astype(np.float32)
    return Features(unit, norm.astype(np.float32), np.empty((len(labels), 0), np.float32)), labels


def test_unidentifiable_images_get_less_quality() -> None:
    features, labels = _people(60, 6, 1)
    method = METHODS["rts"](METHODS["rts"].Config(logit_scale=16.0, margin=0.2, kl_weight=1.0), 8)
    trained = train_heads(
        method, features, labels, HeadSettings(hidden=32, epochs=20, batch_size=64, lr=1e-2)
    )
    with torch.no_grad():
        quality = method.score(trained.heads(torch.from_numpy(features.embedding)))["quality"].numpy()
    quality = quality.reshape(60, 6)
    assert (quality[:, 5] < np.median(quality[:, :5])).mean() > 0.8


def test_training_ends_when_the_heldout_loss_rises_and_keeps_the_best() -> None:
    features, labels = _people(12, 4, 1)
    settings = HeadSettings(hidden=64, epochs=200, batch_size=16, lr=3e-2, holdout=0.3)
    method = METHODS["rts"](METHODS["rts"].Config(logit_scale=16.0, kl_weight=0.1), 8)
    long = train_heads(method, features, labels, settings)
    losses = long.heldout_loss
    assert len(losses) < 200
    best = int(np.argmin(losses))
    assert best < len(losses) - 1
    again = METHODS["rts"](METHODS["rts"].Config(logit_scale=16.0, kl_weight=0.1), 8)
    short = train_heads(
        again, features, labels, HeadSettings(hidden=64, epochs=best + 1, batch_size=16, lr=3e-2, holdout=0.3)
    )
    for name, value in long.heads.state_dict().items():
        assert torch.equal(value, short.heads.state_dict()[name]), name


def test_heldout_identities_are_complete_and_have_several_images() -> None:
    labels = np.array([0, 0, 1, 2, 2, 3, 3, 4, 4, 4, 5])
    held = held_out(labels, 0.5, 1)
    assert 0 < held.sum() < len(labels)
    for identity in range(6):
        assert len(set(held[labels == identity])) == 1
    assert not held[[2, 10]].any()
    assert not held_out(labels, 0.0, 1).any()
    with pytest.raises(DataError, match="at least two must remain"):
        held_out(labels, 0.9, 1)
    with pytest.raises(DataError, match="at least two must remain"):
        held_out(np.arange(5), 0.0, 1)


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("rst", {}, "no method 'rst', did you mean 'rts'"),
        ("arcface", {}, "arcface trains only the embedding, .* use one of rts, .*tempnet"),
        ("supcon", {}, "supcon trains only the embedding"),
        ("tau", {"views": 1}, "tau compares 2 views of each image; --views must be 2 or more"),
        ("tempnet", {"tap": "flat"}, "tempnet uses only the unit embedding"),
        ("rts", {"augmentation": Augmentation(flip=False)}, "--views 2 or more"),
        ("rts", {"overrides": ["kl_wieght=3"]}, "rts has no setting 'kl_wieght', did you mean 'kl_weight'"),
        ("rts", {"overrides": ["margin"]}, "key=value"),
        ("rts", {"overrides": ["margin=["]}, "valid YAML"),
        ("rts", {"overrides": ["margin=wide"]}, "margin: .*number"),
        ("rts", {"tap": "flt"}, "has no tensor 'flt'; it has flat"),
        ("rts", {"tap": "face"}, "has no tensor 'face'"),
    ],
)
def test_what_cannot_be_done_is_refused(
    method: str, options: dict[str, Any], message: str, foreign: Path, drawn_faces: Path, tmp_path: Path
) -> None:
    with pytest.raises(Error, match=message):
        scored(foreign, drawn_faces, tmp_path / "new" / "a.onnx", method, **options)
    assert not (tmp_path / "new").exists()


def test_images_without_identities_are_refused(foreign: Path, drawn_things: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no identities"):
        scored(foreign, drawn_things, tmp_path / "a.onnx")
