"""The arrows of the design: who may import whom, and that the use side needs no PyTorch."""

from __future__ import annotations

import ast
import configparser
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "facerts"

# From the top to the ground; a room may import rooms on lower floors, and itself.
FLOORS = [
    {"__main__"},
    {"cli"},
    {"__init__", "insightface", "sklearn", "serve"},
    {"calibration", "integrations", "report", "serving", "training"},
    {"galleries"},
    {"curation", "evaluation", "export", "scoring"},
    {"embedding"},
    {"benchmarks", "detection"},
    {"datasets", "hub", "onnx"},
    {"images", "io"},
    {"errors", "metrics", "version"},
]


def imports(path: Path) -> set[str]:
    """Dotted names of every import in a file, wherever in it they stand."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{name.name}" for name in node.names}
    return found


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def floor(name: str) -> int:
    return next(depth for depth, rooms in enumerate(FLOORS) if name in rooms)


def test_imports_point_down() -> None:
    upward = []
    for path in PACKAGE.rglob("*.py"):
        for name in imports(path):
            parts = name.split(".")
            if parts[0] != "facerts" or len(parts) < 2 or parts[1] in {"models", "recipes", room(path)}:
                continue
            there = (PACKAGE / parts[1]).is_dir() or (PACKAGE / f"{parts[1]}.py").is_file()
            # What is not there is a name that facerts/__init__ exports.
            if there and floor(room(path)) >= floor(parts[1]):
                upward.append(f"{path.relative_to(ROOT)} imports {name}")
    assert not upward


def test_only_training_imports_pytorch() -> None:
    outside = [path for path in PACKAGE.rglob("*.py") if room(path) != "training"]
    assert [
        path for path in outside if {"torch", "torchvision"} & {n.split(".")[0] for n in imports(path)}
    ] == []


def test_no_public_class_name_has_two_meanings() -> None:
    places: dict[str, list[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(str(path.relative_to(PACKAGE)))
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


def test_metrics_touch_no_files_and_no_models() -> None:
    for path in (PACKAGE / "metrics").glob("*.py"):
        roots = {name.split(".")[0] for name in imports(path)}
        assert not roots & {"pathlib", "os", "io", "cv2", "onnxruntime", "torch"}, path


def test_every_package_is_listed_for_the_wheel() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    listed = set(config["options"]["packages"].split())
    there = {".".join(p.parent.relative_to(ROOT).parts) for p in PACKAGE.rglob("__init__.py")}
    assert listed == there | {"facerts.models", "facerts.recipes"}


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
def test_the_use_side_runs_where_pytorch_cannot_be_imported(
    exported: Path, drawn_faces: Path, tmp_path: Path, kind: str
) -> None:
    from facerts.benchmarks import pairs_from_identities
    from facerts.benchmarks.bin_sets import write_bin
    from facerts.datasets import open_source

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
    blocked = {"torch", "torchvision", "albumentations", "onnx", "onnxscript", "tensorboard"}
    code = USE_SIDE.format(
        blocked=blocked, model=str(exported), broken=str(tmp_path / "no.jpg"), command=command
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize(
    "command", [["train", "demo"], ["export", "run", "--out", "m.onnx"]], ids=lambda c: c[0]
)
def test_the_training_side_says_what_to_install_where_pytorch_is_missing(
    exported: Path, tmp_path: Path, command: list[str]
) -> None:
    code = USE_SIDE.format(
        blocked={"torch"}, model=str(exported), broken=str(tmp_path / "no.jpg"), command=command
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert "needs torch, which is not installed: pip install 'facerts[train]'" in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("insightface", "integrations.insightface"),
        ("serve", "serving"),
        ("sklearn", "integrations.sklearn"),
    ],
)
def test_public_modules_are_still_found_where_they_were(old: str, new: str) -> None:
    sys.modules.pop(f"facerts.{old}", None)
    with pytest.warns(DeprecationWarning, match=f"facerts.{old} has moved to facerts.{new}"):
        moved = importlib.import_module(f"facerts.{old}")
    there = importlib.import_module(f"facerts.{new}")
    assert moved.__all__
    assert all(getattr(moved, name) is getattr(there, name) for name in moved.__all__)
