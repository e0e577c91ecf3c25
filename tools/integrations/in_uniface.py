"""Run uniface with a model, in an environment of its own; see ../check_integrations.py.

    python in_uniface.py FOLDER

FOLDER contains the model as embedding.onnx, crops.npz, and scenes as 000.png with the landmarks of their
faces in points.npz. Writes outputs.npz.
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
    outputs = {"version": np.array(version("uniface"))}
    with np.load(folder / "crops.npz") as file:
        outputs["crops"] = np.concatenate(
            [recognizer.get_embedding(crop[..., ::-1]) for crop in file["crops"]]
        )
    with np.load(folder / "points.npz") as points:
        for name in points.files:
            image = cv2.imread(str(folder / f"{name}.png"))
            outputs[f"{name}_embedding"] = np.stack(
                [recognizer.get_normalized_embedding(image, face) for face in points[name]]
            )
    np.savez(folder / "outputs.npz", **outputs)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
