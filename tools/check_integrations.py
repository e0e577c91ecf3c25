"""Hold insightface and uniface against facerts: do they load its models, and get the same embeddings and faces?

The packages live in an environment of their own, whose Python is given with --python: they bring opencv-python, which
shares a folder with the opencv-python-headless of facerts. They are given drawn crops, and scenes of turned and scaled
drawn faces with their points; with --photos and --detector also real photos.

    python -m venv .venv-integrations
    .venv-integrations/bin/python -m pip install '.[cpu,integrations]'
    python tools/check_integrations.py --python .venv-integrations/bin/python
    python tools/check_integrations.py --python .venv-integrations/bin/python --photos PHOTOS --detector scrfd.onnx

Ends with 0 if all is as wanted, with 1 if something is not.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

import facerts
from facerts.cli.ending import ending
from facerts.datasets.synthetic import draw_face
from facerts.export.embedding_only import keep_embedding
from facerts.hub.registry import find_model
from facerts.images import CROP_SIZE, encode_jpeg, encode_png, read
from facerts.images.align import TEMPLATE, align, similarity_transform
from facerts.integrations.insightface import FaceAnalysis
from facerts.report.markdown import markdown_table

ROOT = Path(__file__).parents[1]
PACKAGES = ("insightface", "uniface")

CROPS, SCENES, FACES_IN_SCENE = 24, 2, 6
LEAST_COSINE = 0.9999
# Faces larger than twice the crop are reduced by area first, which the others leave out.
LARGEST_ALIKE = 2.0
QUALITY_ERROR = 1e-3
# Two detectors found the same face where none of its points is further apart, in distances between the eyes: faces of
# a few pixels differ most, as the two reduce photos differently.
POINTS_APART = 0.5
LEAST_FOUND_BY_BOTH = 0.95

Arrays = Mapping[str, NDArray]


@dataclass(frozen=True)
class Row:
    """One comparison.

    Attributes:
        package: with its version.
        compared: what was.
        number: of faces, or of examples.
        found: the worst of them.
        wanted: the bound; empty where there is none, as the two differ by design.
        ok: whether it holds.
    """

    package: str
    compared: str
    number: int
    found: str
    wanted: str
    ok: bool


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--python",
        type=Path,
        required=True,
        help="interpreter of an environment with facerts[cpu,integrations]",
    )
    parser.add_argument("--model", help="name or .onnx file, with a quality (default: the default model)")
    parser.add_argument("--only", choices=PACKAGES, help="check one package (default: all)")
    parser.add_argument("--photos", type=Path, help="a folder of photos, of which --number are taken")
    parser.add_argument("--detector", type=Path, help="an .onnx file of SCRFD, for --photos")
    parser.add_argument("--number", type=int, default=12, help="of photos (default: 12)")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    options = parser.parse_args()
    if (options.photos is None) != (options.detector is None):
        parser.error("--photos and --detector go together")
    with ending(), tempfile.TemporaryDirectory(prefix="facerts") as scratch:
        rows = check(
            Path(scratch),
            find_model(options.model),
            # Not resolved: the link in an environment is what makes it one.
            python=options.python.absolute(),
            packages=[options.only] if options.only else list(PACKAGES),
            photos=None if options.photos is None else sorted(options.photos.iterdir())[: options.number],
            detector=options.detector,
        )
    if options.json:
        print(json.dumps([asdict(row) for row in rows], indent=1))
    else:
        cells = [
            [row.package, row.compared, str(row.number), row.found, row.wanted, "yes" if row.ok else "NO"]
            for row in rows
        ]
        print(markdown_table(["package", "compared", "number", "worst", "wanted", "ok"], cells, words=2))
    sys.exit(0 if all(row.ok for row in rows) else 1)


def check(
    scratch: Path,
    model: Path,
    *,
    python: Path,
    packages: list[str],
    photos: list[Path] | None,
    detector: Path | None,
) -> list[Row]:
    """Compare facerts with each package, as an interpreter has it."""
    given = scratch / "given"
    given.mkdir()
    shutil.copy(model, given / "whole.onnx")
    keep_embedding(given / "whole.onnx", given / "embedding.onnx")
    crops = np.stack([draw_face(identity, 0) for identity in range(CROPS)])
    np.savez(given / "crops.npz", crops=crops)
    points = {}
    for number in range(SCENES):
        scene, points[f"{number:03}"] = draw_scene(number)
        (given / f"{number:03}.png").write_bytes(encode_png(scene))
    np.savez(given / "points.npz", **points)
    if photos is not None and detector is not None:
        (given / "photos").mkdir()
        shutil.copy(detector, given / "detector.onnx")
        for number, photo in enumerate(photos):
            (given / "photos" / f"{number:03}.png").write_bytes(encode_png(read(photo)))

    rows = []
    for package in packages:
        folder = scratch / package
        shutil.copytree(given, folder)
        script = ROOT / "tools" / "integrations" / f"in_{package}.py"
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        subprocess.run([python, "-W", "ignore", script, folder], env=environment, check=True)
        with np.load(folder / "seen.npz") as seen:
            rows += compare(folder, package, dict(seen))
        rows.append(run_documented(python, folder, package, rows[-1].package))
    return rows


def run_documented(python: Path, folder: Path, package: str, name: str) -> Row:
    """Run what docs/integrations.md shows of a package by itself, with the files that it names."""
    shutil.copy(folder / "embedding.onnx", folder / "small-embedding.onnx")
    with np.load(folder / "crops.npz") as file:
        (folder / "crop.png").write_bytes(encode_png(file["crops"][0]))
    photos = sorted(folder.glob("photos/*.png"))
    if photos:
        (folder / "photo.jpg").write_bytes(encode_jpeg(read(photos[0])))
    text = (ROOT / "docs" / "integrations.md").read_text(encoding="utf-8")
    blocks = [
        block
        for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        if re.search(rf"^from {package}\b", block, re.MULTILINE)
        and "facerts" not in block
        and (photos or "photo.jpg" not in block)
    ]
    failed = [
        block
        for block in blocks
        if subprocess.run([python, "-W", "ignore", "-c", block], cwd=folder, check=False).returncode
    ]
    return Row(name, "examples of the documentation", len(blocks), f"{len(failed)} fail", "0", not failed)


def compare(folder: Path, package: str, seen: Arrays) -> list[Row]:
    """What a package saw, beside what facerts sees."""
    scorer = facerts.load(folder / "whole.onnx")
    name = f"{package} {seen['version']}"
    with np.load(folder / "crops.npz") as file:
        rows = [_cosines(name, "drawn crops", seen["crops"], scorer.embed(file["crops"]).embedding)]
    theirs, ours, qualities = [], [], []
    with np.load(folder / "points.npz") as points:
        for scene in points.files:
            picture = read(folder / f"{scene}.png")
            found = scorer.embed(np.stack([align(picture, face) for face in points[scene]]))
            theirs.append(seen[f"{scene}_embedding"])
            ours.append(found.embedding)
            if f"{scene}_quality" in seen:
                qualities.append(np.abs(seen[f"{scene}_quality"] - found.quality))
    rows.append(_cosines(name, "drawn faces in scenes", np.concatenate(theirs), np.concatenate(ours)))
    if qualities:
        apart = np.concatenate(qualities)
        worst = float(apart.max())
        wanted = f"at most {QUALITY_ERROR:g} apart"
        rows.append(
            Row(name, "add_quality, its Face", len(apart), f"{worst:.1e}", wanted, worst <= QUALITY_ERROR)
        )
    return rows + (_compare_photos(folder, name, seen) if "photo_000_kps" in seen else [])


def draw_scene(number: int) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Drawn faces, turned and scaled, on noise: ``(H, W, 3) uint8`` and their points ``(K, 5, 2)``."""
    random = np.random.default_rng(number)
    side = 2 * CROP_SIZE
    scene = random.integers(90, 120, (2 * side, FACES_IN_SCENE // 2 * side, 3), dtype=np.uint8)
    points = []
    for place in range(FACES_IN_SCENE):
        scale, turn = random.uniform(0.7, 1.4), random.uniform(-0.4, 0.4)
        turned = scale * np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
        corner = np.array([place % 3, place // 3]) * side
        middle = corner + side / 2
        matrix = np.hstack([turned, (middle - turned @ np.full(2, CROP_SIZE / 2))[:, None]])
        face = draw_face(1000 + number, place)
        canvas = scene.copy()
        cv2.warpAffine(face, matrix, scene.shape[1::-1], dst=canvas, borderMode=cv2.BORDER_TRANSPARENT)
        x, y = corner
        scene[y : y + side, x : x + side] = canvas[y : y + side, x : x + side]
        points.append(TEMPLATE @ matrix[:, :2].T + matrix[:, 2])
    return scene, np.array(points, dtype=np.float32)


def _compare_photos(folder: Path, name: str, seen: Arrays) -> list[Row]:
    """Faces that insightface's detector found, aligned by facerts; and those that facerts' own detector found."""
    scorer = facerts.load(folder / "whole.onnx")
    app = FaceAnalysis(folder / "whole.onnx", detector="scrfd", detector_model=folder / "detector.onnx")
    app.prepare(ctx_id=-1, det_size=(640, 640))
    theirs, ours, sizes, both, all_faces = [], [], [], 0, 0
    for path in sorted((folder / "photos").iterdir()):
        points = seen[f"photo_{path.stem}_kps"]
        found = np.array([face.kps for face in app.get(cv2.imread(str(path)))]).reshape(-1, 5, 2)
        eyes = np.linalg.norm(points[:, 1] - points[:, 0], axis=1)
        apart = np.linalg.norm(points[:, None] - found[None], axis=3).max(axis=2) / eyes[:, None]
        same = int((apart <= POINTS_APART).any(axis=1).sum())
        both, all_faces = both + same, all_faces + len(points) + len(found) - same
        if len(points):
            picture = read(path)
            theirs.append(seen[f"photo_{path.stem}_embedding"])
            ours.append(scorer.embed(np.stack([align(picture, face) for face in points])).embedding)
            sizes += [1 / np.linalg.norm(similarity_transform(face, TEMPLATE)[0, :2]) for face in points]
    embeddings, own, alike = np.concatenate(theirs), np.concatenate(ours), np.array(sizes) <= LARGEST_ALIKE
    rows = [_cosines(name, "faces in photos", embeddings[alike], own[alike])]
    if not alike.all():
        rows.append(_cosines(name, "larger faces in photos", embeddings[~alike], own[~alike], least=None))
    ok = both >= LEAST_FOUND_BY_BOTH * all_faces
    share = f"{LEAST_FOUND_BY_BOTH:.0%}"
    rows.append(Row(name, "found by FaceAnalysis of both", all_faces, str(both), share, ok))
    return rows


def _cosines(
    package: str, compared: str, theirs: NDArray, ours: NDArray, least: float | None = LEAST_COSINE
) -> Row:
    unit = theirs / np.linalg.norm(theirs, axis=1, keepdims=True)
    worst = float(np.einsum("nd,nd->n", unit.astype(np.float64), ours).min())
    wanted = "" if least is None else f"cosine {least:g}"
    return Row(package, compared, len(ours), f"{worst:.7f}", wanted, least is None or worst >= least)


if __name__ == "__main__":
    main()
