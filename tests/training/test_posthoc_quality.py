"""From an embedder and labeled images to one file with the embedder's outputs and a quality."""

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper

import facerts
from facerts.datasets import open_source
from facerts.embedding import load_embedder
from facerts.errors import DataError, Error, ModelError
from facerts.training import posthoc
from facerts.training.posthoc import add_quality, head_recipe
from facerts.training.posthoc_features import Views
from tests.foreign import SIZE, write_description, write_embedder

SHORT = ["train.hidden=16", "train.epochs=2", "train.batch_size=16", "train.holdout=0.25"]


@pytest.fixture
def foreign(tmp_path):
    model = write_embedder(tmp_path / "theirs.onnx")
    thresholds = {"0.95": {"quality": 0.0, "data_sha256": "0" * 64}}
    write_description(model, license="theirs", terms="ask", source="a friend", thresholds=thresholds)
    return model


@pytest.fixture
def scored(drawn_faces):
    """Add a quality to an embedder."""

    def run(model, out, method="rts", *overrides, data=drawn_faces, **options):
        return add_quality(method, model, data, out, overrides=[*SHORT, *overrides], **options)

    return run


def kept(cache, name):
    """An array of the only file in a cache of features."""
    (path,) = cache.glob("*.npz")
    with np.load(path) as stored:
        return stored[name]


def keep_outputs(path, **outputs):
    """Make the outputs of an embedder those of given names and nodes, on its tensor ``vector``."""
    model = onnx.load(str(path))
    del model.graph.output[:]
    for name, kind in outputs.items():
        options = {"axis": 1} if kind == "LpNormalization" else {"axes": [1], "keepdims": 0}
        model.graph.node.append(helper.make_node(kind, ["vector"], [name], **options))
        shape = ["N", SIZE] if kind == "LpNormalization" else ["N"]
        model.graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
    onnx.save(model, str(path))


def test_the_file_has_their_embedding_and_our_quality(foreign, scored, tmp_path, crops):
    out = tmp_path / "new" / "scored.onnx"
    done = scored(foreign, out, "rts", "kl_weight=3", terms="drawn")
    assert done.trained.method.kl_weight == 3
    assert done.parity.cosine >= 0.99999
    assert done.parity.quality_error <= 1e-3
    before, after = load_embedder(foreign), load_embedder(out)
    theirs, ours = before(crops), after(crops)
    assert np.array_equal(theirs.embedding, ours.embedding)
    assert np.array_equal(theirs.norm, ours.norm)
    np.testing.assert_allclose(ours.uncertainty, np.exp(-ours.quality), rtol=1e-5)
    assert ours.extras["log_scale"].shape == (len(crops), 16)
    assert np.ptp(ours.quality) > 1e-3
    description = after.description
    assert description.input == before.description.input
    assert description.outputs["embedding"] == "vector"
    assert (description.method, description.quality) == ("rts, post hoc", "output:quality")
    assert (description.license, description.source) == ("theirs", "a friend")
    assert description.terms == "ask; drawn"
    assert description.embedding_size == SIZE
    # Thresholds of the embedder's own quality do not hold for the new one; these are of the two people held out.
    assert description.thresholds != before.description.thresholds
    assert description == done.description
    assert (description.calibration.faces, description.calibration.identities) == (16, 2)
    assert "48 images of 6 identities" in description.training_data
    assert facerts.load(out).score(list(crops))[0].quality == pytest.approx(float(ours.quality[0]), abs=1e-6)
    assert sorted(path.name for path in out.parent.iterdir()) == ["scored.features", "scored.onnx"]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["relaxed_softmax", "dul", "godin", "crfiqa", "pfe", "tau", "tempnet"])
def test_each_other_method_is_written_reproducibly(method, foreign, scored, tmp_path, crops):
    overrides = ["rho=1", "tau_max=1"] if method == "tempnet" else []
    state = torch.get_rng_state()
    done, again = (scored(foreign, tmp_path / f"{name}.onnx", method, *overrides) for name in "ab")
    assert torch.equal(torch.get_rng_state(), state)
    assert np.isfinite(done.trained.heldout_loss).all()
    # Parity was checked on many crops before the file was written.
    assert done.parity.quality_error <= 1e-3
    assert (done.trained.loss, done.trained.heldout_loss) == (again.trained.loss, again.trained.heldout_loss)
    first, second = (load_embedder(tmp_path / name)(crops) for name in ("a.onnx", "b.onnx"))
    np.testing.assert_array_equal(first.quality, second.quality)
    assert np.ptp(first.quality) > 0


