import numpy as np
import pytest
from onnx import TensorProto

from facerts.datasets import open_benchmark
from facerts.embedding import load_embedder
from facerts.errors import ModelError
from facerts.evaluation import evaluate_verification
from tests.foreign import SIZE, slow_embedding, write_description, write_embedder

IMAGENET = {"input_mean": [123.675, 116.28, 103.53], "input_std": [58.395, 57.12, 57.375]}


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("color", ["RGB", "BGR"])
@pytest.mark.parametrize("batch", ["N", 1, 5])
def test_a_model_gets_the_described_input_for_any_number_of_crops(tmp_path, crops, layout, color, batch):
    model = write_embedder(tmp_path / "m.onnx", batch=batch, layout=layout)
    write_description(model, input_layout=layout, input_color=color, **IMAGENET)
    outputs = load_embedder(model, batch_size=5)(crops)
    raw = slow_embedding(crops, IMAGENET["input_mean"], IMAGENET["input_std"], bgr=color == "BGR")
    norm = np.linalg.norm(raw, axis=1)
    np.testing.assert_allclose(outputs.embedding, raw / norm[:, None], atol=2e-6)
    np.testing.assert_allclose(outputs.norm, norm, rtol=1e-5)
    assert outputs.quality is not None
    assert np.array_equal(outputs.quality, outputs.norm)
    assert outputs.embedding.dtype == np.float32


@pytest.mark.parametrize("name", ["*", "face"])
def test_inputs_that_nothing_reads_are_none(tmp_path, crops, name):
    plain, listing = (
        write_embedder(tmp_path / f"{unread}.onnx", unread=unread, batch=1, quality=True) for unread in (0, 3)
    )
    for model in (plain, listing):
        write_description(model, input_name=name, quality="output:bright")
    expected, outputs = (load_embedder(model)(crops) for model in (plain, listing))
    assert np.array_equal(outputs.embedding, expected.embedding)
    assert np.array_equal(outputs.quality, expected.quality)


@pytest.mark.parametrize("polarity", ["higher_is_better", "lower_is_better"])
def test_quality_comes_from_the_named_output_and_higher_is_better(tmp_path, crops, polarity):
    model = write_embedder(tmp_path / "m.onnx", quality=True)
    write_description(model, quality="output:bright", polarity=polarity)
    quality = load_embedder(model)(crops).quality
    bright = ((crops.astype(np.float64) - 127.5) / 127.5).mean(axis=(1, 2, 3))
    np.testing.assert_allclose(quality, bright if polarity == "higher_is_better" else -bright, atol=1e-5)


def test_a_model_without_quality_has_none(tmp_path, crops):
    model = write_description(write_embedder(tmp_path / "m.onnx"), quality="none")
    outputs = load_embedder(model)(crops)
    assert outputs.quality is None
    assert outputs.uncertainty is None


@pytest.mark.parametrize(
    ("model", "description", "message"),
    [
        ({}, {"input_name": "image"}, "no input 'image'; its inputs are face"),
        ({"inputs": 2}, {}, "it has the inputs extra1, and needs them"),
        ({}, {"input_layout": "NHWC"}, "NHWC"),
        ({"dtype": TensorProto.FLOAT16}, {}, "float16"),
        ({}, {"input_size": [160, 160]}, "160 x 160"),
        ({"batch": 4096}, {}, "batch: Input should be less than or equal to 1024"),
        ({}, {"outputs": {"embedding": "output0"}}, "no output 'output0'.*its outputs are vector"),
        ({}, {"quality": "output:sharpness"}, "no output 'sharpness'"),
        ({}, {"normalize_embedding": False}, "the description says that quality is the norm"),
        ({}, {"outputs": {"quality": "vector"}}, "gives a quality and no embedding"),
        ({}, {"schema": "facerts.model/9"}, "schema"),
        ({}, {"input_std": [1, 0, 1]}, "std must be above 0"),
        ({}, {"polarity": "up"}, "polarity"),
        ({}, {"surprise": 1}, "surprise"),
    ],
)
def test_a_model_that_contradicts_its_description_is_refused(tmp_path, model, description, message):
    path = write_description(write_embedder(tmp_path / "m.onnx", **model), **description)
    with pytest.raises(ModelError, match=rf"m\.(onnx|json).*{message}"):
        load_embedder(path)


def test_a_broken_description_is_named(tmp_path):
    model = write_embedder(tmp_path / "m.onnx")
    model.with_suffix(".json").write_text("{")
    with pytest.raises(ModelError, match=r"m\.json: not valid JSON"):
        load_embedder(model)


def test_a_value_that_is_not_finite_is_refused_with_output_and_crop(tmp_path, crops):
    model = write_description(write_embedder(tmp_path / "m.onnx", not_a_number=True))
    with pytest.raises(ModelError, match="embedding of crop 0 is not a finite number"):
        load_embedder(model)(crops)


def test_any_number_of_crops_is_taken_but_no_other_shape(tmp_path):
    model = write_description(write_embedder(tmp_path / "m.onnx"))
    embedder = load_embedder(model)
    assert embedder(np.zeros((0, 112, 112, 3), dtype=np.uint8)).embedding.shape == (0, SIZE)
    for shape in ((112, 112, 3), (2, 96, 112, 3), (2, 3, 112, 112)):
        with pytest.raises(ModelError, match="crops must be"):
            embedder(np.zeros(shape, dtype=np.uint8))


@pytest.mark.slow
def test_the_reference_embedder_reaches_its_known_accuracy(facerts_data, reference_models, tmp_path):
    """On the first 60 pairs of each kind and fold; a script without facerts has found the same numbers."""
    lfw = facerts_data / "lfw"
    lines = np.array((lfw / "pairs.txt").read_text(encoding="utf-8").splitlines()[1:]).reshape(20, 300)
    (tmp_path / "lfw").mkdir()
    for person in {name for line in lines[:, :60].ravel() for name in line.split("\t") if not name.isdigit()}:
        (tmp_path / "lfw" / person).symlink_to(lfw / person)
    (tmp_path / "lfw" / "pairs.txt").write_text("\n".join(["10\t60", *lines[:, :60].ravel()]), encoding="utf-8")
    embedder = load_embedder(reference_models / "mobilefacenet.onnx")
    section, _ = evaluate_verification(embedder, open_benchmark(tmp_path / "lfw"), flip=False)
    assert section.measure("accuracy").value == pytest.approx(0.9867, abs=5e-4)
    assert section.measure("FNMR at FMR 1%").value == pytest.approx(0.0183, abs=1e-4)
