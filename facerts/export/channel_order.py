"""Whether a recognizer gets its channels in the order that it was trained with.

Red and blue swapped is the most frequent mistake in the description of a recognizer, and nothing fails: it only tells
people apart less well. Drawn people show it, since skin, lips and hair are no blue.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from facerts.datasets.synthetic import draw_face
from facerts.embedding import OnnxEmbedder

# Four times as many people do not decide it for the recognizers that color hardly matters to.
PEOPLE, IMAGES = 48, 4
# Resamples of the people, and the share of them that must agree before an order is called wrong.
RESAMPLES, CONFIDENCE = 200, 0.975


@dataclass(frozen=True)
class ChannelOrder:
    """How well drawn people are told apart, with the channels as described and swapped.

    Attributes:
        described: d', the difference of the mean genuine and impostor cosines in standard deviations.
        swapped: the same with red and blue swapped.
        agreement: share of resamples of the people in which ``described`` is the larger one.
    """

    described: float
    swapped: float
    agreement: float

    @property
    def is_right(self) -> bool:
        """Whether the described order is clearly better."""
        return self.agreement >= CONFIDENCE

    @property
    def is_wrong(self) -> bool:
        """Whether the other order is clearly better."""
        return self.agreement <= 1 - CONFIDENCE


def channel_order(recognizer: OnnxEmbedder) -> ChannelOrder:
    """Compare the described order of the channels with the other one on drawn people."""
    crops = np.stack([draw_face(person, number) for person in range(PEOPLE) for number in range(IMAGES)])
    described, swapped = (
        recognizer(images).embedding.astype(np.float64)
        for images in (crops, np.ascontiguousarray(crops[..., ::-1]))
    )
    return _compare(described, swapped)


def _compare(described: NDArray[np.float64], swapped: NDArray[np.float64]) -> ChannelOrder:
    matrices = [embedding @ embedding.T for embedding in (described, swapped)]
    random = np.random.default_rng(0)
    wins = []
    for _ in range(RESAMPLES):
        chosen = random.integers(0, PEOPLE, PEOPLE)
        wins.append(_separation(matrices[0], chosen) > _separation(matrices[1], chosen))
    everyone = np.arange(PEOPLE)
    return ChannelOrder(
        _separation(matrices[0], everyone), _separation(matrices[1], everyone), float(np.mean(wins))
    )


def _separation(similarities: NDArray[np.float64], people: NDArray[np.int64]) -> float:
    """d' of the pairs of images of some people, each taken as often as it is given; never a person with itself."""
    rows = (people[:, None] * IMAGES + np.arange(IMAGES)).ravel()
    labels, images = rows // IMAGES, similarities[np.ix_(rows, rows)]
    places = np.repeat(np.arange(len(people)), IMAGES)
    first, second = np.triu_indices(len(rows), 1)
    genuine = places[first] == places[second]
    impostor = labels[first] != labels[second]
    same, other = images[first, second][genuine], images[first, second][impostor]
    return float((same.mean() - other.mean()) / np.sqrt((same.var() + other.var()) / 2))
