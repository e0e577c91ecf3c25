"""Models that are not what they say of themselves: refused with a sentence, in bounded memory and time."""

from __future__ import annotations

from pathlib import Path

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


def test_no_description_asks_for_more_than_a_model_needs(tmp_path: Path) -> None:
    paths = []
    for number, content in enumerate(onnx_files.DESCRIPTIONS.values()):
        paths.append(write_embedder(tmp_path / f"{number}.onnx"))
        paths[-1].with_suffix(".json").write_bytes(content)
    for path, sentence in read_bounded("model", paths).items():
        assert sentence.startswith((f"{path}: ", f"{path.with_suffix('.json')}: ")), sentence


def test_no_model_ends_a_run_otherwise_than_with_a_sentence(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.onnx" for number in range(len(onnx_files.MODELS))]
    for path, write in zip(paths, onnx_files.MODELS.values(), strict=True):
        write(path)
    told = read_bounded("model", paths)
    for what, (path, sentence) in zip(onnx_files.MODELS, told.items(), strict=True):
        assert sentence.startswith(str(path)), what


@pytest.mark.parametrize("what", ["it fails at run time", "metadata that is not UTF-8", "one row for all"])
def test_a_command_says_what_is_wrong_with_its_model(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], what: str
) -> None:
    (tmp_path / "face.png").write_bytes(encode_png(draw_face(0, 0)))
    onnx_files.MODELS[what](tmp_path / "m.onnx")
    command = ("score", tmp_path / "face.png", "--model", tmp_path / "m.onnx", "--out", tmp_path / "rows.csv")
    assert run(*command) == 2
    told = capfd.readouterr().err
    assert f"error: {tmp_path / 'm.onnx'}" in told
    assert "Traceback" not in told


def test_a_wrong_size_is_told_with_both_numbers(tmp_path: Path) -> None:
    model = write_embedder(tmp_path / "m.onnx")
    write_description(model, embedding_size=8)
    crops = np.zeros((2, 112, 112, 3), dtype=np.uint8)
    assert load_embedder(model)(crops).embedding.shape == (2, 8)
    write_description(model, embedding_size=512)
    with pytest.raises(
        ModelError, match=r"m\.onnx: its embedding has 8 numbers, and its description says 512"
    ):
        load_embedder(model)(crops)
