"""Small galleries of many images, which repeat themselves so that they compress a thousandfold."""

import io

import numpy as np


def gallery(images, size, *, people=("a", "b"), **changes):
    """A gallery of one embedding, for all images; keyword arguments replace arrays."""
    embedding = np.zeros((images, size), np.float32)
    embedding[:, 0] = 1
    arrays = {
        "format": "facerts.gallery/1",
        "model": "drawn",
        "model_sha256": "a" * 64,
        "people": np.array(people),
        "templates": np.eye(1, size).repeat(len(people), axis=0),
        "person": np.arange(images) * len(people) // images,
        "path": np.full(images, "x"),
        "embedding": embedding,
        "quality": np.zeros(images, np.float32),
        "percentile": np.full(images, 50.0, np.float32),
        "reasons": np.full(images, ""),
    }
    file = io.BytesIO()
    np.savez_compressed(file, **(arrays | changes))
    return file.getvalue()


NUMBERS = np.char.mod("%05d", np.arange(30_000))
HOSTILE = {
    "names of 3,000 letters": gallery(100_000, 1, people=("a" * 3000, "b" * 3000)),
    "many images": gallery(100_000, 1),
    "many people": gallery(30_000, 4, people=NUMBERS),
    "many people without images": gallery(2, 1, people=NUMBERS),
    "many images of many numbers": gallery(8000, 512),
    "embeddings of many numbers": gallery(2, 100_000),
    "paths of 1,000 letters": gallery(5000, 4, path=np.full(5000, "x" * 1000)),
    "reasons of 1,000 letters": gallery(5000, 4, reasons=np.full(5000, "blurred", dtype="<U1000")),
}
