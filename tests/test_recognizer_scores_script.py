"""The table of the scores that recognizers give by forward passes alone, on drawn people."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from facerts.datasets import open_source
from facerts.datasets.synthetic import write_synthetic_faces
from facerts.embedding import load_embedder
from facerts.embedding.recognizer_scores import open_recognizer_scores
from facerts.embedding.recognizer_scores.pruning import pruning_stability
from facerts.images.corruptions import degrade
from tests.embedding.recognizer_scores.models import write_model
from tests.scripts import EVAL, cells_of, run_script

pytestmark = pytest.mark.slow

SCRIPT = EVAL / "recognizer_scores.py"
KINDS = ("blur", "low_resolution", "jpeg", "noise", "occlusion", "light")
FMR = 0.2


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("people")
    write_synthetic_faces(folder / "people", identities=20, images=4, seed=5)
    return folder / "people"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model") / "small.onnx", "conv and matmul")


def table(*arguments: object) -> list[list[str]]:
    ran = run_script(SCRIPT, *arguments, "--fmr", FMR, "--replicates", 5)
    assert ran.returncode == 0, ran.stderr
    return cells_of(ran.stdout)[1:]


def test_areas_and_correlations_are_those_of_slow_loops(people: Path, model: Path) -> None:
    rows = table(model, "--data", people)
    assert [row[:2] for row in rows] == [["small", name] for name in ("mirror", "pruning", "dropout")]
    source, embedder = open_source(people), load_embedder(model)
    clean = np.stack([source.crop(index) for index in range(len(source))])
    degraded, severities, kinds = [], [], []
    for index, crop in enumerate(clean):
        random = np.random.default_rng((0, index, 0xF19A))
        random.random()
        kinds.append(KINDS[random.integers(6)])
        severities.append(1 - random.random())
        degraded.append(degrade(crop, kinds[-1], severities[-1], (0, index, 0xF19B)))
    mirror = open_recognizer_scores(embedder, ["mirror"])["mirror"]
    qualities = [mirror(clean), mirror(np.stack(degraded))]
    embeddings = [embedder(clean).embedding, embedder(np.stack(degraded)).embedding]
    pairs = list(combinations(range(len(clean)), 2))
    impostors = sorted(
        float(embeddings[0][a] @ embeddings[0][b]) for a, b in pairs if source.labels[a] != source.labels[b]
    )
    threshold = impostors[-int(FMR * len(impostors))]
    for cell, quality, embedding in zip(rows[0][2:4], qualities, embeddings, strict=True):
        genuine = sorted(
            (min(quality[a], quality[b]), float(embedding[a] @ embedding[b]) < threshold)
            for a, b in pairs
            if source.labels[a] == source.labels[b]
        )
        wrong = [error for _, error in genuine]
        fnmr = [np.mean(wrong[round(0.001 * step * len(wrong)) :]) for step in range(301)]
        assert float(cell.split()[0]) == pytest.approx(np.trapezoid(fnmr, dx=1 / 300) / fnmr[0], abs=2e-3)
    correlations = []
    for kind in KINDS:
        chosen = [index for index, name in enumerate(kinds) if name == kind]
        ranks = [
            [sorted(values[i] for i in chosen).index(values[index]) for index in chosen]
            for values in (qualities[1].tolist(), severities)
        ]
        correlations.append(np.corrcoef(*ranks)[0, 1])
    assert float(rows[0][4]) == pytest.approx(np.mean(correlations), abs=6e-4)


def test_sparsities_are_measured_on_one_half_of_the_people(people: Path, model: Path) -> None:
    even, odd = (
        table(model, "--data", people, "--people", half, "--sparsity", 0.1, 0.5) for half in ("even", "odd")
    )
    assert [row[1] for row in even] == ["pruning 0.1", "pruning 0.5"]
    assert even != odd
    source = open_source(people)
    half = people.parent / "half"
    for index in np.flatnonzero(np.asarray(source.labels) % 2 == 0):
        file = source.file_of(int(index))
        assert file is not None
        target = half / file.relative_to(people)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.read_bytes())
    assert table(model, "--data", half, "--sparsity", 0.1, 0.5) == even
    crops = np.stack([source.crop(index) for index in range(4)])
    assert np.ptp(pruning_stability(load_embedder(model), 0.1)(crops)) > 0
