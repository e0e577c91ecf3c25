"""What the teachers' answers make expect of a view's cosine to its own center.

That cosine, to the mean of the m other images of a person, is the noisier the fewer they are, and says nothing where
there are none. A small network cannot see through noise that comes again with every view of an image. What the teachers
say of a view, however, tells much of its cosine, and is not noisy: a perceptron learns the cosine from the embeddings,
their norms and the models' qualities. As it would learn the noise of its own examples, too, the people are split into
folds, and those of each fold are judged by a perceptron that learned from the others (cross-fitting, as in Wolpert,
"Stacked Generalization", Neural Networks 1992). With its expectation q, the target is

    (m cos θ + n q) / (m + n)

a shrinkage estimator (Efron and Morris, "Data Analysis Using Stein's Estimator and its Generalizations", Journal of the
American Statistical Association, 1975), in which the expectation weighs as much as n other images. For an image without
others it is the expectation alone.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from facerts.embedding.output_cache import OutputCache
from facerts.errors import Error
from facerts.io.console import say
from facerts.io.progress import progress_bar
from facerts.nn.device import to_device
from facerts.training.loader import Batch
from facerts.training.teachers import FILE_IMAGES, STORED, ViewEmbeddings

# Cosines ``(B,)`` of the given views of the given images to their own centers.
Cosines = Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.float32]]

# Of folds, weights and orders. Like the views, the expectations are the same for every seed of a run.
SEED = 0
FOLDS = 4
# Of a few sizes and rates, those that predicted the errors on held-out people best.
HIDDEN, DROPOUT = 512, 0.5
EPOCHS, BATCH, RATE, WEIGHT_DECAY = 4, 512, 2e-3, 0.05
# Dividing a constant answer by its standard deviation would amplify rounding errors.
MIN_DEVIATION = 1e-6


class ExpectedCosines:
    """The expectation for every view of every image, and its share of the target.

    Args:
        cosines_of: what is learned, of the images whose person has others.
        size: dimensions of the embeddings that have these cosines.
        weight: n.
        cache: folder in which the expectations are kept.
    """

    def __init__(
        self,
        views: ViewEmbeddings,
        labels: NDArray[np.int64],
        cosines_of: Cosines,
        size: int,
        weight: float,
        cache: Path,
    ) -> None:
        others = np.bincount(labels)[labels] - 1
        self._share = (weight / (others + weight)).astype(np.float32)
        people = np.unique(labels[others > 0])
        if len(people) < 2 * FOLDS:
            raise Error(
                f"teacher.expected_weight: what to expect is learned from {2 * FOLDS} people with two images or more, "
                f"and there are {len(people)}; leave it out"
            )
        key = {
            "expected": views.identity,
            "size": size,
            "labels": hashlib.sha256(labels.tobytes()).hexdigest(),
            "settings": [SEED, FOLDS, HIDDEN, DROPOUT, EPOCHS, BATCH, RATE, WEIGHT_DECAY],
        }
        found = OutputCache(cache).arrays(key, lambda: {"expected": cross_fitted(views, labels, others, cosines_of)})
        self.values = found["expected"]

    def __call__(self, batch: Batch) -> dict[str, Tensor]:
        """For each image of a batch, q as ``expected`` and n / (m + n) as ``expected_share``, ``(B,)`` each."""
        samples, views = batch.samples.numpy(), batch.views.numpy()
        found = {"expected": self.values[samples, views], "expected_share": self._share[samples]}
        return {name: to_device(torch.from_numpy(rows), batch.labels.device) for name, rows in found.items()}


def cross_fitted(
    views: ViewEmbeddings, labels: NDArray[np.int64], others: NDArray[np.int64], cosines_of: Cosines
) -> NDArray[np.float32]:
    """``(N, K)`` expectations of the K views of all images, from one perceptron for the people of each fold."""
    folds = np.random.default_rng(SEED).integers(FOLDS, size=labels.max() + 1)[labels]
    # A cosine is the noisier, the fewer others there are.
    weights = (others / (others + 1)).astype(np.float32)
    images, count = len(labels), views.count
    answers = np.concatenate([found.astype(STORED) for _, found in _by_file(np.arange(images), count, views.answers)])
    cosines = np.full(images * count, np.nan, np.float32)
    for rows, found in _by_file(np.flatnonzero(others), count, cosines_of):
        cosines[rows] = found
    measured = ~np.isnan(cosines)
    # Row i·K + k is view k of image i, as in the answers.
    folds, weights = (np.repeat(values, count) for values in (folds, weights))
    expected = np.empty(images * count, np.float32)
    # BatchNorm and dropout must not change the generator of the run.
    with torch.random.fork_rng(), progress_bar() as bar:
        task = bar.add_task("expected cosines", total=FOLDS * EPOCHS, unit="epochs")
        for fold in range(FOLDS):
            torch.manual_seed(SEED + fold)
            learned = np.flatnonzero((folds != fold) & measured)
            perceptron = _Perceptron(answers, learned, cosines[learned])
            for _ in perceptron.fit(weights[learned]):
                bar.advance(task)
            judged = np.flatnonzero(folds == fold)
            expected[judged] = perceptron.predict(judged)
    correlation = np.corrcoef(expected[measured], cosines[measured])[0, 1]
    say(f"expected cosines of people that were not learned from: correlation {correlation:.3f}")
    return expected.reshape(images, count)


def _by_file(
    images: NDArray[np.int64], count: int, ask: Cosines
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """Rows and answers of all views of the given images, some images at a time."""
    for start in range(0, len(images), FILE_IMAGES):
        grids = np.meshgrid(images[start : start + FILE_IMAGES], np.arange(count), indexing="ij")
        samples, views = (grid.reshape(-1) for grid in grids)
        yield samples * count + views, ask(samples, views)


class _Perceptron:
    """A perceptron with one hidden layer, from the answers to the cosine, both standardized."""

    def __init__(self, answers: NDArray[np.float16], rows: NDArray[np.int64], cosines: NDArray[np.float32]) -> None:
        self._answers, self._rows = answers, rows
        sample = answers[rows[:: max(1, len(rows) // 20_000)]].astype(np.float32)
        self._mean, self._deviation = sample.mean(axis=0), np.maximum(sample.std(axis=0), MIN_DEVIATION)
        self._level, self._scale = float(cosines.mean()), float(cosines.std())
        self._target = torch.from_numpy((cosines - self._level) / max(self._scale, MIN_DEVIATION))
        self._network = nn.Sequential(
            nn.Linear(answers.shape[1], HIDDEN),
            nn.BatchNorm1d(HIDDEN),
            nn.ReLU(),
            nn.Dropout(DROPOUT),
            nn.Linear(HIDDEN, 1),
        )

    def fit(self, weights: NDArray[np.float32]) -> Iterator[int]:
        """Learn from all rows, with their weights; yields after each epoch."""
        network, weight = self._network.train(), torch.from_numpy(weights / weights.mean())
        optimizer = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=WEIGHT_DECAY)
        size = min(BATCH, len(self._rows))
        steps, step = len(self._rows) // size, 0
        for epoch in range(EPOCHS):
            for rows in torch.split(torch.randperm(len(self._rows))[: steps * size], size):
                for group in optimizer.param_groups:
                    group["lr"] = RATE * (1 + math.cos(math.pi * step / (EPOCHS * steps))) / 2
                found = network(self._inputs(self._rows[rows.numpy()])).squeeze(1)
                errors = F.smooth_l1_loss(found, self._target[rows], reduction="none")
                optimizer.zero_grad(set_to_none=True)
                (errors * weight[rows]).mean().backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                step += 1
            yield epoch

    @torch.no_grad()
    def predict(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """``(R,)`` the expected cosine of each row."""
        network = self._network.eval()
        parts = [
            network(self._inputs(rows[start : start + FILE_IMAGES])).squeeze(1)
            for start in range(0, len(rows), FILE_IMAGES)
        ]
        found = torch.cat([torch.empty(0), *parts]).numpy()
        return np.asarray(self._level + self._scale * found, np.float32)

    def _inputs(self, rows: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy((self._answers[rows].astype(np.float32) - self._mean) / self._deviation)
