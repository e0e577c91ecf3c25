"""README's way from faces to a model is one that can be pasted."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

pytest.importorskip("torch")

from facerts.embedding import load_embedder
from tests.command import run

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
# Only what makes it fast: fewer faces, a smaller network and fewer steps.
FEWER = ["--identities", "40"]
SMALLER = [
    "backbone={name: mobilefacenet, width: 0.125, embedding_size: 16}",
    "optim={epochs: 8, batch_size: 16, lr: 0.02}",
    "validation.every_epochs=8",
    "compute={device: cpu, precision: fp32, threads: 1}",
]


@pytest.mark.slow
def test_the_training_commands_run_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FACERTS_DATA", raising=False)
    (block,) = re.findall(r"```\n(facerts data generate.*?)```", README, re.DOTALL)
    for line in block.replace("\\\n", " ").splitlines():
        _, *command = shlex.split(line, comments=True)
        extra = {"generate": FEWER, "train": SMALLER}.get(
            command[1] if command[0] == "data" else command[0], []
        )
        assert run(*command, *extra) == 0, line
    model = load_embedder(tmp_path / "mine.onnx")
    assert (model.name, model.method) == ("mine", "rts")
