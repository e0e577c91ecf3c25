from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper
from typer.testing import CliRunner

from facerts.cli.app import build_app
from facerts.datasets import open_source
from facerts.datasets.synthetic import draw_face, write_synthetic_faces
from facerts.embedding import load_embedder
from facerts.errors import Error, ModelError
from facerts.images.corruptions import degrade
from facerts.training.class_head.leave_one_out_means import LeaveOneOutMeans
from facerts.training.methods import METHODS
from facerts.training.methods.robust_loss import newton_temperature
from facerts.training.posthoc import GraftResult, HeadSettings, add_quality
from facerts.training.posthoc.features import Features, Views
from facerts.training.posthoc.posthoc_quality import build_method
from facerts.training.posthoc.quality_heads import QualityHeads
from facerts.training.posthoc.train_heads import Batches, _ImageSet
from facerts.training.recipe import Augmentation
from tests.foreign import write_description
from tests.training.posthoc.embedder import SIZE, write_sharp_embedder

SHORT = HeadSettings(hidden=8, epochs=2, batch_size=16, holdout=0.25)
# With few people to contrast, ρ must be small and the optimal temperatures are large.
LOW_RHO = ["rho=1", "tau_max=1"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("views")
    write_sharp_embedder(folder / "theirs.onnx")
    write_synthetic_faces(folder / "faces", identities=16, images=6, seed=3)
    return folder


def graft(folder: Path, out: Path, method: str, **options: Any) -> GraftResult:
    overrides = LOW_RHO if method == "tempnet" else []
    return add_quality(
        method,
        folder / "theirs.onnx",
        folder / "faces",
        out,
        **{"settings": SHORT, "overrides": overrides, "cache": folder / f"{method}.npz", **options},
    )


@pytest.mark.slow
@pytest.mark.parametrize("method", ["relaxed_softmax", "dul", "godin", "crfiqa", "pfe", "tau", "tempnet"])
def test_each_other_method_is_written_reproducibly(method: str, folder: Path, tmp_path: Path) -> None:
    crops = np.stack([draw_face(identity, 0, seed=5) for identity in range(4)])
    state = torch.get_rng_state()
    done = graft(folder, tmp_path / "a.onnx", method)
    again = graft(folder, tmp_path / "b.onnx", method, cache=tmp_path / "anew.npz")
    assert torch.equal(torch.get_rng_state(), state)
    assert done.trained.heldout_loss
    assert np.isfinite(done.trained.heldout_loss).all()
    # Parity was checked on many crops before the file was written.
    assert done.parity.quality_error is not None
    assert done.parity.quality_error <= 1e-3
    assert (done.trained.loss, done.trained.heldout_loss) == (again.trained.loss, again.trained.heldout_loss)
    first, second = (load_embedder(tmp_path / name)(crops) for name in ("a.onnx", "b.onnx"))
    np.testing.assert_array_equal(first.quality, second.quality)  # type: ignore[arg-type]
    assert first.quality is not None
    assert np.ptp(first.quality) > 0
    theirs = load_embedder(folder / "theirs.onnx")(crops)
    np.testing.assert_array_equal(first.embedding, theirs.embedding)
    if method == "tau":
        other_seed = HeadSettings(8, 2, 16, holdout=0.25, seed=1)
        other = graft(folder, tmp_path / "c.onnx", method, settings=other_seed)
        assert other.trained.loss != done.trained.loss


def _clean_and_blurred(folder: Path) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    clean = np.stack([draw_face(100 + number // 4, number % 4, seed=9) for number in range(32)])
    return clean, np.stack([degrade(crop, "blur", 0.7) for crop in clean])


@pytest.mark.slow
@pytest.mark.parametrize("method", ["pfe", "tau"])
def test_degraded_images_of_strangers_get_less_quality(method: str, folder: Path, tmp_path: Path) -> None:
    long = HeadSettings(hidden=32, epochs=60, batch_size=32, holdout=0.0, lr=3e-3)
    out = tmp_path / "a.onnx"
    graft(folder, out, method, settings=long, views=4)
    clean, blurred = _clean_and_blurred(folder)
    embedder = load_embedder(out)
    good, poor = embedder(clean).quality, embedder(blurred).quality
    assert good is not None
    assert poor is not None
    assert (poor < np.median(good)).mean() > 0.65


@pytest.mark.slow
def test_the_temperature_network_learns_the_minimum_of_the_loss(folder: Path, tmp_path: Path) -> None:
    """The direction in which blur moves the temperature depends on the embedder, so compare with the exact minimum."""
    out = tmp_path / "a.onnx"
    settings = HeadSettings(epochs=100, batch_size=32, holdout=0.0, lr=3e-3)
    model = write_sharp_embedder(tmp_path / "theirs.onnx", likeness=1.0)
    done = add_quality("tempnet", model, folder / "faces", out, overrides=LOW_RHO, settings=settings, views=4)
    clean, blurred = _clean_and_blurred(folder)
    with np.load(done.cache) as stored:
        others = torch.from_numpy(stored["unit"])
    embedder = load_embedder(out)
    minima, learned = [], []
    for crops in (clean, blurred):
        outputs = embedder(crops)
        assert outputs.uncertainty is not None
        logits = torch.from_numpy(outputs.embedding) @ others.T
        minima.append(newton_temperature(logits, 1.0, 0.001).median().item())
        learned.append(float(np.median(outputs.uncertainty)))
    assert abs(np.log(minima[1] / minima[0])) > 0.2
    np.testing.assert_allclose(learned, minima, rtol=0.2)


@pytest.mark.slow
def test_views_are_cached_and_recomputed_if_they_change(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache.npz"
    graft(folder, tmp_path / "a.onnx", "tau", cache=cache, views=3)
    with np.load(cache) as stored:
        views = stored["unit"].reshape(3, 96, SIZE)
    source = open_source(folder / "faces")
    crops = np.stack([source.crop(index) for index in range(len(source))])
    np.testing.assert_allclose(views[0], load_embedder(folder / "theirs.onnx")(crops).embedding, atol=1e-6)
    assert not np.allclose(views[0], views[1], atol=1e-3)
    assert not np.allclose(views[1], views[2], atol=1e-3)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("images were embedded")

    monkeypatch.setattr("facerts.training.posthoc.features.embed_source", refuse)
    graft(folder, tmp_path / "a.onnx", "tau", cache=cache, views=3)
    graft(folder, tmp_path / "a.onnx", "rts", cache=cache, views=3)
    others: list[dict[str, Any]] = [
        {"views": 2},
        {"views": 3, "tap": "flat"},
        {"views": 3, "augmentation": Augmentation(corruption=0.5)},
        {"views": 3, "settings": HeadSettings(8, 2, 16, holdout=0.25, seed=1)},
    ]
    for other in others:
        with pytest.raises(AssertionError, match="embedded"):
            graft(folder, tmp_path / "a.onnx", "tau", **{"cache": cache, **other})
    write_description(tmp_path / "other.onnx", input_mean=[0, 0, 0])
    (tmp_path / "other.onnx").write_bytes((folder / "theirs.onnx").read_bytes())
    with pytest.raises(AssertionError, match="embedded"):
        add_quality(
            "tau", tmp_path / "other.onnx", folder / "faces", tmp_path / "a.onnx", cache=cache, views=3
        )


def test_a_view_depends_only_on_its_keys(folder: Path) -> None:
    source = open_source(folder / "faces")
    first, again = list(Views(3).of(source)), list(Views(4).of(source))
    for number in range(3):
        assert np.array_equal(first[number].crop(7), again[number].crop(7))
    assert np.array_equal(first[0].crop(7), source.crop(7))
    assert not np.array_equal(first[1].crop(7), first[2].crop(7))
    assert not np.array_equal(first[1].crop(7), list(Views(3, seed=1).of(source))[1].crop(7))


def test_every_view_of_an_image_leaves_that_image_out_by_a_slow_loop() -> None:
    random = np.random.default_rng(0)
    labels = np.array([0, 0, 0, 1, 1, 2, 2, 3])
    vectors = random.normal(size=(3, 8, 5))
    unit = vectors / np.linalg.norm(vectors, axis=2, keepdims=True)
    features = Features(
        unit.reshape(24, 5).astype(np.float32), np.ones(24, np.float32), np.empty((24, 0), np.float32)
    )
    everybody = np.ones(8, dtype=bool)
    images = _ImageSet(features, labels, everybody, everybody, torch.device("cpu"))
    assert images.images.tolist() == [0, 1, 2, 3, 4, 5, 6]
    rows = torch.arange(21)
    which = rows % 7
    centers = images.centers.without(images.unit[which], images.labels[which])
    assert isinstance(centers, LeaveOneOutMeans)
    actual = centers.cosines(images.embedding(rows)).numpy()
    for view in range(3):
        for image in range(7):
            for identity in range(4):
                others = [unit[0, j] for j in range(8) if labels[j] == identity and j != image]
                mean = np.sum(others, axis=0)
                expected = unit[view, image] @ mean / np.linalg.norm(mean)
                assert actual[view * 7 + image, identity] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("method", "cached"), [("rts", 1), ("rts", 4), ("tau", 4), ("pfe", 4), ("tempnet", 2)]
)
def test_batches_are_as_the_method_declares_them(method: str, cached: int) -> None:
    labels = np.repeat(np.arange(20), 5)
    built = build_method(method, METHODS[method].Config(), 4, 0)
    batches = Batches(built, labels, cached, 4, seed=0)
    epoch = batches.of_epoch(3, 12)
    assert len(epoch) == 100 // 12
    for rows in epoch:
        views, images = np.divmod(rows.numpy().reshape(built.views, 12), 100)
        assert (images == images[0]).all()
        assert views.max() < cached
        for drawn in views.T:
            assert len(set(drawn)) == built.views
        if built.sampler == "identities":
            assert (labels[images[0]].reshape(3, 4) == labels[images[0]].reshape(3, 4)[:, :1]).all()
    assert all(torch.equal(a, b) for a, b in zip(epoch, batches.of_epoch(3, 12), strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(epoch, batches.of_epoch(4, 12), strict=True))
    seen = np.concatenate([rows.numpy() % 100 for rows in batches.of_all(12)])
    if built.sampler == "shuffle":
        assert np.array_equal(np.bincount(seen, minlength=100), np.full(100, built.views))


@pytest.mark.slow
def test_too_few_held_out_people_to_contrast_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(Error, match=r"held-out images: tempnet: .*, or change --holdout"):
        graft(
            folder,
            tmp_path / "a.onnx",
            "tempnet",
            overrides=["rho=3.5"],
            settings=HeadSettings(8, 1, 32, holdout=0.1),
        )


@pytest.mark.slow
def test_the_command(folder: Path, tmp_path: Path) -> None:
    cache, out = tmp_path / "cache.npz", tmp_path / "a.onnx"
    files = f"--model {folder}/theirs.onnx --data {folder}/faces --cache {cache} --out {out} --terms drawn"
    options = "--views 2 --no-flip --scale 0 --shift 0 --rotation 0 --corruption 0"
    short = "--hidden 8 --epochs 1 --train-batch 16 --holdout 0.25 --norm --json"
    ran = CliRunner().invoke(build_app(), f"posthoc tau tau_min=0.2 {files} {options} {short}".split())
    assert ran.exit_code == 0, ran.output
    result = json.loads(ran.stdout)
    assert [result["file"], result["features"]] == [str(out), str(cache)]
    assert len(result["loss"]) == len(result["heldout_loss"]) == 1
    assert load_embedder(out).description.terms == "drawn"
    # Without any augmentation both views are equal.
    with np.load(cache) as stored:
        first, second = stored["unit"].reshape(2, 96, SIZE)
    np.testing.assert_array_equal(first, second)


def test_heads_use_the_norm_and_so_does_the_file(folder: Path, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    vectors = torch.from_numpy(random.normal(size=(50, 6)).astype(np.float32))
    vectors *= torch.linspace(0.5, 4, 50).unsqueeze(1)
    method = METHODS["rts"](METHODS["rts"].Config(), 6)
    heads = QualityHeads(vectors, torch.empty(50, 0), method.heads(), 4, norm=True).eval()
    lengths = np.log(np.linalg.norm(vectors.numpy(), axis=1))
    assert heads.mean[-1].item() == pytest.approx(lengths.mean(), abs=1e-5)
    assert heads.deviation[-1].item() == pytest.approx(lengths.std(ddof=1), abs=1e-5)
    with torch.no_grad():
        short, long = heads(vectors), heads(3 * vectors)
    assert not torch.allclose(short["log_scale"], long["log_scale"])
    assert torch.isfinite(heads(torch.zeros(1, 6))["log_scale"]).all()
    settings = HeadSettings(8, 2, 16, holdout=0.25, norm=True)
    done = graft(folder, tmp_path / "a.onnx", "pfe", settings=settings)
    assert done.parity.quality_error is not None
    assert done.parity.quality_error <= 1e-3
    assert done.trained.heads.mean.shape == (SIZE + 1,)


def test_a_norm_that_is_not_an_output_is_refused(folder: Path, tmp_path: Path) -> None:
    model = onnx.load(str(folder / "theirs.onnx"))
    model.graph.node.append(helper.make_node("LpNormalization", ["vector"], ["unit"], axis=1))
    del model.graph.output[:]
    model.graph.output.append(helper.make_tensor_value_info("unit", TensorProto.FLOAT, ["N", SIZE]))
    path = tmp_path / "unit.onnx"
    onnx.save(model, str(path))
    assert onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    write_description(path, normalize_embedding=False, outputs={"embedding": "unit"}, quality="none")
    with pytest.raises(ModelError, match="does not output the norm"):
        add_quality("rts", path, folder / "faces", tmp_path / "a.onnx", settings=HeadSettings(norm=True))
    with pytest.raises(Error, match="only the unit embedding"):
        graft(folder, tmp_path / "a.onnx", "tempnet", settings=HeadSettings(norm=True))