@pytest.mark.slow
def test_other_outputs_of_the_embedder_do_not_change(scored, tmp_path, crops):
    model = write_embedder(tmp_path / "theirs.onnx", quality=True)
    write_description(model, quality="output:bright", polarity="lower_is_better")
    once, twice = tmp_path / "once.onnx", tmp_path / "twice.onnx"
    scored(model, once)
    # With a model that already has a tensor called quality.
    scored(once, twice, "relaxed_softmax")
    session = onnxruntime.InferenceSession(str(twice), providers=["CPUExecutionProvider"])
    assert [tensor.name for tensor in session.get_inputs()] == ["face"]
    names = [tensor.name for tensor in session.get_outputs()]
    assert names[:2] == ["vector", "bright"]
    assert {"quality", "posthoc_quality"} < set(names)
    assert load_embedder(twice).description.quality == "output:posthoc_quality"
    first, second = (load_embedder(path)(crops) for path in (once, twice))
    np.testing.assert_array_equal(first.embedding, second.embedding)
    assert not np.allclose(first.quality, second.quality)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("embedder", "description"),
    [
        ({"batch": 1}, {"input_batch": 1}),
        ({"batch": 4}, {"input_batch": 4}),
        ({"layout": "NHWC"}, {"input_layout": "NHWC", "input_color": "BGR"}),
        ({}, {"normalize_embedding": False, "quality": "norm", "outputs": {"embedding": "unit", "norm": "length"}}),
        ({}, {"normalize_embedding": False, "quality": "none", "outputs": {"embedding": "unit"}}),
        ({}, {"opset": 11}),
    ],
)
def test_embedders_of_every_kind(embedder, description, scored, tmp_path, crops):
    model, out = write_embedder(tmp_path / "theirs.onnx", **embedder), tmp_path / "scored.onnx"
    outputs = description.get("outputs", {})
    if "norm" in outputs:
        keep_outputs(model, unit="LpNormalization", length="ReduceL2")
    elif outputs:
        keep_outputs(model, unit="LpNormalization")
    if "opset" in description:
        old = onnx.load(str(model))
        old.opset_import[0].version, old.ir_version = description["opset"], 6
        onnx.save(old, str(model))
    write_description(model, **{key: value for key, value in description.items() if key != "opset"})
    trained = scored(model, out).trained
    # The logarithm of the norm is a feature of the head where the embedder has it.
    assert len(trained.heads.mean) == SIZE + (outputs.keys() != {"embedding"})
    theirs, ours = load_embedder(model)(crops[:5]), load_embedder(out)(crops[:5])
    assert np.array_equal(theirs.embedding, ours.embedding)
    assert load_embedder(out).description.input == load_embedder(model).description.input
    np.testing.assert_allclose(ours.quality, load_embedder(out)(crops).quality[:5], atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("tap", "size"), [("flat", 147), ("pooled", 3)])
def test_a_tapped_tensor_is_a_feature(tap, size, foreign, scored, drawn_faces, tmp_path, crops):
    out = tmp_path / "scored.onnx"
    done = scored(foreign, out, "rts", f"train.tap={tap}")
    assert done.trained.heads.sizes == (SIZE, size)
    tapped = kept(done.cache, "tap")
    assert tapped.shape == (64, size)
    # The mean over a map, or the tensor itself; here both are the brightness of an image.
    crop = open_source(drawn_faces).crop(5).astype(np.float64) / 127.5 - 1
    np.testing.assert_allclose(tapped[5].mean(), crop.mean(), atol=1e-5)
    assert np.array_equal(load_embedder(foreign)(crops).embedding, load_embedder(out)(crops).embedding)
    assert set(load_embedder(out)(crops).extras) == {"log_scale"}


