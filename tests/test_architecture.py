"""The use side needs no PyTorch, and the checks of the structure notice every kind of fault."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def lint() -> ModuleType:
    spec = importlib.util.spec_from_file_location("lint_structure", ROOT / "tools" / "lint_structure.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# Files of a package, and the fault that the checks should find in it; none in the first.
PACKAGES = {
    "": {"scoring/row.py": "from facerts.images.crop import Crop", "images/crop.py": "class Crop: ..."},
    "is not on a lower floor": {"images/crop.py": "from facerts.cli import app", "cli/app.py": ""},
    "in a circle": {"io/a.py": "import facerts.io.b", "io/b.py": "def f():\n    from facerts.io import a"},
    "may import PyTorch": {
        "scoring/row.py": "import torch.nn",
        "training/loop.py": "import torch",
    },
    "metrics need no os": {"metrics/roc.py": "import os"},
    "the file name row.py is also": {"scoring/row.py": "", "serving/row.py": ""},
    "the class Row is also": {"scoring/row.py": "class Row: ...", "serving/table.py": "class Row: ..."},
    "to the floors": {"new_room/a.py": ""},
    "lacks facerts.images": {"images/__init__.py": ""},
}


@pytest.mark.parametrize("fault", PACKAGES)
def test_a_fault_in_the_structure_is_found(lint, tmp_path, fault):
    (tmp_path / "setup.cfg").write_text("[options]\npackages =\n    facerts\n", encoding="utf-8")
    for name, text in {"__init__.py": "", **PACKAGES[fault]}.items():
        path = tmp_path / "facerts" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    faults = lint.faults(tmp_path)
    assert bool(faults) == bool(fault)
    assert all(fault in each for each in faults)


USE_SIDE = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"{{name}} is not here", name=name)

sys.meta_path.insert(0, Refuse())
import facerts
from facerts.cli.app import build_app
from facerts.datasets.synthetic import draw_face

build_app()
scorer = facerts.load({model!r})
rows = scorer.score([draw_face(0, 0), {broken!r}])
assert rows[0].quality is not None and rows[1].error, rows
sys.argv = ["facerts", *{command!r}]
from facerts.cli import main
main()
"""


@pytest.mark.parametrize("kind", ["score", "verification", "dedup", "doctor"])
def test_the_use_side_runs_where_pytorch_cannot_be_imported(exported, drawn_faces, tmp_path, kind):
    from facerts.datasets import open_source, pairs_from_identities
    from facerts.datasets.bin_set import write_bin

    benchmark = pairs_from_identities(open_source(drawn_faces), genuine=20, impostors=20, seed=0)
    images = [benchmark.images.read(int(i)) for i in benchmark.pairs.reshape(-1)]
    write_bin(tmp_path / "set.bin", images, benchmark.same.tolist())
    command = {
        "score": ["score", str(drawn_faces), "--model", str(exported), "--out", str(tmp_path / "rows.csv")],
        "verification": [
            *["evaluate", "verification", "--model", str(exported)],
            *["--data", str(tmp_path / "set.bin"), "--out", str(tmp_path / "result")],
        ],
        "dedup": [
            *["data", "dedup", str(drawn_faces), "--by", "embedding", "--model", str(exported)],
            *["--out", str(tmp_path / "once")],
        ],
        "doctor": ["doctor"],
    }[kind]
    blocked = {"torch", "torchvision", "onnx", "onnxscript", "tensorboard"}
    code = USE_SIDE.format(blocked=blocked, model=str(exported), broken=str(tmp_path / "no.jpg"), command=command)
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("command", [["train", "demo"], ["export", "run", "--out", "m.onnx"]], ids=lambda c: c[0])
def test_the_training_side_says_what_to_install_where_pytorch_is_missing(exported, tmp_path, command):
    code = USE_SIDE.format(blocked={"torch"}, model=str(exported), broken=str(tmp_path / "no.jpg"), command=command)
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert "needs torch, which is not installed: in your clone of facerts, pip install '.[cpu,train]'" in ran.stderr
    assert "Traceback" not in ran.stderr
