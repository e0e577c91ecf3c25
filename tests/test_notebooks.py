"""Tutorials run as notebooks, which are their pages; their numbers are those that they promise."""

from __future__ import annotations

import importlib
import json
import re
import shlex
from typing import Any

import pytest

from tests.command import run
from tests.scripts import TOOLS, load_script

SCRIPT = load_script("docs_notebook", TOOLS)
PAGES = {path.stem: path.read_text(encoding="utf-8") for path in SCRIPT.PAGES}
NOTEBOOKS = {path.stem: path.with_suffix(".ipynb").read_text(encoding="utf-8") for path in SCRIPT.PAGES}


def cells(name: str) -> list[str]:
    found = json.loads(NOTEBOOKS[name])["cells"]
    return ["".join(cell["source"]) for cell in found if cell["cell_type"] == "code"]


def execute(name: str) -> None:
    names: dict[str, Any] = {}
    for code in cells(name):
        exec(compile(code, "cell", "exec"), names)


@pytest.fixture
def _importable_torchvision() -> Any:
    """timm imports torchvision, whose own operators are missing where PyTorch is of another build."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("accelerate")
    operators = torch.library.Library("torchvision", "FRAGMENT")
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        for name in ("nms", "qnms"):
            operators.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return operators  # which last as long as this


def test_the_notebook_is_the_page():
    for name, page in PAGES.items():
        assert SCRIPT.notebook(page) == NOTEBOOKS[name], "python tools/docs_notebook.py writes it again"


def test_a_loop_takes_ten_lines():
    (loop,) = (code for code in cells("losses") if "optim.SGD" in code)
    lines = [line for line in loop.splitlines() if line and not line.startswith(("import ", "from "))]
    assert len(lines) == 10


def test_the_first_hour_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    execute("first-hour")
    printed = capsys.readouterr().out.splitlines()
    assert [line.split(", ")[0] for line in printed[1:3]] == ["different", "same"]
    assert printed[0].startswith("good percentile 3")
    assert float(printed[3].split()[2]) > 0.7
    assert "similarity to the original" in (tmp_path / "figure.svg").read_text()


@pytest.mark.slow
@pytest.mark.usefixtures("_importable_torchvision")
def test_the_losses_train_export_and_agree(tmp_path, monkeypatch, capsys):
    import torch

    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    execute("losses")
    for command in re.findall(r"^facerts .*", PAGES["losses"], re.MULTILINE):
        assert run(*shlex.split(command)[1:]) == 0
    printed = capsys.readouterr().out
    assert float(re.findall(r"^auroc +(\S+)", printed, re.MULTILINE)[0]) > 0.8
    same = re.findall(r"^(\d+\.\d{6}) (\d+\.\d{6})$", printed, re.MULTILINE)
    assert [float(mine) for mine, _ in same] == pytest.approx([float(theirs) for _, theirs in same], rel=1e-5)
    assert len(same) == 2