@pytest.mark.slow
def test_views_are_cached_and_recomputed_if_they_change(foreign, scored, drawn_faces, tmp_path, monkeypatch):
    def again(method="tau", *overrides):
        return scored(foreign, tmp_path / "a.onnx", method, "augmentation.views=3", *overrides, cache=tmp_path / "c")

    first = again()
    views = kept(tmp_path / "c", "unit").reshape(3, 64, SIZE)
    source = open_source(drawn_faces)
    crops = np.stack([source.crop(index) for index in range(len(source))])
    np.testing.assert_allclose(views[0], load_embedder(foreign)(crops).embedding, atol=1e-6)
    assert not np.allclose(views[0], views[1], atol=1e-3)
    assert not np.allclose(views[1], views[2], atol=1e-3)

    def refuse(*_, **__):
        raise AssertionError("images were embedded")

    monkeypatch.setattr("facerts.training.posthoc_features.embed_source", refuse)
    assert again().trained.loss == first.trained.loss
    again("rts")
    for override in ("augmentation.change=0.6", "train.seed=1", "augmentation.views=2", "train.tap=flat"):
        with pytest.raises(AssertionError, match="embedded"):
            again("tau", override)
    write_description(foreign, input_mean=[0, 0, 0])
    with pytest.raises(AssertionError, match="embedded"):
        again()


def test_a_view_depends_only_on_its_keys(drawn_faces):
    source = open_source(drawn_faces)
    first, again = list(Views(3).of(source)), list(Views(4).of(source))
    for number in range(3):
        assert np.array_equal(first[number].crop(7), again[number].crop(7))
    assert np.array_equal(first[0].crop(7), source.crop(7))
    assert not np.array_equal(first[1].crop(7), first[2].crop(7))
    assert not np.array_equal(first[1].crop(7), list(Views(3, seed=1).of(source))[1].crop(7))
    plain = [f"augmentation.{name}=0" for name in ("flip", "scale", "shift", "rotation", "change")]
    _, second = head_recipe("tau", ["augmentation.views=2", *plain]).views.of(source)
    assert np.array_equal(second.crop(7), source.crop(7))


def test_a_file_that_fails_the_parity_check_is_not_written(foreign, scored, tmp_path, monkeypatch):
    def wrong(graph, tensors, quality, path):
        quality.heads.mean += 0.1
        names = original(graph, tensors, quality, path)
        quality.heads.mean -= 0.1
        return names

    original = posthoc.graft
    monkeypatch.setattr(posthoc, "graft", wrong)
    with pytest.raises(ModelError, match="no file was written"):
        scored(foreign, tmp_path / "new" / "a.onnx")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["a.features"]


@pytest.mark.parametrize(
    ("method", "setting", "message"),
    [
        ("rst", "", "no method 'rst', did you mean 'rts'"),
        ("arcface", "", "arcface trains only the embedding, .* use one of rts, .*tempnet"),
        ("supcon", "projection=7", "supcon trains only the embedding"),
        ("tau", "augmentation.views=1", r"tau compares 2 views of each image: set augmentation\.views to 2 or more"),
        ("tempnet", "train.tap=flat", r"tempnet uses only the unit embedding; leave out train\.tap"),
        ("rts", "augmentation.flip=false", r"set augmentation\.views to 2 or more"),
        ("rts", "augmentation.flop=false", r"unknown key 'augmentation\.flop', did you mean 'augmentation\.flip'"),
        ("rts", "augmentation.shift=wide", r"augmentation\.shift: .*number"),
        ("rts", "train.epoch=2", r"unknown key 'train\.epoch', did you mean 'train\.epochs'"),
        ("rts", "train.holdout=1", r"train\.holdout: .*0.9"),
        ("rts", "margin", "^'margin': not of the form key=value"),
        ("rts", "margin=[", "valid YAML"),
        ("rts", "margin=wide", "margin: .*number"),
        ("rts", "train.tap=flt", "has no tensor 'flt'; it has flat"),
        ("rts", "train.tap=face", "has no tensor 'face'"),
    ],
)
def test_what_cannot_be_done_is_refused(method, setting, message, foreign, scored, tmp_path):
    with pytest.raises(Error, match=message):
        scored(foreign, tmp_path / "new" / "a.onnx", method, *setting.split())
    assert not (tmp_path / "new").exists()


def test_images_without_identities_are_refused(foreign, scored, non_faces, tmp_path):
    with pytest.raises(DataError, match="no identities"):
        scored(foreign, tmp_path / "a.onnx", data=non_faces)
