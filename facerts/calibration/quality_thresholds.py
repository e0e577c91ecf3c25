"""Quality and match thresholds of a model on the user's own faces, written into the model's description."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from facerts.calibration.faces import Faces, read_faces
from facerts.calibration.group_thresholds import group_thresholds
from facerts.calibration.match_thresholds import (
    match_every_pair,
    match_listed_pairs,
)
from facerts.datasets import PairBenchmark, Source, open_benchmark, open_source
from facerts.datasets.fingerprint import hash_images
from facerts.detection.detector import FaceFinder
from facerts.embedding import OnnxEmbedder
from facerts.embedding.aligned import AlignedPhotos
from facerts.embedding.onnx_embedder import OnnxQuality, load_model
from facerts.errors import Error, ModelError, documentation_page
from facerts.evaluation.image_groups import Groups
from facerts.hub.find import find_model
from facerts.images import CROP_SIZE
from facerts.metrics.group_rates import share_by_group
from facerts.metrics.separation import keep_threshold
from facerts.onnx.contract import (
    QUANTILES,
    Calibration,
    Description,
    NonFaces,
    QualityThreshold,
    store_description,
)
from facerts.onnx.model_pack import is_pack
from facerts.onnx.providers import Runtime
from facerts.version import __version__

if TYPE_CHECKING:
    from typing_extensions import Unpack

KEEP = (0.99, 0.95, 0.9, 0.8)
# With fewer, one face is more than one percent, so keeping 99% means keeping all.
FEW_FACES = 100


@dataclass(frozen=True)
class CalibrationResult:
    """The result of calibrating a model.

    Attributes:
        file: the file with the new description: the model, or the .json beside it.
        description: the new description, with thresholds and calibration.
        left_out: why images could not be read, one sentence each.
    """

    file: Path
    description: Description
    left_out: tuple[str, ...]


def calibrate(
    model: str | Path,
    faces: str | Path | Sequence[str | Path] | Source,
    *,
    pairs: str | Path | None = None,
    out: str | Path | None = None,
    keep: Sequence[float] | None = None,
    fmr: Sequence[float] | None = None,
    flip: bool = False,
    groups: Groups | None = None,
    non_faces: str | Path | Sequence[str | Path] | None = None,
    detector: FaceFinder | None = None,
    **runtime: Unpack[Runtime],
) -> CalibrationResult:
    """Choose thresholds on faces, measure their error rates, and write both into the model's description.

    Match thresholds are chosen on all pairs of the faces if their identities are known, or on ``pairs``. Images that
    cannot be read, and photos without a face, are left out. An earlier calibration is replaced.

    Args:
        model: the name of a shipped model, or an .onnx embedder or quality (a foreign one with its description beside
            it). A quality alone gets no match thresholds.
        faces: a source, or anything that ``open_source`` accepts.
        pairs: a verification benchmark to choose match thresholds on, instead of all pairs of the faces. The paths in a
            list of pairs are relative to the folder of the faces, or, if that is not one folder, to the list's own.
        out: the .onnx file to write; None writes to ``model`` itself, which is not possible for a shipped model.
        keep: shares of the faces that the quality thresholds keep; ``KEEP`` by default.
        fmr: false match rates of the match thresholds, ``FMRS`` by default; those that there are too few pairs for are
            left out, with a note.
        flip: match sums of the embeddings of a crop and its mirror image; scoring embeds only the crop.
        groups: groups of the faces, to add a quality threshold for each; see ``read_groups``.
        non_faces: images without a face, 112 x 112, to measure the share of them that the quality thresholds let
            through; anything that ``open_source`` accepts.
        detector: finds the faces in photos; None if the images are aligned crops.

    Examples:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> from facerts.datasets.synthetic import write_synthetic_faces
        >>> with TemporaryDirectory() as folder:
        ...     write_synthetic_faces(Path(folder, "faces"), identities=25, images=4)
        ...     found = calibrate("facerts-small-noteacher", f"{folder}/faces", out=f"{folder}/mine.onnx")
        >>> sorted(found.description.thresholds)
        ['0.8', '0.9', '0.95', '0.99']
    """
    path = find_model(model)
    if out is None and path != Path(model):
        raise Error(f"{model} ships with facerts and is not changed; name the file to write (--out)")
    target = _check_target(path, path if out is None else Path(out))
    shares = _shares(KEEP if keep is None else keep, "a share of the faces to keep")
    rates = None if fmr is None else _shares(fmr, "a false match rate")
    embedder = load_model(path, **runtime)
    has_quality = _has_quality(embedder)
    for given, option in (
        (keep, "the shares to keep"),
        (groups, "the groups"),
        (non_faces, "the non-faces"),
    ):
        if given is not None and not has_quality:
            raise ModelError(
                f"{path}: the model has no quality, so it cannot have quality thresholds; leave out {option}"
            )
    for given, option in ((pairs, "the pairs"), (fmr, "the false match rates")):
        if given is not None and isinstance(embedder, OnnxQuality):
            raise ModelError(
                f"{path}: the model has no embedding, so it cannot have match thresholds; leave out {option}"
            )
    source = _crops(faces if isinstance(faces, Source) else open_source(faces), detector)
    listed = None if pairs is None else open_benchmark(pairs, _only_folder(faces))
    if listed is not None:
        listed = replace(listed, images=_crops(listed.images, detector))
    has_pairs = isinstance(embedder, OnnxEmbedder) and _check_pairs(source, listed, rates)
    keys = [source.key(row) for row in range(len(source))]
    in_groups, group_notes = ({}, []) if groups is None else groups.of(keys)
    others = None if non_faces is None else open_source(non_faces)
    if not has_quality and not has_pairs:
        raise Error(
            f"{path}: the model has no quality and {source.name} has no pairs, so there is nothing to calibrate"
        )

    scored = read_faces(embedder, source, embed=has_pairs and listed is None, flip=flip)
    hashed = hash_images(scored.source)
    notes = [*scored.notes, *group_notes]
    thresholds: dict[str, QualityThreshold] = {}
    quantiles: tuple[float, ...] = ()
    if scored.quality is not None:
        thresholds = quality_thresholds(scored.quality, shares, hashed.sha256, scored.source.labels)
        notes += _uncertain_shares(thresholds, len(scored.rows))
        quantiles = quality_quantiles(scored.quality)
    else:
        notes.append("The model has no quality, so there are no quality thresholds and no percentiles.")
    minimums = {share: threshold.quality for share, threshold in thresholds.items()}

    left_out, matching, compared = scored.left_out, None, None
    if listed is not None:
        pair_faces = read_faces(embedder, listed.images, embed=True, flip=flip)
        left_out += pair_faces.left_out
        matching, match_notes = match_listed_pairs(pair_faces, listed, rates, minimums, flip=flip)
        notes += [*pair_faces.notes, *match_notes]
    elif has_pairs:
        matching, compared, match_notes = match_every_pair(scored, hashed, rates, minimums, flip=flip)
        notes += match_notes
    elif isinstance(embedder, OnnxQuality):
        notes.append("The model has no embedding, so there are no match thresholds.")
    else:
        notes.append("The identities of the images are unknown, so there are no match thresholds.")

    if not thresholds and matching is None:
        raise Error(f"{path}: there is nothing to calibrate. {' '.join(notes)}")

    labels = scored.source.labels
    other_quality, found_others = None, None
    if others is not None:
        scored_others = read_faces(embedder, others, embed=False)
        left_out += scored_others.left_out
        other_quality = scored_others.quality
        found_others = _non_faces(scored_others, minimums)
    by_attribute = {}
    if scored.quality is not None:
        by_attribute = group_thresholds(
            scored.quality,
            {attribute: values[scored.rows] for attribute, values in in_groups.items()},
            thresholds,
            people=labels,
            compared=compared,
            non_faces=other_quality,
        )
    calibration = Calibration(
        data=source.name,
        data_sha256=hashed.sha256,
        faces=len(scored.rows),
        identities=None if labels is None else len(np.unique(labels)),
        quantiles=quantiles,
        matching=matching,
        groups=by_attribute,
        non_faces=found_others,
        notes=tuple(notes),
        facerts_version=__version__,
    )
    description = embedder.description.model_copy(update={"thresholds": thresholds, "calibration": calibration})
    return CalibrationResult(store_description(path, description, target), description, left_out)


def quality_thresholds(
    quality: NDArray[np.float64],
    shares: Sequence[float],
    data_sha256: str,
    people: NDArray[np.integer] | None = None,
) -> dict[str, QualityThreshold]:
    """For each share of the faces, the largest threshold that keeps at least that share.

    It is the quality of the ⌈share · N⌉th best face. Faces of equal quality are accepted or rejected together, so ties
    at the threshold keep a larger share than requested; ``kept`` is the actual share.

    Args:
        quality: ``(N,)``, higher is better; a face at the threshold is accepted.
        shares: above 0, at most 1.
        people: ``(N,)`` person of each face; None if unknown.
    """
    thresholds = {}
    for share in shares:
        minimum = keep_threshold(quality, share)
        kept = share_by_group(quality >= minimum, np.zeros(len(quality), dtype=np.int64), 1, people)
        thresholds[str(share)] = QualityThreshold(
            quality=minimum,
            data_sha256=data_sha256,
            kept=float(kept.rate[0]),
            ci95=kept.interval(0),
        )
    return thresholds


def _uncertain_shares(thresholds: Mapping[str, QualityThreshold], faces: int) -> list[str]:
    """A remark on the thresholds if few faces chose them."""
    if faces >= FEW_FACES:
        return []
    ranges = [
        f"{threshold.ci95[0]:.2f} to {threshold.ci95[1]:.2f} at keep {share}"
        for share, threshold in thresholds.items()
        if threshold.ci95
    ]
    return [f"{faces} faces are few: of other such faces, the thresholds may keep {', '.join(ranges)}."]


def quality_quantiles(quality: NDArray[np.float64]) -> tuple[float, ...]:
    """The quantiles at 0, 1, …, 100%, interpolated linearly and rounded to float32."""
    quantiles = np.quantile(quality, np.linspace(0, 1, QUANTILES)).astype(np.float32)
    return tuple(float(str(value)) for value in quantiles)


def _non_faces(others: Faces, minimums: Mapping[str, float]) -> NonFaces:
    """The share of non-faces that each quality threshold lets through."""
    assert others.quality is not None  # the model has quality
    return NonFaces(
        data=others.source.name,
        data_sha256=hash_images(others.source).sha256,
        images=len(others.rows),
        accepted={share: float(np.mean(others.quality >= minimum)) for share, minimum in minimums.items()},
    )


def _only_folder(faces: str | Path | Sequence[str | Path] | Source) -> Path | None:
    given = [faces] if isinstance(faces, str | Path) else [] if isinstance(faces, Source) else faces
    return Path(given[0]) if len(given) == 1 and Path(given[0]).is_dir() else None


def _check_target(model: Path, out: Path) -> Path:
    if is_pack(model):
        raise ModelError(
            f"{model}: a model pack cannot hold thresholds; use its .onnx file, with a description beside it (see "
            f"{documentation_page('foreign-models')})"
        )
    if out.suffix.lower() != ".onnx":
        raise Error(f"{out}: a calibrated model is written as .onnx; choose a file with that suffix")
    return out


def _shares(shares: Sequence[float], what: str) -> list[float]:
    for share in shares:
        if not 0 < share < 1:
            raise Error(f"{share:g} is not {what}; it must be above 0 and below 1")
    return list(dict.fromkeys(float(share) for share in shares))


def _has_quality(embedder: OnnxEmbedder | OnnxQuality) -> bool:
    no_crops = np.empty((0, CROP_SIZE, CROP_SIZE, 3), dtype=np.uint8)
    return embedder.outputs(no_crops).quality is not None


def _crops(source: Source, detector: FaceFinder | None) -> Source:
    return source if detector is None else AlignedPhotos(source, detector)


def _check_pairs(source: Source, listed: PairBenchmark | None, rates: Sequence[float] | None) -> bool:
    """Whether there are pairs; checked before anything is embedded."""
    if listed is not None or source.labels is not None:
        return True
    if rates is not None:
        raise Error(
            f"{source.name}: false match rates need the identity of each image; use a folder by identity, a record "
            "directory, tar shards or a benchmark of pairs (--pairs)"
        )
    return False
