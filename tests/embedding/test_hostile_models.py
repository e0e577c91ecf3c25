"""Models that contradict their descriptions: refused with a clear error, in bounded memory and time."""

import numpy as np
import pytest

from facerts.embedding import load_embedder
from facerts.errors import ModelError
from tests.foreign import write_description, write_embedder
from tests.hostile import onnx_files
from tests.hostile.sandbox import read_bounded


def test_hostile_descriptions_are_refused_within_bounds(tmp_path):
    paths = []
    for number, content in enumerate(onnx_files.DESCRIPTIONS.values()):
        paths.append(write_embedder(tmp_path / f"{number}.onnx"))
        paths[-1].with_suffix(".json").write_bytes(content)
    for path, message in read_bounded("model", paths).items():
        assert message.startswith((f"{path}: ", f"{path.with_suffix('.json')}: ")), message


def test_hostile_models_are_refused_within_bounds(tmp_path):
    paths = [tmp_path / f"{number}.onnx" for number in range(len(onnx_files.MODELS))]
    for path, write in zip(paths, onnx_files.MODELS.values(), strict=True):
        write(path)
    messages = read_bounded("model", paths)
    for what, (path, message) in zip(onnx_files.MODELS, messages.items(), strict=True):
        assert message.startswith(str(path)), what


def test_an_error_on_the_embedding_size_names_both_numbers(tmp_path):
    model = write_description(write_embedder(tmp_path / "m.onnx"), embedding_size=8)
    crops = np.zeros((2, 112, 112, 3), dtype=np.uint8)
    assert load_embedder(model)(crops).embedding.shape == (2, 8)
    write_description(model, embedding_size=512)
    with pytest.raises(ModelError, match=r"m\.onnx: its embedding has 8 values, but its description says 512"):
        load_embedder(model)(crops)
