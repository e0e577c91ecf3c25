"""Scores of an image: those that need no training, which a learned quality has to beat, and what results keep of all.

All are higher for what should be better. The embedding's norm is one too; the embedder gives it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from facerts.datasets.source import Source
from facerts.detection.detector import OpenDetector
from facerts.embedding.combined import CombinedEmbedder
from facerts.embedding.outputs import CropScore, FaceOutputs, Scores
from facerts.evaluation.result_folder import Arrays
from facerts.images import encode_jpeg
from facerts.metrics.identification import search
from facerts.onnx.contract import Description

# A model's own scores of an image; those that need no model stand by themselves.
OWN_SCORES = ("quality", "norm")
# Their names in results, in the order of tables.
BASELINES = ("sharpness", "det_score", "face_size", "neighbors")
# Those of a training run's classifier; ``facerts.training.classifier_scores``, which needs PyTorch, gives them.
CLASSIFIER_SCORES = (
    "max_softmax",
    "max_logit",
    "odin",
    "energy",
    "mc_dropout",
    "ensemble",
    "ser_fiq",
    "newton_temperature",
    "perturbed_quality",
)
JPEG_QUALITY = 85
# Best and worst images by each score that a report shows.
SHOWN_IMAGES = 16


def sharpness(crops: NDArray[np.uint8]) -> Scores:
    """``(N,)`` variance of the Laplacian of each gray crop.

    Pech-Pacheco et al., "Diatom autofocusing in brightfield microscopy", ICPR 2000.
    """
    second = (cv2.Laplacian(cv2.cvtColor(crop, cv2.COLOR_RGB2GRAY), cv2.CV_16S) for crop in crops)
    return np.array([cv2.meanStdDev(values)[1].item() ** 2 for values in second], dtype=np.float32)


def detector_score(detector: OpenDetector) -> CropScore:
    """``(N,)`` score of the surest face that a detector finds in each crop; 0 where it finds none.

    Give a detector with a low threshold: below it, scores are lost.
    """

    def of_crops(crops: NDArray[np.uint8]) -> Scores:
        scores_of_faces = [[face.score for face in detector(crop)] for crop in crops]
        return np.array([max(scores, default=0.0) for scores in scores_of_faces], dtype=np.float32)

    return of_crops


def crop_scores(detector: OpenDetector | None) -> Mapping[str, CropScore]:
    """The baselines that are had from a crop alone."""
    scores: dict[str, CropScore] = {"sharpness": sharpness}
    if detector is not None:
        scores["det_score"] = detector_score(detector)
    return scores


def face_sizes(source: Source) -> Scores | None:
    """``(N,)`` pixels between the eyes before alignment, where the source knows them."""
    size = getattr(source, "face_size", None)
    return None if size is None else np.array([size(row) for row in range(len(source))], dtype=np.float32)


def neighbor_similarity(embedding: NDArray[np.floating], reference: NDArray[np.floating], k: int) -> Scores:
    """``(N,)`` mean cosine to the k nearest of reference embeddings: minus the k-nearest-neighbor distance.

    Sun et al., "Out-of-distribution detection with deep nearest neighbors", ICML 2022.
    """
    return np.asarray(search(reference, embedding, k).scores.mean(axis=1), dtype=np.float32)


def image_scores(outputs: FaceOutputs) -> dict[str, NDArray[np.float32]]:
    """Scores by name, higher is better; a quality that is the norm stands once, as quality."""
    scores = {}
    if outputs.quality is not None:
        scores["quality"] = outputs.quality
    if outputs.norm is not None and not (outputs.quality is not None and np.array_equal(outputs.norm, outputs.quality)):
        scores["norm"] = outputs.norm
    return {**scores, **_untrained(outputs)}


def image_arrays(outputs: FaceOutputs, names: list[str]) -> Arrays:
    """What a result keeps of each image."""
    arrays: Arrays = {"names": np.array(names), "embeddings": outputs.embedding.astype(np.float16)}
    for name in ("quality", "uncertainty", "norm"):
        value = getattr(outputs, name)
        if value is not None:
            arrays[name] = value
    return {**arrays, **_untrained(outputs)}


def quality_description(model: object) -> Description | None:
    """The description of the model that gives the quality; None where it has none, as tables and training runs."""
    return getattr(model.quality if isinstance(model, CombinedEmbedder) else model, "description", None)


def percentiles(model: object, outputs: FaceOutputs) -> Arrays:
    """``(N,)`` percentiles of the quality among the faces that the model was calibrated on, if it was."""
    description = quality_description(model)
    calibration = None if description is None else description.calibration
    if calibration is None or not calibration.quantiles or outputs.quality is None:
        return {}
    found = [calibration.percentile(quality) for quality in outputs.quality.tolist()]
    return {"percentile": np.array(found, dtype=np.float32)}


def _untrained(outputs: FaceOutputs) -> dict[str, NDArray[np.float32]]:
    """The scores that nothing was trained for, in the order of tables."""
    names = (*BASELINES, *CLASSIFIER_SCORES)
    return {name: outputs.extras[name] for name in names if name in outputs.extras}


def shown_images(source: Source, rows: Sequence[int] | NDArray[np.integer]) -> Arrays:
    """Crops that a report will show: their rows, and their JPEG bytes one after the other with the ends of each."""
    chosen = np.unique(np.asarray(rows, dtype=np.int64))
    encoded = [encode_jpeg(source.crop(int(row)), JPEG_QUALITY) for row in chosen]
    return {
        "shown_rows": chosen,
        "shown_jpeg": np.frombuffer(b"".join(encoded), dtype=np.uint8),
        "shown_ends": np.cumsum([len(data) for data in encoded]).astype(np.int64),
    }


def extremes(values: NDArray[np.float32]) -> list[NDArray[np.intp]]:
    """Rows of the lowest and of the highest values."""
    order = np.argsort(values, kind="stable")
    return [order[:SHOWN_IMAGES], order[-SHOWN_IMAGES:]]
