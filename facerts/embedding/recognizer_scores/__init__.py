"""Quality scores that a recognizer itself gives, by forward passes alone and without training.

Each is a function of crops; higher is better. The embedding's norm is one too; the embedder outputs it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from facerts.datasets import Source
from facerts.embedding.onnx_embedder import OnnxEmbedder
from facerts.embedding.outputs import CropScore
from facerts.embedding.recognizer_scores.dropout import dropout_stability
from facerts.embedding.recognizer_scores.froq import LayerNorms
from facerts.embedding.recognizer_scores.mirror import mirror_agreement
from facerts.embedding.recognizer_scores.pruning import pruning_stability
from facerts.errors import Error, ModelError, did_you_mean

# Their names in results, in the order of tables.
RECOGNIZER_SCORES = ("mirror", "pruning", "dropout", "froq")


def open_recognizer_scores(
    embedder: OnnxEmbedder,
    names: Sequence[str] | None = None,
    *,
    seed: int = 0,
    calibration: Source | None = None,
) -> dict[str, CropScore]:
    """Open the scores of a recognizer.

    Args:
        embedder: the recognizer; all scores but "mirror" read its file again.
        names: names from ``RECOGNIZER_SCORES``; None for all that its graph allows, "froq" only with ``calibration``.
        calibration: aligned faces by which "froq" chooses layers, apart from those that are judged.

    Returns:
        The scores by name, in the given order.

    Raises:
        ModelError: the graph does not allow a score that is asked for; the message says why.
        MissingExtraError: onnx is not installed, and a score but "mirror" is asked for or ``names`` is None.
        Error: there is no score of a name, or "froq" is asked for without enough faces.
    """
    openers: dict[str, Callable[[OnnxEmbedder], CropScore]] = {
        "mirror": mirror_agreement,
        "pruning": pruning_stability,
        "dropout": partial(dropout_stability, seed=seed),
        "froq": partial(_froq, calibration=calibration, seed=seed),
    }
    scores = {}
    possible = [name for name in RECOGNIZER_SCORES if name != "froq" or calibration is not None]
    for name in possible if names is None else names:
        if name not in openers:
            hint = did_you_mean(name, openers) or f"; available: {', '.join(openers)}"
            raise Error(f"no score {name!r} of a recognizer{hint}")
        try:
            scores[name] = openers[name](embedder)
        except ModelError:
            if names is not None:
                raise
    return scores


def _froq(embedder: OnnxEmbedder, calibration: Source | None, seed: int) -> CropScore:
    if calibration is None:
        raise Error(
            "the score 'froq' needs faces to choose a recognizer's layers by: name some, apart from those that are "
            "judged, with --calibrate-scores (in Python: calibration=open_images(...))"
        )
    return LayerNorms(embedder, calibration, seed=seed)
