"""README's way from faces to a model is one that can be pasted."""

import re
import shlex
from pathlib import Path

import pytest

pytest.importorskip("torch")

from facerts.embedding import load_embedder
from tests.command import run

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
# Only what makes training from nothing fast: a smaller network and fewer steps.
SMALLER = [
    "backbone={name: mobilefacenet, width: 0.125, embedding_size: 16}",
    "optim={epochs: 1, batch_size: 64, lr: 0.02}",
    "compute={device: cpu, precision: fp32, threads: 1}",
]


@pytest.mark.slow
def test_the_training_commands_run_as_they_stand(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for variable in ("FACERTS_DATA", "FACERTS_MODELS"):
        monkeypatch.delenv(variable, raising=False)
    section = README.partition("## Train\n")[2].partition("\n## ")[0]
    train, draw = re.findall(r"```\n(.*?)```", section, re.DOTALL)
    for line in [*draw.splitlines(), *train.splitlines()]:
        assert run(*shlex.split(line, comments=True)[1:]) == 0, line
    printed = capsys.readouterr()
    assert "not clearly better than facerts-small" in printed.err
    assert "94% [83, 99]" in printed.out
    assert run("evaluate", "verification", "--model", "facerts-small", "--data", "others", "--out", "shipped") == 0
    assert "85% [68, 93]" in capsys.readouterr().out
    assert load_embedder(tmp_path / "mine.onnx").name == "mine"
    (own,) = re.findall(r"`facerts (train faces_small [^`]*)`", section)
    assert run(*own.split(), *SMALLER) == 0
