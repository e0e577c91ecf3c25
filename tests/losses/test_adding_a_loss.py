"""The loss of docs/adding-a-loss.md trains, is exported, and passes its own test."""

import json
import re
import shlex
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

pytest.importorskip("torch")

from facerts.datasets import open_source
from facerts.embedding import load_embedder
from facerts.losses import LOSSES
from tests.command import run

PAGE = (Path(__file__).parents[2] / "docs" / "adding-a-loss.md").read_text(encoding="utf-8")
METHOD, TEST = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
(COMMAND,) = re.findall(r"^(facerts train .*)$", PAGE, re.MULTILINE)

TINY = [
    *("data.augmentation={flip: true}", "data.workers=0", "data.holdout_identities=0"),
    "backbone={name: mobilefacenet, width: 0.125, embedding_size: 16}",
    *("optim={epochs: 12, batch_size: 16, lr: 0.02}", "compute={device: cpu, precision: fp32, threads: 1}"),
]


@pytest.fixture
def load(monkeypatch):
    """Import a code block of the page under a name."""

    def loaded(name, code):
        module = ModuleType(name)
        monkeypatch.setitem(sys.modules, name, module)
        exec(compile(code, name, "exec"), module.__dict__)
        return module

    return loaded


@pytest.fixture
def normface(load, monkeypatch):
    """The method of the page, in the registry."""
    module = load("facerts.losses.normface", METHOD)
    monkeypatch.setitem(LOSSES, "normface", module.NormFace)
    return module


@pytest.mark.slow
def test_the_documented_method_trains_by_its_command_and_is_exported(normface, drawn_faces, tmp_path):
    _, *command = shlex.split(COMMAND)
    command[-1] = str(tmp_path / "run")
    assert run(*command, f"data.train={drawn_faces}", *TINY) == 0
    log = (tmp_path / "run" / "log.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(log[-1])["step"] == 48
    assert run("export", tmp_path / "run", "--out", tmp_path / "normface.onnx") == 0
    model = load_embedder(tmp_path / "normface.onnx")
    assert (model.name, model.method) == ("normface", "normface")
    source = open_source(drawn_faces)
    outputs = model(np.stack([source.crop(index) for index in range(4)]))
    np.testing.assert_allclose(np.linalg.norm(outputs.embedding, axis=1), 1, rtol=1e-5)
    np.testing.assert_array_equal(outputs.quality, outputs.norm)


def test_the_documented_test_passes_and_can_fail(normface, load, monkeypatch):
    written = load("test_normface", TEST)
    written.test_the_loss_is_the_formula()
    monkeypatch.setattr(normface.NormFace, "apply_margin", lambda self, cosine, *_: cosine - 0.1)
    with pytest.raises(AssertionError):
        written.test_the_loss_is_the_formula()
