"""Run insightface with a model, in an environment of its own; see ../check_integrations.py.

    python in_insightface.py FOLDER

FOLDER contains the model as embedding.onnx, the model with its quality as whole.onnx, crops.npz, and scenes as 000.png
with the landmarks of their faces in points.npz; for photos also detector.onnx and photos in photos/. Writes
outputs.npz.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path

import cv2
import numpy as np
from insightface.app import FaceAnalysis
from insightface.app.common import Face
from insightface.model_zoo import get_model

import facerts
from facerts.integrations.insightface import add_quality

PROVIDERS = ["CPUExecutionProvider"]


def main(folder: Path) -> None:
    recognizer = get_model(str(folder / "embedding.onnx"), providers=PROVIDERS)
    recognizer.prepare(ctx_id=-1)
    outputs = {"version": np.array(version("insightface"))}
    with np.load(folder / "crops.npz") as file:
        outputs["crops"] = recognizer.get_feat([crop[..., ::-1] for crop in file["crops"]])
    scorer = facerts.load(folder / "whole.onnx")
    with np.load(folder / "points.npz") as points:
        for name in points.files:
            image = cv2.imread(str(folder / f"{name}.png"))
            faces = [Face(kps=kps) for kps in points[name]]
            outputs[f"{name}_embedding"] = np.stack([recognizer.get(image, face) for face in faces])
            add_quality(faces, image, scorer)
            outputs[f"{name}_quality"] = np.array([face.quality for face in faces])
    if (folder / "photos").is_dir():
        analyze(folder, outputs)
    np.savez(folder / "outputs.npz", **outputs)


def analyze(folder: Path, outputs: dict[str, np.ndarray]) -> None:
    """Find and embed the faces in photos with a pack of detector and recognizer."""
    pack = folder / "pack"
    pack.mkdir()
    for name in ("detector.onnx", "embedding.onnx"):
        (pack / name).write_bytes((folder / name).read_bytes())
    app = FaceAnalysis(str(pack), providers=PROVIDERS)
    app.prepare(ctx_id=-1, det_size=(640, 640))
    for path in sorted((folder / "photos").iterdir()):
        faces = app.get(cv2.imread(str(path)))
        outputs[f"photo_{path.stem}_kps"] = np.array([face.kps for face in faces]).reshape(-1, 5, 2)
        outputs[f"photo_{path.stem}_embedding"] = np.array([face.embedding for face in faces])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
