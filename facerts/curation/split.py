"""Split a data set by identity, for training and testing."""

from __future__ import annotations

from typing import Any

from facerts.curation.curation_job import JobOptions, open_job
from facerts.curation.output_spec import OutputSpec
from facerts.datasets.sampler import sample_identities
from facerts.datasets.source import Source
from facerts.errors import DataError, Error


def split(
    source: Source,
    out: OutputSpec,
    held_out: OutputSpec,
    *,
    identities: int | None = None,
    share: float | None = None,
    seed: int = 0,
    options: JobOptions | None = None,
) -> dict[str, Any]:
    """Write two data sets without a common identity.

    The held-out identities are the same as those of ``data.holdout_identities`` in a recipe with the same seed.

    Args:
        identities: number of identities to hold out; or
        share: share of the identities to hold out, above 0 and below 1.
    """
    if (identities is None) == (share is None):
        raise Error("give the identities to hold out as either --identities or --share")
    if share is not None and not 0 < share < 1:
        raise Error(f"{share:g} is not a share of the identities; it must be above 0 and below 1")
    if source.labels is None:
        raise DataError(f"{source.name}: a split needs identities, and this source has none")
    count = identities or max(1, round((share or 0) * len(source.identities)))
    held = sample_identities(source, count, seed)[source.labels]
    settings = {"identities": count, "share": share, "seed": seed}
    with open_job(source, [out, held_out], options or JobOptions(), settings) as job:
        job.write(out, source, ~held)
        job.write(held_out, source, held)
    return job.report
