"""Check that insightface and uniface load models of facerts and get the same embeddings and faces.

The packages are in an environment of their own, whose Python is given with --python, because their opencv-python
conflicts with the opencv-python-headless of facerts. They get synthetic crops, and scenes of rotated and scaled
synthetic faces with landmarks; with --photos and --detector also real photos.

    python -m venv .venv-integrations
    .venv-integrations/bin/python -m pip install '.[cpu]' insightface uniface
    python tools/check_integrations.py --python .venv-integrations/bin/python
    python tools/check_integrations.py --python .venv-integrations/bin/python --photos PHOTOS --detector scrfd.onnx

Exits with status 0 if all comparisons pass, and 1 if one fails.
"""

from __future__ import annotations

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
from measuring import parser_of
from numpy.typing import NDArray

import facerts
from facerts.cli.ending import ending
from facerts.datasets.synthetic import draw_face
from facerts.embedding.embedding_only import keep_embedding
from facerts.hub.find import find_model
from facerts.images import CROP_SIZE, encode_jpeg, encode_png, read
from facerts.images.align import TEMPLATE, align, similarity_transform
from facerts.integrations.insightface import FaceAnalysis
from facerts.report.table import markdown_table

ROOT = Path(__file__).parents[1]
PACKAGES = ("insightface", "uniface")

CROPS, SCENES, FACES_IN_SCENE = 24, 2, 6
MIN_COSINE = 0.9999
# facerts shrinks faces larger than twice the crop by area averaging first, which the other packages do not.
MAX_COMPARABLE_SCALE = 2.0
MAX_QUALITY_ERROR = 1e-3
# Maximum distance of the landmarks of the same face, relative to the distance of the eyes. Faces of a few pixels differ
# most, because the detectors resize photos differently.
MAX_LANDMARK_DISTANCE = 0.5
MIN_FOUND_BY_BOTH = 0.95

Arrays = Mapping[str, NDArray]


@dataclass(frozen=True)
class Comparison:
    """The worst of a number of faces or examples; the packages differ by design where nothing is required."""

    package: str
    compared: str
    number: int
    worst: str
    required: str
    ok: bool


def main() -> None:
    parser = parser_of(
        __doc__,
        {
            "--model": (str, "name or .onnx file, with a quality (default: the default model)"),
            "--photos": (Path, "folder of photos, see --number"),
            "--detector": (Path, "path of an .onnx file of SCRFD, for --photos"),
            "--number": (12, "number of photos"),
            "--json": (False, "print the comparisons as JSON"),
        },
    )
    parser.add_argument(
        "--python", type=Path, required=True, help="of an environment with facerts, insightface and uniface"
    )
    options = parser.parse_args()
    if (options.photos is None) != (options.detector is None):
        parser.error("--photos and --detector must be used together")
    photos = [] if options.photos is None else sorted(options.photos.iterdir())[: options.number]
    with ending(), tempfile.TemporaryDirectory(prefix="facerts") as scratch:
        # The interpreter is not resolved: the link in an environment is what makes it one.
        python = options.python.absolute()
        rows = check(Path(scratch), find_model(options.model), python, photos, options.detector)
    if options.json:
        print(json.dumps([asdict(row) for row in rows], indent=1))
    else:
        cells = [[*map(str, asdict(row).values())] for row in rows]
        print(markdown_table(["package", "compared", "number", "worst", "required", "ok"], cells, words=2))
    sys.exit(0 if all(row.ok for row in rows) else 1)


def check(scratch: Path, model: Path, python: Path, photos: list[Path], detector: Path | None) -> list[Comparison]:
    """Compare facerts with each package, as an interpreter imports it."""
    inputs = scratch / "inputs"
    inputs.mkdir()
    shutil.copy(model, inputs / "whole.onnx")
    keep_embedding(inputs / "whole.onnx", inputs / "embedding.onnx")
    crops = np.stack([draw_face(identity, 0) for identity in range(CROPS)])
    np.savez(inputs / "crops.npz", crops=crops)
    points = {}
    for number in range(SCENES):
        scene, points[f"{number:03}"] = draw_scene(number)
        (inputs / f"{number:03}.png").write_bytes(encode_png(scene))
    np.savez(inputs / "points.npz", **points)
    if photos and detector:
        (inputs / "photos").mkdir()
        shutil.copy(detector, inputs / "detector.onnx")
        for number, photo in enumerate(photos):
            (inputs / "photos" / f"{number:03}.png").write_bytes(encode_png(read(photo)))

    rows = []
    for package in PACKAGES:
        folder = scratch / package
        shutil.copytree(inputs, folder)
        command = [python, "-W", "ignore", ROOT / "tools" / "embed_elsewhere.py", package, folder]
        subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True)
        with np.load(folder / "outputs.npz") as outputs:
            rows += compare(folder, package, dict(outputs))
        rows.append(run_documented(python, folder, package, rows[-1].package))
    return rows


def run_documented(python: Path, folder: Path, package: str, name: str) -> Comparison:
    """Run the examples in docs/integrations.md that use only the package, with the files that they name."""
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
    return Comparison(name, "examples of the documentation", len(blocks), f"{len(failed)} fail", "0", not failed)


