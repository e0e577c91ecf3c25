import json
import re

import cv2
import numpy as np
import pytest

from facerts.datasets import open_source
from facerts.embedding import OnnxQuality, load_embedder
from facerts.embedding.embed import score_source
from facerts.errors import ModelError
from facerts.onnx.contract import Description, parse_description
from tests.foreign import quality_description, slow_quality, write_description, write_embedder, write_quality


@pytest.mark.parametrize("polarity", ["higher_is_better", "lower_is_better"])
@pytest.mark.parametrize("size", [96, 112])
def test_a_quality_only_model_gets_crops_of_its_size_and_color_order(tmp_path, crops, size, polarity):
    model = write_quality(tmp_path / "q.onnx", size=size)
    description = quality_description(size, polarity=polarity, name="tiny")
    model.with_suffix(".json").write_text(json.dumps(description))
    quality = OnnxQuality(model, batch_size=5)
    found = quality(crops)
    assert (quality.name, found.dtype, found.shape) == ("tiny", np.float32, (len(crops),))
    expected = slow_quality(crops, size)
    np.testing.assert_allclose(found, expected if polarity == "higher_is_better" else -expected, atol=1e-4)
    assert np.ptp(expected) > 0.01
    assert quality(crops[:0]).shape == (0,)


def test_height_and_width_are_not_confused(crops):
    from facerts.embedding.onnx_embedder import to_input
    from facerts.onnx.contract import InputSpec

    images = to_input(crops[:2], InputSpec(size=(64, 96)))
    expected = cv2.resize(crops[1], (96, 64)).transpose(2, 0, 1)
    np.testing.assert_allclose(images[1], (expected.astype(np.float64) - 127.5) / 127.5, atol=1e-6)


@pytest.mark.parametrize("quality", ["output:bright", "norm"])
def test_an_embedders_quality_is_the_same_without_its_embedding(tmp_path, crops, quality):
    model = write_embedder(tmp_path / "m.onnx", quality=True)
    write_description(model, quality=quality, polarity="lower_is_better")
    expected = load_embedder(model)(crops).quality
    assert expected is not None
    np.testing.assert_array_equal(OnnxQuality(model)(crops), expected)


@pytest.mark.parametrize(
    ("description", "message"),
    [
        ({"quality": "norm"}, "role 'embedding'"),
        ({"quality": "none"}, "role 'embedding'"),
        ({"quality": "output:gone"}, "no output 'gone'.*its outputs are confidence"),
        ({"outputs": {"norm": "confidence"}, "quality": "none"}, "role 'embedding'"),
        ({"input": {"name": "crop"}}, "NCHW of"),
    ],
)
def test_descriptions_without_quality_or_of_another_model_are_refused(tmp_path, description, message):
    model = write_quality(tmp_path / "q.onnx")
    model.with_suffix(".json").write_text(json.dumps(quality_description(**description)))
    with pytest.raises(ModelError, match=message):
        OnnxQuality(model)


def test_embedders_and_quality_models_are_not_interchangeable(tmp_path):
    embedder, quality = write_embedder(tmp_path / "m.onnx"), write_quality(tmp_path / "q.onnx", size=112)
    write_description(embedder, quality="none")
    quality.with_suffix(".json").write_text(json.dumps(quality_description(112)))
    with pytest.raises(ModelError, match=r"m\.onnx: the model has no quality"):
        OnnxQuality(embedder)
    with pytest.raises(ModelError, match=r"q\.onnx: the model gives a quality"):
        load_embedder(quality)


def test_a_quality_with_several_values_per_crop_is_refused(tmp_path, crops):
    model = write_quality(tmp_path / "q.onnx", numbers=2)
    description = parse_description(json.dumps(quality_description()), "here")
    with pytest.raises(ModelError, match="the output quality has 24 values; it must have one value per crop"):
        OnnxQuality(model, description=description)(crops)


def test_a_source_is_scored_in_order(tmp_path, drawn_faces):
    model = write_quality(tmp_path / "q.onnx")
    description = parse_description(json.dumps(quality_description()), "here")
    quality, source = OnnxQuality(model, description=description), open_source(drawn_faces)
    rows = [5, 0, 9, 9]
    expected = slow_quality(np.stack([source.crop(row) for row in rows]))
    found = score_source(source, {"q": quality}, indices=rows, batch_size=3, progress=False)
    np.testing.assert_allclose(found["q"], expected, atol=1e-4)
    assert len(score_source(source, {"q": quality}, progress=False)["q"]) == len(source)
    assert score_source(source, {}, progress=False) == {}


def test_the_only_tensors_need_no_names(tmp_path, crops):
    model = write_quality(tmp_path / "quality.onnx")
    named, unnamed = quality_description(), quality_description(quality="output:*")
    unnamed["input"]["name"] = "*"
    qualities = [
        OnnxQuality(model, description=Description.model_validate(described)) for described in (named, unnamed)
    ]
    assert np.array_equal(qualities[0](crops), qualities[1](crops))
    # What is joined with other models or kept for later has the names.
    assert qualities[0].description == qualities[1].description
    embedder = write_embedder(tmp_path / "embedder.onnx")
    write_description(embedder, input_name="*", outputs={"embedding": "*"})
    assert load_embedder(embedder).description.outputs == {"embedding": "vector"}


@pytest.mark.parametrize(
    ("written", "changes", "sentence"),
    [
        (
            {"unread": 1, "layout": "NHWC"},
            {"input_name": "*"},
            'calls an input "*", the only one, but the model has face, extra1',
        ),
        (
            {"quality": True},
            {"outputs": {"embedding": "*"}},
            "the only one, but the model has vector, bright",
        ),
    ],
)
def test_one_of_several_tensors_needs_its_name(written, changes, sentence, tmp_path):
    model = write_description(write_embedder(tmp_path / "embedder.onnx", **written), **changes)
    with pytest.raises(ModelError, match=re.escape(sentence)):
        load_embedder(model)
