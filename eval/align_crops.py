"""Finds the largest face in each image of a source and writes it as an aligned crop.

python eval/align_crops.py $FACERTS_DATA/rafdb --detector $FACERTS_MODELS/face_detection_yunet_2023mar.onnx \\
    --out out/rafdb_aligned

Images without a face are left out. The RTS paper's in-distribution faces of RAF-DB were found by a detector, too.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from common import parser_of, run
from PIL import Image

from facerts.datasets import Source, Subset, open_source
from facerts.detection import open_detector
from facerts.embedding.aligned import AlignedPhotos
from facerts.io.progress import track


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("source", help="Source of the images.")
    parser.add_argument("--detector", type=Path, required=True, help="YuNet or SCRFD.")
    parser.add_argument("--out", type=Path, required=True, help="Folder for the crops, as PNG files.")
    options = parser.parse_args()
    source = open_source(options.source)
    faces = found_faces(source, options.detector)
    for index in track(range(len(faces)), f"writing {options.out}", unit="images"):
        path = (options.out / faces.key(index)).with_suffix(".png")
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(faces.crop(index)).save(path)
    print(f"{options.out}: {len(faces):,} faces in {len(source):,} images")


def found_faces(source: Source, detector: Path) -> Source:
    """The images in which a detector finds a face, aligned by it."""
    aligned = AlignedPhotos(source, open_detector(detector))
    for index in track(range(len(source)), f"aligning {source.name}", unit="images"):
        aligned.face_size(index)
    return Subset(aligned, np.setdiff1d(np.arange(len(source)), aligned.without_face()))


if __name__ == "__main__":
    run(main)
