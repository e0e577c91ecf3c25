"""Thresholds for a model on a user's own faces, with their error rates, written into its description."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from facerts.benchmarks import PairBenchmark, open_benchmark
from facerts.calibration.faces import read_faces
from facerts.calibration.match_thresholds import (
    match_every_pair,
    match_listed_pairs,
    pairs_among,
    reachable_rates,
)
from facerts.datasets import Source, open_source
from facerts.datasets.fingerprint import hash_images
from facerts.detection.base import Detector
from facerts.embedding import OnnxEmbedder, load_embedder
from facerts.embedding.aligned import AlignedPhotos
from facerts.errors import DataError, Error, ModelError
from facerts.hub.registry import find_model
from facerts.images import CROP_SIZE
from facerts.onnx.contract import QUANTILES, Calibration, Description, QualityThreshold, store_description
from facerts.onnx.packs import is_pack
from facerts.version import __version__

KEEP = (0.99, 0.95, 0.9, 0.8)
# With fewer, one face is more than one percent, and to keep 99 % of them means to keep all.
LEAST_FACES = 100


@dataclass(frozen=True)
class Calibrated:
    """What calibrating a model gave.

    Attributes:
        file: that holds the description now: the model, or the .json beside it.
        description: with thresholds and calibration.
        left_out: why pictures could not be read, one sentence each.
    """

    file: Path
    description: Description
    left_out: tuple[str, ...]


def calibrate(
    model: str | Path,
    faces: str | Path | Sequence[str | Path],
    *,
    pairs: str | Path | None = None,
    out: str | Path | None = None,
    keep: Sequence[float] | None = None,
    fmr: Sequence[float] | None = None,
    flip: bool = False,
    align: Detector | None = None,
    providers: Sequence[str] | None = None,
    threads: int | None = None,
    batch_size: int = 64,
) -> Calibrated:
    """Choose thresholds on faces, measure their errors, and write both into the model's description.

    Match thresholds are chosen on all pairs of the faces where these have identities, or on ``pairs``. Pictures that
    cannot be read, and photos without a face, are left out. What an earlier calibration found is replaced.

    Args:
        model: the name of a model that ships, or an .onnx embedder, ours or one with its description beside it.
        faces: whatever ``open_source`` takes.
        pairs: a verification benchmark to choose match thresholds on, in place of the faces.
        out: the .onnx file to write; ``model`` itself where it is None, unless it ships with facerts.
        keep: shares of the faces that thresholds of quality are to keep; ``KEEP`` by default.
        fmr: false match rates to choose match thresholds for; by default 0.01, 0.001 and 0.0001, as far as there are
            enough pairs for them.
        flip: match embeddings of the crop and its mirror added, and not those of the crop alone, which are what
            scoring gives.
        align: finds the faces of photos; None where pictures are aligned crops.
        providers: ONNX Runtime's execution providers; None for the CPU.
        threads: of one run of the network.
        batch_size: crops in a run.

    Raises:
        DataError: the pictures cannot be opened, or are too few.
        ModelError: the model cannot be opened or written to, or gives a number that is not finite.
        Error: something that is asked for cannot be had from these faces; the message says what and why.

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
        raise Error(f"{model} ships with facerts and stays as it is; give the file to write (--out)")
    target = _target(path, path if out is None else Path(out))
    shares = _shares(KEEP if keep is None else keep, "a share of the faces to keep")
    rates = None if fmr is None else _shares(fmr, "a false match rate")
    embedder = load_embedder(path, providers=providers, threads=threads, batch_size=batch_size)
    has_quality = _has_quality(embedder)
    if keep is not None and not has_quality:
        raise ModelError(f"{path}: the model gives no quality to keep faces by; leave out the shares to keep")
    source = _crops(open_source(faces), align)
    listed = None if pairs is None else open_benchmark(pairs)
    if listed is not None:
        listed = replace(listed, images=_crops(listed.images, align))
    matches = _check_pairs(source, listed, rates)
    if not has_quality and not matches:
        raise Error(
            f"{path}: the model gives no quality and {source.name} no pairs, so there is nothing to calibrate"
        )

    read = read_faces(embedder, source, embed=matches and listed is None, flip=flip)
    if has_quality and len(read.rows) < LEAST_FACES:
        raise DataError(
            f"{source.name}: {len(read.rows)} faces are too few for thresholds of quality, as each would be more than "
            f"one percent; give at least {LEAST_FACES}, better thousands"
        )
    hashed = hash_images(read.source)
    notes = list(read.notes)
    thresholds: dict[str, QualityThreshold] = {}
    quantiles: tuple[float, ...] = ()
    if read.quality is not None:
        thresholds = quality_thresholds(read.quality, shares, hashed.sha256)
        quantiles = quality_quantiles(read.quality)
    else:
        notes.append("The model gives no quality, so there are no thresholds of quality and no percentiles.")
    limits = {share: threshold.quality for share, threshold in thresholds.items()}

    left_out, matching = read.left_out, None
    if listed is not None:
        of_pairs = read_faces(embedder, listed.images, embed=True, flip=flip)
        left_out += of_pairs.left_out
        matching, found = match_listed_pairs(of_pairs, listed, rates, limits, flip=flip)
        notes += [*of_pairs.notes, *found]
    elif matches:
        matching, found = match_every_pair(read, hashed, rates, limits, flip=flip)
        notes += found
    else:
        notes.append("It is not known who is in each picture, so there are no match thresholds.")

    if not thresholds and matching is None:
        raise Error(f"{path}: there is nothing to calibrate. {' '.join(notes)}")

    labels = read.source.labels
    calibration = Calibration(
        data=source.name,
        data_sha256=hashed.sha256,
        faces=len(read.rows),
        identities=None if labels is None else len(np.unique(labels)),
        quantiles=quantiles,
        matching=matching,
        notes=tuple(notes),
        facerts_version=__version__,
    )
    description = embedder.description.model_copy(
        update={"thresholds": thresholds, "calibration": calibration}
    )
    return Calibrated(store_description(path, description, target), description, left_out)


