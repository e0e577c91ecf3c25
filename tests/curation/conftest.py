"""A small embedder, faces to curate, and a second implementation of the embedder in NumPy."""

import cv2
import numpy as np
import pytest

from facerts.curation.embeddings import SourceEmbedder
from facerts.curation.rearrange import unpack
from facerts.datasets import open_source
from facerts.embedding import load_embedder
from facerts.images import decode_crop
from tests.foreign import slow_embedding, write_description, write_embedder

SIZE = 16


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """An embedder whose quality is the norm of the embedding."""
    return write_description(write_embedder(tmp_path_factory.mktemp("foreign") / "small.onnx", size=SIZE))


@pytest.fixture(scope="session")
def embedder(model):
    return SourceEmbedder(load_embedder(model, threads=1, batch_size=7))


@pytest.fixture(scope="session")
def faces(drawn_faces, tmp_path_factory):
    """Synthetic faces with near-duplicates, which are slightly brighter.

    Person 1 has three near-duplicates, person 2 has one of person 3, and person 4 appears again under another name.
    """
    folder = tmp_path_factory.mktemp("curated") / "faces"
    unpack(open_source(drawn_faces), folder)

    def copy(one, other):
        image = cv2.imread(str(folder / one)).astype(np.int16) + 1
        (folder / other).parent.mkdir(exist_ok=True)
        cv2.imwrite(str(folder / other), np.clip(image, 0, 255).astype(np.uint8))

    for number in range(3):
        copy(f"person_0001/000{number}.jpg", f"person_0001/010{number}.png")
    copy("person_0003/0000.jpg", "person_0002/0100.png")
    for number in range(8):
        copy(f"person_0004/000{number}.jpg", f"other_0004/{number}.png")
    return folder


def embeddings_of(folder):
    """Unit embeddings, norms, identities and locations of the images in a folder."""
    files = sorted(folder.rglob("*.*g"))
    crops = np.stack([decode_crop(file.read_bytes(), where="") for file in files])
    vectors = slow_embedding(crops, size=SIZE)
    length = np.linalg.norm(vectors, axis=1)
    return vectors / length[:, None], length, [file.parent.name for file in files], [str(f) for f in files]
