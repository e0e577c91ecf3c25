"""A data set without what its embeddings show to be there twice, or under the wrong name."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from facerts.curation.curation_job import Making, Settings, identity_of, making
from facerts.curation.embeddings import Embedded, Embedding
from facerts.curation.identities import look_alikes
from facerts.curation.identity_means import own_cosines, rows_of_each
from facerts.curation.identity_pairs import Across, leave_out_dropped, merged, regrouped, tell_pairs
from facerts.curation.output_spec import Target
from facerts.curation.pairwise import Chosen, check_threshold, repeats
from facerts.datasets import Source
from facerts.detection.base import Detector
from facerts.io.progress import track
from facerts.io.versions import installed_versions

QUANTILES = (0.001, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True)
class Limits:
    """What counts as what, in cosines.

    Attributes:
        threshold: two pictures that are at least so similar are almost the same picture; above 0, as is the next.
        identity_threshold: two identities whose means are at least so similar look like one person.
        min_own_cosine: a picture less similar than this to the mean of its identity's other pictures is left out;
            None leaves none out.
        pictures_across: compare pictures of different identities too, whose number grows with the square of theirs.

    Raises:
        Error: a threshold is not above 0, or above 1.
    """

    threshold: float = 0.95
    identity_threshold: float = 0.7
    min_own_cosine: float | None = None
    pictures_across: bool = True

    def __post_init__(self) -> None:
        for name in ("threshold", "identity_threshold"):
            check_threshold(getattr(self, name), f"--{name.replace('_', '-')}")


def dedup(
    source: Source,
    out: Target,
    embedding: Embedding,
    limits: Limits | None = None,
    *,
    across: Across = Across.REPORT,
    align: Detector | None = None,
    settings: Settings | None = None,
) -> dict[str, Any]:
    """Write a source without near-duplicates and, where it is asked for, without pictures that look like others.

    Within an identity, of pictures that are almost the same the one of the best quality is kept (the first one where
    the model gives no quality). Then pictures that are far from the mean of their identity's others go, if
    ``limits.min_own_cosine`` says so. Identities that look like one person, by their means or by pictures that are
    almost the same, are told in the report; ``across`` says what else is done. Pictures that cannot be read are left
    out. Without identities all pictures are compared with each other.

    Args:
        source: of aligned pictures, or of photos.
        out: for the pictures that are left.
        embedding: how pictures are embedded and searched.
        limits: what counts as what.
        across: what is done with identities that look like one person.
        align: finds the faces of photos; None where pictures are aligned crops.
        settings: of the command.

    Returns:
        The report.

    Raises:
        Error: a data set cannot be read or written, or the model cannot be used.
    """
    limits = limits or Limits()
    told = {"by": "embedding", **asdict(limits), "across": across.value, **embedding.told()}
    told |= {"align": align and align.identity}
    with making(source, [out], settings or Settings(), told, installed_versions()) as made:
        found = embedding.of(source, made.scratch, align)
        for index, problem in sorted(found.unreadable.items()):
            made.leave_out(index, "cannot be read", error=problem)
        writes = source
        if source.labels is None:
            _leave_out_repeats(made, found, np.arange(len(source)), limits, embedding)
        else:
            each = rows_of_each(source.labels)
            for rows in track(
                each, "comparing pictures of each identity", len(source.identities), "identities"
            ):
                _leave_out_repeats(made, found, rows, limits, embedding)
            _leave_out_strangers(made, found, limits)
            pairs = look_alikes(
                source,
                found.embedding,
                made.kept,
                by_means=limits.identity_threshold,
                by_pictures=limits.threshold if limits.pictures_across else None,
                backend=embedding.search,
            )
            tell_pairs(made, pairs, across)
            if across is Across.DROP:
                leave_out_dropped(made, pairs)
            elif across is Across.MERGE:
                images = np.bincount(source.labels[made.kept], minlength=len(source.identities))
                becomes = merged(pairs, images)
                for rows in rows_of_each(becomes[source.labels]):
                    if len(np.unique(source.labels[rows])) > 1:
                        _leave_out_repeats(made, found, rows, limits, embedding)
                writes = regrouped(source, becomes)
        made.write(out, writes, made.kept)
    return made.report


def _leave_out_repeats(
    made: Making, found: Embedded, rows: NDArray[np.int64], limits: Limits, embedding: Embedding
) -> None:
    """Leave out those of some pictures that are almost the same as better ones."""
    rows = rows[made.kept[rows]]
    if found.quality is not None:
        rows = rows[np.argsort(-found.quality[rows], kind="stable")]
    again = repeats(Chosen(found.embedding, rows), limits.threshold, embedding.search)
    for place in np.flatnonzero(again.of >= 0).tolist():
        made.leave_out(
            int(rows[place]),
            "near-duplicate",
            resembles=made.source.location(int(rows[again.of[place]])),
            cosine=round(float(again.cosine[place]), 4),
        )


def _leave_out_strangers(made: Making, found: Embedded, limits: Limits) -> None:
    """Measure how far pictures are from their identity's others, and leave out those that are too far."""
    labels = made.source.labels
    assert labels is not None
    measured = np.full(len(labels), np.nan, dtype=np.float32)
    for rows in rows_of_each(labels):
        rows = rows[made.kept[rows]]
        if len(rows) > 1:
            measured[rows] = own_cosines(np.asarray(found.embedding[rows]))
    known = np.flatnonzero(np.isfinite(measured))
    made.report["own_cosine"] = {
        "images": len(known),
        "quantiles": {
            f"{share:g}": round(float(np.quantile(measured[known], share)), 4)
            for share in QUANTILES
            if len(known)
        },
    }
    if limits.min_own_cosine is None:
        return
    for index in known[measured[known] < limits.min_own_cosine].tolist():
        made.leave_out(
            index,
            "far from its identity",
            resembles=identity_of(made.source, index),
            cosine=round(float(measured[index]), 4),
        )
