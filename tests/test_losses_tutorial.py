"""The tutorial of the losses runs as a notebook, which is its page; its numbers are those that it promises."""

from __future__ import annotations

import importlib
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("accelerate")

import torch

from tests.command import run
from tests.scripts import TOOLS, load_script

SCRIPT = load_script("docs_notebook", TOOLS)
PAGE, NOTEBOOK = (path.read_text(encoding="utf-8") for path in (SCRIPT.PAGE, SCRIPT.NOTEBOOK))
CODE = ["".join(cell["source"]) for cell in json.loads(NOTEBOOK)["cells"] if cell["cell_type"] == "code"]
COMMANDS = re.findall(r"^facerts .*", PAGE, re.MULTILINE)


@pytest.fixture
def _importable_torchvision() -> torch.library.Library:
    """timm imports torchvision, whose own operators are missing where PyTorch is of another build."""
    operators = torch.library.Library("torchvision", "FRAGMENT")
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        for name in ("nms", "qnms"):
            operators.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return operators  # which last as long as this


def test_the_notebook_is_the_page() -> None:
    assert SCRIPT.notebook(PAGE) == NOTEBOOK, "python tools/docs_notebook.py writes it again"


def test_a_loop_takes_ten_lines() -> None:
    (loop,) = (code for code in CODE if "optim.SGD" in code)
    lines = [line for line in loop.splitlines() if line and not line.startswith(("import ", "from "))]
    assert len(lines) == 10


@pytest.mark.usefixtures("_importable_torchvision")
def test_the_cells_run_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    names: dict[str, Any] = {}
    for code in CODE:
        exec(compile(code, "cell", "exec"), names)
    for command in COMMANDS:
        assert run(*shlex.split(command)[1:]) == 0
    printed = capsys.readouterr().out
    assert float(re.findall(r"^auroc +(\S+)", printed, re.MULTILINE)[0]) > 0.8
    same = re.findall(r"^(\d+\.\d{6}) (\d+\.\d{6})$", printed, re.MULTILINE)
    assert [float(mine) for mine, _ in same] == pytest.approx([float(theirs) for _, theirs in same], rel=1e-5)
    assert len(same) == 2
