"""Who takes part: recognizers, and the qualities that are to predict their errors."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from facerts.datasets import Source
from facerts.datasets.changed import ChangedCrops
from facerts.detection.detector import OpenDetector
from facerts.embedding import EmbeddingTable, OnnxEmbedder, OnnxQuality, read_description
from facerts.embedding.embed import AnyEmbedder, outputs_of, score_source
from facerts.embedding.outputs import CropScore, FaceOutputs, Scores
from facerts.embedding.recognizer_scores import RECOGNIZER_SCORES, LayerNorms, open_recognizer_scores
from facerts.errors import DataError, Error, ModelError, did_you_mean
from facerts.evaluation.baselines import detector_score, sharpness
from facerts.evaluation.evaluation_options import EvaluationOptions, kept_outputs
from facerts.evaluation.saved_result import split_label
from facerts.evaluation.score_table import read_scores
from facerts.hub.find import find_model

NORM, ORACLE, RANDOM = "norm", "oracle", "random"
SHARPNESS, DETECTOR = "sharpness", "det_score"
# In place of names: all scores that a recognizer's graph allows.
EVERY_SCORE = "all"
RESERVED = (NORM, ORACLE, RANDOM, SHARPNESS, DETECTOR, *RECOGNIZER_SCORES)

Item = TypeVar("Item")

_CSV_COLUMN = re.compile(r"(.+\.csv)(?::([^:/\\]+))?", re.IGNORECASE)


@dataclass(frozen=True)
class ComputedQuality:
    """A quality that is computed from crops.

    Attributes:
        identity: everything that it depends on besides the crops, for the cache.
        sha256: SHA-256 of its file; None if there is none.
        calibration: SHA-256 of other faces that it depends on; empty if there are none.
    """

    score: CropScore
    identity: str
    sha256: str | None = None
    calibration: str = ""

    def of(self, source: Source, options: EvaluationOptions, sha256: str) -> Scores:
        """The quality ``(N,)`` of a source's images, whose bytes have this hash."""

        def compute() -> FaceOutputs:
            scores = score_source(source, {"quality": self.score}, batch_size=options.batch_size)
            return FaceOutputs(np.empty((len(source), 0), dtype=np.float32), quality=scores["quality"])

        quality = kept_outputs(options, self, source, compute, sha256=sha256, gives="quality").quality
        assert quality is not None
        return quality


@dataclass(frozen=True)
class ListedQuality:
    """A column of a table, by the names of the images."""

    table: EmbeddingTable
    column: str
    score: None = None

    @property
    def sha256(self) -> str:
        return self.table.sha256

    def of(self, source: Source, options: EvaluationOptions, sha256: str) -> Scores | None:
        """The quality ``(N,)`` of a source's images; None if the table has none of them, or only the originals."""
        if isinstance(source, ChangedCrops) or not self.table.has_any(source):
            return None
        return _column(self.table.outputs(source), self.column)


# A score of each image, higher is better.
Quality = ComputedQuality | ListedQuality


@dataclass(frozen=True)
class LineupRecognizer:
    """A recognizer, and its own training-free scores by name; the norm of its embeddings comes with these."""

    embedder: AnyEmbedder
    own: Mapping[str, ComputedQuality] = field(default_factory=dict)

    def outputs(self, source: Source, options: EvaluationOptions, sha256: str, first: np.ndarray) -> FaceOutputs:
        """Embeddings, norms and qualities of a source's images; ``first`` is that of ``hash_images``."""

        def compute() -> FaceOutputs:
            outputs = outputs_of(self.embedder, source, flip=options.flip, first=first, batch_size=options.batch_size)
            return FaceOutputs(outputs.embedding, norm=outputs.norm, quality=outputs.quality)

        return kept_outputs(options, self.embedder, source, compute, sha256=sha256, flip=options.flip, gives="outputs")


