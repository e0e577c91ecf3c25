"""A small embedder, faces to curate, and what the embedder gives for them by another way."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from facerts.curation.embeddings import Embedding
from facerts.curation.pack import unpack
from facerts.datasets import open_source
from facerts.embedding import load_embedder
from facerts.images import decode_crop
from tests.foreign import slow_embedding, write_description, write_embedder

SIZE = 16


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Gives the embedding and, as quality, its length."""
    path = write_embedder(tmp_path_factory.mktemp("foreign") / "small.onnx", size=SIZE)
    write_description(path)
    return path


@pytest.fixture(scope="session")
def embedding(model: Path) -> Embedding:
    return Embedding(load_embedder(model, threads=1, batch_size=7))


@pytest.fixture(scope="session")
def faces(drawn_faces: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The drawn faces; person 1 with three pictures again, hardly brighter; person 2 with one of person 3, so, too.

    Person 4 is there again under another name, every picture a little brighter.
    """
    folder = tmp_path_factory.mktemp("curated") / "faces"
    unpack(open_source(drawn_faces), folder)

    def copy(one: str, other: str) -> None:
        image = cv2.imread(str(folder / one)).astype(np.int16) + 1
        (folder / other).parent.mkdir(exist_ok=True)
        cv2.imwrite(str(folder / other), np.clip(image, 0, 255).astype(np.uint8))

    for number in range(3):
        copy(f"person_0001/000{number}.jpg", f"person_0001/010{number}.png")
    copy("person_0003/0000.jpg", "person_0002/0100.png")
    for number in range(8):
        copy(f"person_0004/000{number}.jpg", f"other_0004/{number}.png")
    return folder


def embeddings_of(folder: Path) -> tuple[NDArray[np.float64], NDArray[np.float64], list[str], list[str]]:
    """Unit embeddings, lengths, identities and locations of a folder's pictures, in NumPy."""
    files = sorted(folder.rglob("*.*g"))
    crops = np.stack([decode_crop(file.read_bytes(), where="") for file in files])
    vectors = slow_embedding(crops, size=SIZE)
    length = np.linalg.norm(vectors, axis=1)
    return vectors / length[:, None], length, [file.parent.name for file in files], [str(f) for f in files]
