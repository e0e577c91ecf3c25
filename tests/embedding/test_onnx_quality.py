from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from facerts.datasets import open_source
from facerts.embedding import load_embedder, load_quality, read_description
from facerts.embedding.embed import score_source
from facerts.errors import ModelError
from facerts.onnx.contract import parse_description
from tests.foreign import (
    quality_description,
    quality_weights,
    write_description,
    write_embedder,
    write_quality,
)

Crops = NDArray[np.uint8]


def slow_quality(crops: Crops, size: int = 96) -> NDArray[np.float64]:
    resized = np.stack([cv2.resize(crop, (size, size)) for crop in crops]).astype(np.float64)
    return np.einsum("nhwc,hwc->n", (resized - 128) / 128, quality_weights(size).astype(np.float64))


@pytest.mark.parametrize("polarity", ["higher_is_better", "lower_is_better"])
@pytest.mark.parametrize("size", [96, 112])
def test_a_model_of_quality_alone_gets_crops_of_its_size_and_colors(
    tmp_path: Path, crops: Crops, size: int, polarity: str
) -> None:
    model = write_quality(tmp_path / "q.onnx", size=size)
    described = quality_description(size, polarity=polarity, name="tiny")
    model.with_suffix(".json").write_text(json.dumps(described))
    quality = load_quality(model, batch_size=5)
    found = quality(crops)
    assert (quality.name, found.dtype, found.shape) == ("tiny", np.float32, (len(crops),))
    expected = slow_quality(crops, size)
    np.testing.assert_allclose(found, expected if polarity == "higher_is_better" else -expected, atol=1e-4)
    assert np.ptp(expected) > 0.01
    assert quality(crops[:0]).shape == (0,)


def test_height_and_width_are_not_confused(crops: Crops) -> None:
    from facerts.embedding.onnx_embedder import to_input
    from facerts.onnx.contract import InputSpec

    given = to_input(crops[:2], InputSpec(size=(64, 96)))
    expected = cv2.resize(crops[1], (96, 64)).transpose(2, 0, 1)
    np.testing.assert_allclose(given[1], (expected.astype(np.float64) - 127.5) / 127.5, atol=1e-6)


def test_a_description_may_lie_elsewhere(tmp_path: Path, crops: Crops) -> None:
    model = write_quality(tmp_path / "q.onnx")
    with pytest.raises(ModelError, match=r"describe it in q\.json"):
        load_quality(model)
    (tmp_path / "else").mkdir()
    file = tmp_path / "else" / "any.json"
    file.write_text(json.dumps(quality_description()))
    np.testing.assert_allclose(
        load_quality(model, description=read_description(file))(crops), slow_quality(crops), atol=1e-4
    )
    with pytest.raises(ModelError, match=r"gone\.json: cannot be read"):
        read_description(tmp_path / "gone.json")


@pytest.mark.parametrize("quality", ["output:bright", "norm"])
def test_an_embedders_quality_is_the_one_it_gives_with_its_embedding(
    tmp_path: Path, crops: Crops, quality: str
) -> None:
    model = write_embedder(tmp_path / "m.onnx", quality=True)
    write_description(model, quality=quality, polarity="lower_is_better")
    expected = load_embedder(model)(crops).quality
    assert expected is not None
    np.testing.assert_array_equal(load_quality(model)(crops), expected)


@pytest.mark.parametrize(
    ("description", "message"),
    [
        ({"quality": "norm"}, "role 'embedding'"),
        ({"quality": "none"}, "role 'embedding'"),
        ({"quality": "output:gone"}, "no output 'gone'.*there are confidence"),
        ({"outputs": {"norm": "confidence"}, "quality": "none"}, "role 'embedding'"),
        ({"input": {"name": "crop"}}, "NCHW of"),
    ],
)
def test_descriptions_that_give_no_quality_or_do_not_fit_are_refused(
    tmp_path: Path, description: dict[str, Any], message: str
) -> None:
    model = write_quality(tmp_path / "q.onnx")
    model.with_suffix(".json").write_text(json.dumps(quality_description(**description)))
    with pytest.raises(ModelError, match=message):
        load_quality(model)


def test_each_kind_of_model_is_refused_where_the_other_is_wanted(tmp_path: Path) -> None:
    embedder, quality = write_embedder(tmp_path / "m.onnx"), write_quality(tmp_path / "q.onnx", size=112)
    write_description(embedder, quality="none")
    quality.with_suffix(".json").write_text(json.dumps(quality_description(112)))
    with pytest.raises(ModelError, match=r"m\.onnx: the model gives no quality"):
        load_quality(embedder)
    with pytest.raises(ModelError, match=r"q\.onnx: the model gives quality alone"):
        load_embedder(quality)


def test_one_number_for_each_crop_is_wanted(tmp_path: Path, crops: Crops) -> None:
    model = write_quality(tmp_path / "q.onnx", numbers=2)
    described = parse_description(json.dumps(quality_description()), "here")
    with pytest.raises(ModelError, match="24 numbers of quality; one for each"):
        load_quality(model, description=described)(crops)


def test_a_source_is_scored_in_its_order(tmp_path: Path, drawn_faces: Path) -> None:
    model = write_quality(tmp_path / "q.onnx")
    described = parse_description(json.dumps(quality_description()), "here")
    quality, source = load_quality(model, description=described), open_source(drawn_faces)
    rows = [5, 0, 9, 9]
    expected = slow_quality(np.stack([source.crop(row) for row in rows]))
    found = score_source(source, {"q": quality}, indices=rows, batch_size=3, progress=False)
    np.testing.assert_allclose(found["q"], expected, atol=1e-4)
    assert len(score_source(source, {"q": quality}, progress=False)["q"]) == len(source)
    assert score_source(source, {}, progress=False) == {}
