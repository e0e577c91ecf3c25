"""Photos of people as colored blocks, and a small model that tells them apart, as far as their images are bright.

Dark images of different people are alike to the model, as blurred faces are to real ones.
"""

import numpy as np

from facerts.images import encode_png
from facerts.scoring import Scorer, load
from tests.detectors import Tiles
from tests.foreign import write_description, write_embedder
from tests.matching import HASH, matching

SIZE = 128
# Siblings differ by this share of what strangers differ by: the model takes them for one person.
SIBLING = 0.8


def open_scorer(folder, shift=0.0, *, thresholds=True):
    """A model with match thresholds; in a folder that has it already, the same."""
    path = folder / "blocks.onnx"
    write_embedder(path, quality=True, size=SIZE)
    calibration = {
        "data": "blocks",
        "data_sha256": HASH,
        "faces": 1000,
        "identities": 100,
        "quantiles": [number / 50 - 1 for number in range(101)],
        # With few images, faces are grouped from a cosine of 0.45 on.
        "matching": matching(same_person=[-12.7, 40.0, 0.0, 0.0]),
    }
    kept = {"0.95": {"quality": -0.15, "data_sha256": HASH, "kept": 0.95}} if thresholds else {}
    write_description(
        path,
        outputs={"embedding": "vector", "quality": "bright"},
        quality="output:bright",
        calibration=calibration if thresholds else calibration | {"quantiles": []},
        thresholds=kept,
    )
    return Scorer.of(load(path, detector="none", threads=1).recognizer.opened, Tiles(shift=shift))


def face(person, image, *, light=1.0):
    """An aligned crop of a person; 3.5 is a sibling of 3. With little light, 0.15, nobody can tell whose it is."""
    base = _blocks(int(person))
    if person != int(person):
        base = base + SIBLING * _blocks(1000 + int(person))
    noise = np.random.default_rng((2, int(2 * person), image)).normal(0, 14, base.shape)
    blocks = 127.5 + base + noise
    return np.clip(light * blocks, 0, 255).astype(np.uint8).repeat(16, axis=0).repeat(16, axis=1)


def write_photo(path, *faces):
    """A photo of faces beside each other."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode_png(np.ascontiguousarray(np.concatenate(faces, axis=1))))
    return path


def write_people(folder, people, images):
    """A photo of each person and image number: ``p3_0.png``."""
    for person in people:
        for image in images:
            write_photo(folder / f"p{person}_{image}.png", face(person, image))


def _blocks(seed):
    drawn = np.random.default_rng((1, seed)).uniform(-65, 65, (7, 7, 3))
    return np.asarray(drawn - drawn.mean())
