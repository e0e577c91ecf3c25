"""Models that contradict their descriptions: refused with a clear error, in bounded memory and time."""

from __future__ import annotations

import numpy as np
import pytest

from facerts.datasets.synthetic import draw_face
from facerts.embedding import load_embedder
from facerts.errors import ModelError
from facerts.images import encode_png
from tests.command import run
from tests.foreign import write_description, write_embedder
from tests.hostile import onnx_files
from tests.hostile.bounded import read_bounded


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


def test_a_command_reports_what_is_wrong_with_its_model(tmp_path, capfd):
    (tmp_path / "face.png").write_bytes(encode_png(draw_face(0, 0)))
    onnx_files.MODELS["it fails at run time"](tmp_path / "m.onnx")
    command = ("score", tmp_path / "face.png", "--model", tmp_path / "m.onnx", "--out", tmp_path / "rows.csv")
    assert run(*command) == 2
    stderr = capfd.readouterr().err
    assert f"error: {tmp_path / 'm.onnx'}" in stderr
    assert "Traceback" not in stderr


def test_an_error_on_the_embedding_size_names_both_numbers(tmp_path):
    model = write_description(write_embedder(tmp_path / "m.onnx"), embedding_size=8)
    crops = np.zeros((2, 112, 112, 3), dtype=np.uint8)
    assert load_embedder(model)(crops).embedding.shape == (2, 8)
    write_description(model, embedding_size=512)
    with pytest.raises(ModelError, match=r"m\.onnx: its embedding has 8 values, but its description says 512"):
        load_embedder(model)(crops)