def compare(folder: Path, package: str, outputs: Arrays) -> list[Comparison]:
    """Compare the outputs of a package with those of facerts."""
    scorer = facerts.load(folder / "whole.onnx")
    name = f"{package} {outputs['version']}"
    with np.load(folder / "crops.npz") as file:
        rows = [_cosines(name, "synthetic crops", outputs["crops"], scorer.embed(file["crops"]).embedding)]
    theirs, ours, qualities = [], [], []
    with np.load(folder / "points.npz") as points:
        for scene in points.files:
            image = read(folder / f"{scene}.png")
            own = scorer.embed(np.stack([align(image, face) for face in points[scene]]))
            theirs.append(outputs[f"{scene}_embedding"])
            ours.append(own.embedding)
            if f"{scene}_quality" in outputs:
                qualities.append(np.abs(outputs[f"{scene}_quality"] - own.quality))
    rows.append(_cosines(name, "synthetic faces in scenes", np.concatenate(theirs), np.concatenate(ours)))
    if qualities:
        errors = np.concatenate(qualities)
        worst, required = float(errors.max()), f"error at most {MAX_QUALITY_ERROR:g}"
        ok = worst <= MAX_QUALITY_ERROR
        rows.append(Comparison(name, "add_quality, its Face", len(errors), f"{worst:.1e}", required, ok))
    return rows + (_compare_photos(folder, name, outputs) if "photo_000_kps" in outputs else [])


def draw_scene(number: int) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Rotated and scaled synthetic faces on noise: ``(H, W, 3) uint8`` and landmarks ``(K, 5, 2)`` in pixels."""
    random = np.random.default_rng(number)
    side = 2 * CROP_SIZE
    scene = random.integers(90, 120, (2 * side, FACES_IN_SCENE // 2 * side, 3), dtype=np.uint8)
    points = []
    for index in range(FACES_IN_SCENE):
        scale, angle = random.uniform(0.7, 1.4), random.uniform(-0.4, 0.4)
        rotation = scale * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        corner = np.array([index % 3, index // 3]) * side
        center = corner + side / 2
        matrix = np.hstack([rotation, (center - rotation @ np.full(2, CROP_SIZE / 2))[:, None]])
        face = draw_face(1000 + number, index)
        canvas = scene.copy()
        cv2.warpAffine(face, matrix, scene.shape[1::-1], dst=canvas, borderMode=cv2.BORDER_TRANSPARENT)
        x, y = corner
        scene[y : y + side, x : x + side] = canvas[y : y + side, x : x + side]
        points.append(TEMPLATE @ matrix[:, :2].T + matrix[:, 2])
    return scene, np.array(points, dtype=np.float32)


def _compare_photos(folder: Path, name: str, outputs: Arrays) -> list[Comparison]:
    """Compare the faces that the same lines find with insightface and with facerts, and their embeddings."""
    app = FaceAnalysis(name="pack", root=str(folder), providers=["CUDAExecutionProvider", "CPUExecutionProvider"])
    app.prepare(ctx_id=0, det_size=(640, 640))
    theirs, ours, scales, both, all_faces = [], [], [], 0, 0
    for path in sorted((folder / "photos").iterdir()):
        points = outputs[f"photo_{path.stem}_kps"]
        found = app.get(cv2.imread(str(path)))
        own_points = np.array([face.kps for face in found]).reshape(-1, 5, 2)
        eyes = np.linalg.norm(points[:, 1] - points[:, 0], axis=1)
        distance = np.linalg.norm(points[:, None] - own_points[None], axis=3).max(axis=2) / eyes[:, None]
        pairs = np.argwhere(distance <= MAX_LANDMARK_DISTANCE).tolist()
        both, all_faces = both + len(pairs), all_faces + len(points) + len(own_points) - len(pairs)
        for their_face, own_face in pairs:
            theirs.append(outputs[f"photo_{path.stem}_embedding"][their_face])
            ours.append(found[own_face].normed_embedding)
            scales.append(1 / np.linalg.norm(similarity_transform(points[their_face], TEMPLATE)[0, :2]))
    embeddings, own = np.stack(theirs), np.stack(ours)
    comparable = np.array(scales) <= MAX_COMPARABLE_SCALE
    rows = [_cosines(name, "faces in photos", embeddings[comparable], own[comparable])]
    if not comparable.all():
        rows.append(_cosines(name, "larger faces in photos", embeddings[~comparable], own[~comparable], minimum=None))
    ok = both >= MIN_FOUND_BY_BOTH * all_faces
    share = f"{MIN_FOUND_BY_BOTH:.0%}"
    rows.append(Comparison(name, "found by FaceAnalysis of both", all_faces, str(both), share, ok))
    return rows


def _cosines(
    package: str, compared: str, theirs: NDArray, ours: NDArray, minimum: float | None = MIN_COSINE
) -> Comparison:
    unit = theirs / np.linalg.norm(theirs, axis=1, keepdims=True)
    worst = float(np.einsum("nd,nd->n", unit.astype(np.float64), ours).min())
    required = "" if minimum is None else f"cosine {minimum:g}"
    return Comparison(package, compared, len(ours), f"{worst:.7f}", required, minimum is None or worst >= minimum)


if __name__ == "__main__":
    main()
