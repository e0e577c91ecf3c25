"""Run insightface or uniface with a model, in an environment of its own; see check_integrations.py.

    python embed_elsewhere.py insightface FOLDER

FOLDER contains the model as embedding.onnx, crops.npz, and scenes as 000.png with the landmarks of their faces in
points.npz; for insightface also the model with its quality as whole.onnx and, for photos, detector.onnx and photos in
photos/. Writes outputs.npz.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

PROVIDERS = ["CPUExecutionProvider"]
Arrays = dict[str, NDArray]


def main(package: str, folder: Path) -> None:
    outputs = {"version": np.array(version(package))}
    with np.load(folder / "crops.npz") as file, np.load(folder / "points.npz") as points:
        crops = [crop[..., ::-1] for crop in file["crops"]]
        scenes = {name: (cv2.imread(str(folder / f"{name}.png")), points[name]) for name in points.files}
    {"insightface": with_insightface, "uniface": with_uniface}[package](folder, crops, scenes, outputs)
    np.savez(folder / "outputs.npz", **outputs)


def with_uniface(
    folder: Path, crops: list[NDArray], scenes: dict[str, tuple[NDArray, NDArray]], outputs: Arrays
) -> None:
    from uniface.recognition.base import BaseRecognizer, PreprocessConfig

    class Recognizer(BaseRecognizer):
        """A model that is none of uniface's own."""

        def __init__(self, path: Path) -> None:
            super().__init__(model_path=str(path), preprocessing=PreprocessConfig(), providers=PROVIDERS)

    recognizer = Recognizer(folder / "embedding.onnx")
    outputs["crops"] = np.concatenate([recognizer.get_embedding(crop) for crop in crops])
    for name, (image, points) in scenes.items():
        embeddings = [recognizer.get_normalized_embedding(image, face) for face in points]
        outputs[f"{name}_embedding"] = np.stack(embeddings)


def with_insightface(
    folder: Path, crops: list[NDArray], scenes: dict[str, tuple[NDArray, NDArray]], outputs: Arrays
) -> None:
    from insightface.app import FaceAnalysis
    from insightface.app.common import Face
    from insightface.model_zoo import get_model

    import facerts
    from facerts.integrations.insightface import add_quality

    recognizer = get_model(str(folder / "embedding.onnx"), providers=PROVIDERS)
    recognizer.prepare(ctx_id=-1)
    scorer = facerts.load(folder / "whole.onnx")
    outputs["crops"] = recognizer.get_feat(crops)
    for name, (image, points) in scenes.items():
        faces = [Face(kps=kps) for kps in points]
        outputs[f"{name}_embedding"] = np.stack([recognizer.get(image, face) for face in faces])
        add_quality(faces, image, scorer)
        outputs[f"{name}_quality"] = np.array([face.quality for face in faces])
    if not (folder / "photos").is_dir():
        return
    # Find and embed the faces in photos with a pack of detector and recognizer.
    pack = folder / "models" / "pack"
    pack.mkdir(parents=True)
    for name in ("detector.onnx", "embedding.onnx"):
        (pack / name).write_bytes((folder / name).read_bytes())
    app = FaceAnalysis(name="pack", root=str(folder), providers=["CUDAExecutionProvider", *PROVIDERS])
    app.prepare(ctx_id=0, det_size=(640, 640))
    for path in sorted((folder / "photos").iterdir()):
        faces = app.get(cv2.imread(str(path)))
        outputs[f"photo_{path.stem}_kps"] = np.array([face.kps for face in faces]).reshape(-1, 5, 2)
        outputs[f"photo_{path.stem}_embedding"] = np.array([face.embedding for face in faces])


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
