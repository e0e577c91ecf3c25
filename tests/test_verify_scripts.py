"""The script that measures ``facerts verify``, on drawn images whose cosines NumPy computes."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from facerts.images import encode_jpeg
from tests.foreign import slow_embedding
from tests.matching import write_matcher
from tests.scripts import EVAL, cells_of, run_script

PEOPLE = [f"Person_{number}" for number in range(6)]
IMAGES = 3
Crop = NDArray[np.uint8]


def face(person: int, image: int) -> Crop:
    """Blocks of a person's color mixed with others; every third image is too dark to be compared."""
    own, other = (
        np.random.default_rng(seed).integers(60, 256, (7, 7, 3)) for seed in (person, 100 * person + image + 50)
    )
    mixed = (0.55 * own + 0.45 * other) / (8 if image == 2 and person % 2 else 1)
    return mixed.astype(np.uint8).repeat(16, axis=0).repeat(16, axis=1)


def unit(crops: Crop) -> NDArray[np.float64]:
    embedding = slow_embedding(crops)
    unit: NDArray[np.float64] = embedding / np.linalg.norm(embedding, axis=1, keepdims=True)
    return unit


def brightness(crops: Crop) -> NDArray[np.float64]:
    return (crops.reshape(len(crops), -1).mean(axis=1) - 127.5) / 127.5


def test_the_table_of_lfw_has_the_error_rates_of_the_pairs_that_are_decided(tmp_path):
    model = write_matcher(tmp_path / "matcher.onnx")
    for person, image in np.ndindex(len(PEOPLE), IMAGES):
        path = tmp_path / "lfw" / PEOPLE[person] / f"{PEOPLE[person]}_{image + 1:04d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode_jpeg(face(person, image), 100))
    same = [(p, i, p, k) for p in range(6) for i, k in combinations(range(IMAGES), 2)]
    different = [(p, i, q, 1 + i % 2) for p, q in combinations(range(6), 2) for i in range(IMAGES)][:18]
    lines = [f"{PEOPLE[p]} {i + 1} {k + 1}" for p, i, _, k in same]
    lines += [f"{PEOPLE[p]} {i + 1} {PEOPLE[q]} {k + 1}" for p, i, q, k in different]
    (tmp_path / "lfw" / "pairs.txt").write_text("1 18\n" + "\n".join(lines) + "\n")
    ran = run_script(EVAL / "verify_table.py", "--model", model, "--lfw", tmp_path / "lfw", "--fmr", "0.01", "0.001")
    assert ran.returncode == 0, ran.stderr
    header, *table = cells_of(ran.stdout)
    by_row = {(row[1], row[2]): dict(zip(header, row, strict=True)) for row in table}
    pairs = [*same, *different]
    first, second = (np.stack([face(*pair[at : at + 2]) for pair in pairs]) for at in (0, 2))
    cosine = np.einsum("pd,pd->p", unit(first), unit(second))
    lower = np.minimum(brightness(first), brightness(second))
    genuine = np.arange(len(pairs)) < len(same)
    assert 0 < np.sum(lower < -0.5) < len(pairs)
    for quality, decided in (("keep 0.95", lower >= -0.5), ("any quality", lower > -2)):
        for fmr, threshold in (("0.01", 0.2), ("0.001", 0.5)):
            row = by_row[quality, fmr]
            assert row["threshold"] == f"{threshold:.4f}"
            assert row["inconclusive"] == f"{1 - decided.mean():.4f}"
            assert row["impostor pairs"] == str(np.sum(decided & ~genuine))
            assert row["measured FMR"].startswith(f"{np.mean(cosine[decided & ~genuine] >= threshold):.4f} [")
            assert row["measured FNMR"].startswith(f"{np.mean(cosine[decided & genuine] < threshold):.4f} [")
    assert by_row["keep 0.95", "0.001"]["stated FNMR"] == "0.1250 [0.1150, 0.1350]"
    assert by_row["any quality", "0.001"]["stated FNMR"] == "0.2000 [0.1800, 0.2200]"
    assert "LFW, crops: 0 pairs with an error" in ran.stdout
