"""A data set in two: identities to train on, and others to test on."""

from __future__ import annotations

from typing import Any

from facerts.curation.curation_job import Settings, making
from facerts.curation.output_spec import Target
from facerts.datasets.sampler import sample_identities
from facerts.datasets.source import Source
from facerts.errors import DataError, Error


def split(
    source: Source,
    out: Target,
    held_out: Target,
    *,
    identities: int | None = None,
    share: float | None = None,
    seed: int = 0,
    settings: Settings | None = None,
) -> dict[str, Any]:
    """Write all pictures but those of some identities, and theirs; nobody is in both.

    The identities are drawn as ``data.holdout_identities`` of a recipe draws them from the same seed.

    Args:
        source: pictures with identities.
        out: for the pictures that stay.
        held_out: for those of the identities that are drawn.
        identities: how many are drawn; or
        share: how many of them, above 0 and below 1.
        seed: of the drawing.
        settings: of the command.

    Returns:
        The report.

    Raises:
        Error: there are no identities, or too few; or a data set cannot be read or written.
    """
    if (identities is None) == (share is None):
        raise Error("say how many identities to hold out: either --identities or --share")
    if share is not None and not 0 < share < 1:
        raise Error(f"{share:g} is no share of the identities; give one above 0 and below 1")
    if source.labels is None:
        raise DataError(f"{source.name}: a split needs identities, and this source has none")
    count = identities or max(1, round((share or 0) * len(source.identities)))
    held = sample_identities(source, count, seed)[source.labels]
    told = {"identities": count, "share": share, "seed": seed}
    with making(source, [out, held_out], settings or Settings(), told) as made:
        made.write(out, source, ~held)
        made.write(held_out, source, held)
    return made.report
