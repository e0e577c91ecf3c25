from dataclasses import replace

import numpy as np
import pytest

from facerts.datasets import PairBenchmark, open_source, pairs_from_identities
from facerts.embedding import FaceOutputs, load_embedder
from facerts.evaluation import embed_source
from facerts.evaluation.benchmark_runs import run_pairs
from facerts.evaluation.channel_probe import channel_probe
from facerts.evaluation.result_folder import load_result
from facerts.hub.find import find_model
from tests.evaluation.conftest import Images

PEOPLE, TAKES, SIDE = 40, 4, 7
RED, GREEN, BLUE = 0, 1, 2


class Coarse:
    """The coarse grid of a mix of channels, without its mean."""

    name, method, sha256 = "coarse", "unknown", "c" * 64

    def __init__(self, red, green, blue):
        self.mix = np.array([red, green, blue], dtype=np.float32)
        self.seen = []

    def __call__(self, crops):
        self.seen.append(crops)
        gray = crops.astype(np.float32) @ self.mix
        grid = gray.reshape(len(crops), SIDE, 16, SIDE, 16).mean(axis=(2, 4)).reshape(len(crops), -1)
        grid -= grid.mean(axis=1, keepdims=True)
        norm = np.linalg.norm(grid, axis=1)
        return FaceOutputs(grid / norm[:, None], norm)


@pytest.fixture(scope="module")
def in_red():
    """Who it is lies in red, with noise; green and blue are of the image alone."""
    random = np.random.default_rng(0)
    people = random.uniform(0, 255, (PEOPLE, SIDE, SIDE))
    grids = random.uniform(0, 255, (PEOPLE, TAKES, SIDE, SIDE, 3))
    grids[..., RED] = 0.6 * people[:, None] + 0.4 * grids[..., RED]
    crops = grids.reshape(-1, SIDE, SIDE, 3).repeat(16, axis=1).repeat(16, axis=2).astype(np.uint8)
    person = np.repeat(np.arange(PEOPLE), TAKES)
    first, second = np.triu_indices(len(person), 1)
    same = person[first] == person[second]
    rows = np.concatenate([np.flatnonzero(same), random.choice(np.flatnonzero(~same), same.sum(), False)])
    pairs = np.stack([first, second], axis=1)[rows]
    folds = np.arange(len(rows)) % 10
    return PairBenchmark("red", Images(crops, name="red", labels=person), pairs, same[rows], folds)


def probed(embedder, benchmark, *, flip=False):
    outputs = embed_source(embedder, benchmark.images, flip=flip, progress=False)
    embedder.seen.clear()
    return channel_probe(embedder, benchmark, outputs, flip=flip)


@pytest.mark.parametrize("flip", [False, True])
def test_a_model_that_is_given_its_colors_the_wrong_way_round_is_noted(in_red, flip):
    sentence = probed(Coarse(0, 0, 1), in_red, flip=flip)
    assert sentence.startswith("With red and blue swapped, 128 pairs are separated better (mean margin ")
    assert 'check "color" in its description' in sentence


def test_an_embedder_of_noise_is_not_blamed(in_red):
    blamed = 0
    for seed in range(12):
        random = np.random.default_rng(seed)

        def noise(crops, random=random):
            vector = random.normal(size=(len(crops), 16)).astype(np.float32)
            return FaceOutputs(vector / np.linalg.norm(vector, axis=1, keepdims=True))

        outputs = embed_source(noise, in_red.images, flip=False, progress=False)
        sentence = channel_probe(noise, in_red, outputs, flip=False)
        blamed += sentence is not None
    assert blamed == 0


def test_the_sentence_stands_in_the_notes_of_a_result(in_red, tmp_path, monkeypatch):
    monkeypatch.setattr("facerts.evaluation.benchmark_runs.open_benchmarks", lambda path: [in_red])
    run_pairs(Coarse(0, 0, 1), ["verification"], ["red"], tmp_path / "wrong")
    run_pairs(Coarse(1, 0, 0), ["verification"], ["red"], tmp_path / "right")
    wrong, right = (
        " ".join(load_result(tmp_path / name)[0].of_kind("verification")["red"].notes) for name in ("wrong", "right")
    )
    assert "With red and blue swapped" in wrong
    assert "swapped" not in right


def test_swapped_channels_of_a_real_network_are_noticed_on_drawn_people(drawn_faces):
    benchmark = pairs_from_identities(open_source(str(drawn_faces)), genuine=100, impostors=100, seed=0)
    small = load_embedder(find_model("facerts-small"))
    spec = small.description.input.model_copy(update={"color": "BGR"})
    wrong = load_embedder(small.path, description=small.description.model_copy(update={"input": spec}))
    sentences = [
        channel_probe(one, benchmark, embed_source(one, benchmark.images, flip=False), flip=False)
        for one in (small, wrong)
    ]
    assert sentences[0] is None
    assert sentences[1] is not None


def test_margins_and_accuracies_of_the_sentence_are_those_of_a_loop_over_pairs(in_red):
    chosen = [
        rows[np.unique(np.linspace(0, len(rows) - 1, 64).astype(int))]
        for rows in (np.flatnonzero(in_red.same), np.flatnonzero(~in_red.same))
    ]
    benchmark = replace(in_red, pairs=in_red.pairs[np.concatenate(chosen)], same=np.arange(128) < 64)
    margins, accuracies = [], []
    for mix in ((0, 0, 1), (1, 0, 0)):
        embedding = embed_source(Coarse(*mix), benchmark.images, flip=False, progress=False).embedding
        scores = [float(embedding[first] @ embedding[second]) for first, second in benchmark.pairs]
        genuine, impostor = scores[:64], scores[64:]
        middle = (np.mean(genuine) + np.mean(impostor)) / 2
        spread = np.sqrt((np.var(genuine) + np.var(impostor)) / 2)
        signed = [s - middle for s in genuine] + [middle - s for s in impostor]
        margins.append(np.mean(signed) / spread)
        accuracies.append(max(np.mean((np.array(scores) >= at) == benchmark.same) for at in [*scores, np.inf]))
    sentence = probed(Coarse(0, 0, 1), in_red)
    assert f"mean margin {margins[1]:.2f} standard deviations instead of {margins[0]:.2f}, " in sentence
    assert f"accuracy {accuracies[1]:.3f} instead of {accuracies[0]:.3f})" in sentence