def quality_thresholds(
    quality: NDArray[np.float64], shares: Sequence[float], data_sha256: str
) -> dict[str, QualityThreshold]:
    """For each share of the faces the largest threshold that keeps at least that share.

    That is the quality of the face which is the ⌈share · N⌉th from the top. Faces of equal quality are accepted or
    rejected together, so that where some stand at the threshold more are kept than were asked for; ``kept`` says how
    many.

    Args:
        quality: ``(N,)``, higher is better; accepted at or above.
        shares: above 0, at most 1.
        data_sha256: of the faces.
    """
    falling = np.sort(quality)[::-1]
    thresholds = {}
    for share in shares:
        limit = falling[max(int(np.ceil(share * len(falling) - 1e-9)), 1) - 1]
        kept = float(np.mean(quality >= limit))
        thresholds[str(share)] = QualityThreshold(quality=float(limit), data_sha256=data_sha256, kept=kept)
    return thresholds


def quality_quantiles(quality: NDArray[np.float64]) -> tuple[float, ...]:
    """The quantiles at 0, 1, …, 100 %, interpolated between two faces, with the digits of float32."""
    quantiles = np.quantile(quality, np.linspace(0, 1, QUANTILES)).astype(np.float32)
    return tuple(float(str(value)) for value in quantiles)


def _target(model: Path, out: Path) -> Path:
    """Where to write.

    Raises:
        ModelError: the model is a pack, which has no place for a description.
        Error: ``out`` is no .onnx file.
    """
    if is_pack(model):
        raise ModelError(
            f"{model}: a model pack has no place for thresholds; give its .onnx file, with a description beside it "
            "(see docs/foreign-models.md)"
        )
    if out.suffix.lower() != ".onnx":
        raise Error(f"{out}: a calibrated model is written as .onnx; choose that ending")
    return out


def _shares(given: Sequence[float], what: str) -> list[float]:
    """Each once.

    Raises:
        Error: one is not above 0 and below 1.
    """
    for share in given:
        if not 0 < share < 1:
            raise Error(f"{share:g} is not {what}; give one above 0 and below 1")
    return list(dict.fromkeys(float(share) for share in given))


def _has_quality(embedder: OnnxEmbedder) -> bool:
    nothing = np.empty((0, CROP_SIZE, CROP_SIZE, 3), dtype=np.uint8)
    return embedder(nothing).quality is not None


def _crops(source: Source, align: Detector | None) -> Source:
    return source if align is None else AlignedPhotos(source, align)


def _check_pairs(source: Source, listed: PairBenchmark | None, rates: Sequence[float] | None) -> bool:
    """Whether there are pairs, before anything is embedded.

    Raises:
        Error: rates were asked for that these pairs cannot show, or there are none.
    """
    if listed is not None:
        reachable_rates(rates, int(listed.same.sum()), int((~listed.same).sum()), listed.name)
        return True
    if source.labels is not None:
        reachable_rates(rates, *pairs_among(source.labels), source.name)
        return True
    if rates is not None:
        raise Error(
            f"{source.name}: a false match rate needs to know who is in each picture; give a folder by identity, a "
            "record directory or tar shards, or name a benchmark of pairs"
        )
    return False