@dataclass(frozen=True)
class Lineup:
    """Recognizers, and qualities that are the same for all of them, by label; in a result folder they are one model."""

    recognizers: Mapping[str, LineupRecognizer]
    qualities: Mapping[str, Quality]
    method: str = "league"

    @classmethod
    def of(cls, recognizers: Mapping[str, LineupRecognizer], qualities: Mapping[str, Quality]) -> Lineup:
        """A lineup of recognizers and qualities, with the qualities that tables of embeddings have beside these."""
        judged = dict(qualities)
        embedders = {label: recognizer.embedder for label, recognizer in recognizers.items()}
        tables = {label: one for label, one in embedders.items() if isinstance(one, EmbeddingTable)}
        for label, table in tables.items():
            for column in table.columns:
                name = column if len(tables) == 1 else f"{label} {column}"
                _add(judged, name, ListedQuality(table, column), "qualities")
        return cls(recognizers, judged)

    @property
    def name(self) -> str:
        recognizers, qualities = len(self.recognizers), len(self.qualities)
        return (
            f"{qualities} qualit{'y' if qualities == 1 else 'ies'} on "
            f"{recognizers} recognizer{'' if recognizers == 1 else 's'}"
        )

    @property
    def sha256(self) -> str:
        """SHA-256 of labels and files."""
        parts = [
            *(f"recognizer {label} {one.embedder.sha256}" for label, one in self.recognizers.items()),
            *(
                f"score {name} {quality.calibration}".rstrip()
                for one in self.recognizers.values()
                for name, quality in one.own.items()
            ),
            *(f"quality {label} {one.sha256}" for label, one in self.qualities.items()),
        ]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def open_recognizers(
    texts: Sequence[str],
    load: Callable[[Path], AnyEmbedder],
    own: Sequence[str] = (),
    calibration: Source | None = None,
) -> dict[str, LineupRecognizer]:
    """Open recognizers given as ``[LABEL=]MODEL``, with ``own`` scores of ``RECOGNIZER_SCORES`` or ``EVERY_SCORE``.

    Tables of embeddings have no such scores.
    ``calibration`` are the faces for those of them that choose something, see ``open_recognizer_scores``.
    """
    recognizers: dict[str, LineupRecognizer] = {}
    for label, value in map(split_label, texts):
        embedder = load(Path(value))
        _add(
            recognizers,
            label or embedder.name,
            LineupRecognizer(embedder, _own_scores(embedder, own, calibration)),
            "recognizers",
        )
    return recognizers


def open_qualities(
    texts: Sequence[str],
    *,
    descriptions: Sequence[str] = (),
    detector: OpenDetector | None = None,
    **runtime: Any,
) -> dict[str, Quality]:
    """Open qualities given as ``[LABEL=]MODEL`` or ``[LABEL=]SCORES.csv[:COLUMN]``, and those of the crop itself.

    Args:
        descriptions: ``LABEL=FILE.json`` for models without a description in the file or beside it.
        detector: its score of each crop is a quality too; None for no such quality.
        runtime: providers, threads and batch size of the models, see ``OnnxModel``.
    """
    described = dict(map(split_label, descriptions))
    if "" in described:
        raise Error(f"--describe {described['']}: name the quality that it describes, LABEL={described['']}")
    qualities: dict[str, Quality] = {}
    for label, value in map(split_label, texts):
        if listed := _CSV_COLUMN.fullmatch(value):
            table = read_scores(Path(listed[1]), listed[2])
            columns = list(table.columns)
            for column in columns:
                name = f"{label} {column}" if label and len(columns) > 1 else label or column
                _add(qualities, name, ListedQuality(table, column), "qualities")
            continue
        path = find_model(value)
        file = described.pop(label or path.stem, None)
        model = OnnxQuality(path, description=None if file is None else read_description(Path(file)), **runtime)
        computed = ComputedQuality(model, model.identity, model.sha256)
        _add(qualities, label or model.name, computed, "qualities")
    if described:
        label = next(iter(described))
        raise Error(f"--describe {label}=…: no quality has this label{did_you_mean(label, qualities)}")
    for label in qualities:
        if label in RESERVED:
            raise Error(f"{label!r} is a reserved label; give the quality another one, LABEL=MODEL")
    qualities[SHARPNESS] = ComputedQuality(sharpness, "variance of the Laplacian")
    if detector is not None:
        qualities[DETECTOR] = ComputedQuality(detector_score(detector), detector.identity)
    return qualities


def _own_scores(embedder: AnyEmbedder, names: Sequence[str], calibration: Source | None) -> dict[str, ComputedQuality]:
    if not names or isinstance(embedder, EmbeddingTable):
        return {}
    if not isinstance(embedder, OnnxEmbedder):
        raise ModelError(
            f"{embedder.name}: {', '.join(names)} need forward passes of an ONNX model; leave out --recognizer-score"
        )
    scores = open_recognizer_scores(embedder, None if EVERY_SCORE in names else names, calibration=calibration)
    faces = {name: score.sha256 for name, score in scores.items() if isinstance(score, LayerNorms)}
    return {
        name: ComputedQuality(
            score,
            f"{embedder.identity} {name} {faces.get(name, '')}".rstrip(),
            embedder.sha256,
            faces.get(name, ""),
        )
        for name, score in scores.items()
    }


def _column(outputs: FaceOutputs, column: str) -> Scores:
    if column in outputs.extras:
        return outputs.extras[column]
    values: Scores | None = getattr(outputs, column)
    assert values is not None  # it is one of the table's columns
    return values


def _add(labeled: dict[str, Item], label: str, value: Item, what: str) -> None:
    if label in labeled:
        raise DataError(f"two {what} are called {label!r}; give each its own label, LABEL=FILE")
    labeled[label] = value
