"""What uniface makes of a model; runs in an environment of its own, see ../check_integrations.py.

    python in_uniface.py FOLDER

FOLDER has the model as embedding.onnx, crops.npz, and scenes as 000.png with their faces' points in points.npz. Adds
seen.npz.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path

import cv2
import numpy as np
from uniface.recognition.base import BaseRecognizer, PreprocessConfig


class Recognizer(BaseRecognizer):
    """A model that is none of uniface's own."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            model_path=str(path), preprocessing=PreprocessConfig(), providers=["CPUExecutionProvider"]
        )


def main(folder: Path) -> None:
    recognizer = Recognizer(folder / "embedding.onnx")
    seen = {"version": np.array(version("uniface"))}
    with np.load(folder / "crops.npz") as file:
        seen["crops"] = np.concatenate([recognizer.get_embedding(crop[..., ::-1]) for crop in file["crops"]])
    with np.load(folder / "points.npz") as points:
        for name in points.files:
            picture = cv2.imread(str(folder / f"{name}.png"))
            seen[f"{name}_embedding"] = np.stack(
                [recognizer.get_normalized_embedding(picture, face) for face in points[name]]
            )
    np.savez(folder / "seen.npz", **seen)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
