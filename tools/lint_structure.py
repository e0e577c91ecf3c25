"""The structure of the package, which tools/lint.py checks with the documentation.

Imports point down the floors of docs/architecture.md, without a circle; PyTorch has its own rooms; metrics need no
files and no models; no file name and no public class name is used twice; every package is listed for the wheel.
"""

from __future__ import annotations

import ast
import configparser
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# From the top to the ground; a package may import packages on lower floors, and itself.
FLOORS = [
    {"__main__"},
    {"cli"},
    {"__init__"},
    {"integrations", "report", "serving", "training"},
    {"web"},
    {"losses"},
    {"nn"},
    {"people"},
    {"calibration", "galleries"},
    {"curation", "evaluation", "scoring"},
    {"embedding"},
    {"detection", "video"},
    {"datasets", "hub"},
    {"onnx"},
    {"images"},
    {"io"},
    {"errors", "metrics", "version"},
]
TORCH_ROOMS = "losses", "nn", "training"
# What an own training loop takes from other rooms.
TORCH_MODULES = "facerts/datasets/torch.py", "facerts/evaluation/while_training.py"
NOT_FOR_METRICS = {"pathlib", "os", "io", "cv2", "onnxruntime", "torch"}


class Package:
    """The modules of a package and what they import.

    Args:
        root: folder of the repository, which contains the package ``facerts``.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / "facerts"
        self.trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(self.folder.rglob("*.py"))}
        self.imports = {path: set(imported_names(tree)) for path, tree in self.trees.items()}

    def name(self, path: Path) -> str:
        """A file's path, for messages."""
        return path.relative_to(self.root).as_posix()

    def room(self, path: Path) -> str:
        """The package, or the module at the top, that a file belongs to."""
        return path.relative_to(self.folder).parts[0].removesuffix(".py")

    def module(self, name: str) -> Path | None:
        """The file of a dotted name; None if the name is not a module of the package."""
        parts = name.split(".")
        if parts[0] != "facerts":
            return None
        path = self.root.joinpath(*parts)
        return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file in self.trees), None)


def imported_names(tree: ast.AST) -> Iterator[str]:
    """Dotted names of every import, wherever in the file it stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def upward_imports(package: Package) -> Iterator[str]:
    """Imports of a package on the same or a higher floor."""
    floors = {name: depth for depth, names in enumerate(FLOORS) for name in names}
    for path, names in package.imports.items():
        own = package.room(path)
        if own not in floors:
            yield f"{package.name(path)}: add {own} to the floors of {Path(__file__).name}"
            continue
        for name in sorted(names):
            file = package.module(name)
            other = package.room(file) if file else own
            if other not in (own, "__init__") and floors[own] >= floors[other]:
                yield f"{package.name(path)}: imports {name}, which is not on a lower floor"


def circles(package: Package) -> Iterator[str]:
    """Files that import each other, directly or through others."""
    needed = {
        path: {file for name in names if (file := package.module(name)) and file.name != "__init__.py"}
        for path, names in package.imports.items()
    }

    def reachable(start: Path) -> set[Path]:
        seen: set[Path] = set()
        waiting = [start]
        while waiting:
            new = needed[waiting.pop()] - seen
            seen |= new
            waiting += new
        return seen

    reached = {path: reachable(path) for path in needed}
    for path in needed:
        others = sorted(package.name(other) for other in reached[path] if path in reached[other] and other != path)
        if others:
            yield f"{package.name(path)}: in a circle of imports with {', '.join(others)}"


def forbidden_imports(package: Package) -> Iterator[str]:
    """PyTorch outside of training; files and models in metrics."""
    for path, names in package.imports.items():
        roots = {name.split(".")[0] for name in names}
        if (
            package.room(path) not in TORCH_ROOMS
            and package.name(path) not in TORCH_MODULES
            and roots & {"torch", "torchvision"}
        ):
            yield f"{package.name(path)}: only {', '.join((*TORCH_ROOMS, *TORCH_MODULES))} may import PyTorch"
        if package.room(path) == "metrics" and roots & NOT_FOR_METRICS:
            yield f"{package.name(path)}: metrics need no {', '.join(sorted(roots & NOT_FOR_METRICS))}"


def repeated_names(package: Package) -> Iterator[str]:
    """File names and public class names that are used more than once, but files of commands."""
    places: dict[str, list[str]] = defaultdict(list)
    for path, tree in package.trees.items():
        # Commands are named as users type them.
        if path.name != "__init__.py" and package.room(path) != "cli":
            places[f"file name {path.name}"].append(package.name(path))
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[f"class {node.name}"].append(package.name(path))
    for what, paths in places.items():
        if len(paths) > 1:
            yield f"{paths[0]}: the {what} is also used in {', '.join(paths[1:])}"


def unlisted_packages(package: Package) -> Iterator[str]:
    """Packages that setup.cfg does not list, and the other way round."""
    config = configparser.ConfigParser()
    config.read(package.root / "setup.cfg")
    listed = set(config["options"]["packages"].split()) - {"facerts.models", "facerts.recipes"}
    there = {
        ".".join(path.parent.relative_to(package.root).parts) for path in package.trees if path.name == "__init__.py"
    }
    yield from (f"setup.cfg: options.packages lacks {name}" for name in sorted(there - listed))
    yield from (f"setup.cfg: options.packages has {name}, which does not exist" for name in sorted(listed - there))


CHECKS = (upward_imports, circles, forbidden_imports, repeated_names, unlisted_packages)


def faults(root: Path) -> list[str]:
    """Every fault in the structure of a repository."""
    package = Package(root)
    return [fault for check in CHECKS for fault in check(package)]
