"""What recognizers and qualities cost, in milliseconds per image."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from facerts.datasets import Source
from facerts.embedding import EmbeddingTable
from facerts.evaluation.cost import Cost, OfCrops, milliseconds_per_face
from facerts.evaluation.fiqa.lineup import Lineup
from facerts.evaluation.results.fiqa_result import Milliseconds

TIMED_CROPS = 32


@dataclass(frozen=True)
class Costs:
    """Times by label; those of the recognizers' own scores by recognizer and name."""

    recognizers: Mapping[str, Milliseconds] = field(default_factory=dict)
    qualities: Mapping[str, Milliseconds] = field(default_factory=dict)
    own: Mapping[str, Mapping[str, Milliseconds]] = field(default_factory=dict)


def measure_costs(lineup: Lineup, source: Source, batch_size: int) -> Costs:
    """Measure everything in turn on the first images of a source, so that a busy machine slows all of it alike."""
    crops = np.stack([source.crop(index) for index in range(min(len(source), TIMED_CROPS))])
    timed: dict[tuple[str, str, str], OfCrops] = {
        **{
            ("recognizer", label, ""): one.embedder
            for label, one in lineup.recognizers.items()
            if not isinstance(one.embedder, EmbeddingTable)
        },
        **{
            ("quality", label, ""): one.score
            for label, one in lineup.qualities.items()
            if one.score is not None
        },
        **{
            ("own", label, name): score.score
            for label, one in lineup.recognizers.items()
            for name, score in one.own.items()
        },
    }
    costs = milliseconds_per_face(timed, crops, batch_size=min(batch_size, TIMED_CROPS))
    milliseconds = {key: _milliseconds(cost) for key, cost in costs.items()}
    return Costs(
        {label: cost for (kind, label, _), cost in milliseconds.items() if kind == "recognizer"},
        {label: cost for (kind, label, _), cost in milliseconds.items() if kind == "quality"},
        {
            label: {
                name: cost for (kind, of, name), cost in milliseconds.items() if (kind, of) == ("own", label)
            }
            for label in lineup.recognizers
        },
    )


def _milliseconds(cost: Cost) -> Milliseconds:
    return Milliseconds(median=cost.median, low=cost.low, high=cost.high)
