"""Several data sets as one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from facerts.curation.curation_job import Settings, making
from facerts.curation.output_spec import Target
from facerts.curation.relabeled import Regrouped
from facerts.datasets.open import Joined, open_source
from facerts.datasets.records import Records
from facerts.datasets.source import Source
from facerts.errors import DataError


def merge(
    specs: Sequence[str | Path],
    out: Target,
    *,
    prefix_sources: bool = False,
    settings: Settings | None = None,
) -> dict[str, Any]:
    """Write the pictures of several sources as one data set.

    Files of identities that are in several sources get the source's name before theirs, so that none has the name of
    another.

    Args:
        specs: the sources, each whatever ``open_source`` takes; a pattern for several files is one source.
        out: for all pictures.
        prefix_sources: put each source's name before those of its identities, so that no two sources share one;
            otherwise identities of the same name are one.
        settings: of the command.

    Returns:
        The report.

    Raises:
        Error: some sources have identities and others none, two number their identities under the same name, or a
            data set cannot be read or written.
    """
    sources = [open_source(spec) for spec in specs]
    names = _names(specs, sources)
    joined = Joined(_grouped(sources, names, prefix_sources))
    told = {"prefix_sources": prefix_sources}
    with making(joined, [out], settings or Settings(), told) as made:
        made.report["sources"] = [
            {"name": name, "images": len(source), "identities": len(source.identities)}
            for name, source in zip(names, sources, strict=True)
        ]
        made.report["identities_in_several"] = len(_shared(sources)) if not prefix_sources else 0
        made.write(out, joined)
    return made.report


def _grouped(sources: Sequence[Source], names: Sequence[str], prefix: bool) -> list[Source]:
    """The sources under the names that their identities will have."""
    with_identities = [source.labels is not None for source in sources]
    if not any(with_identities):
        return list(sources)
    if not all(with_identities):
        lacking = sources[with_identities.index(False)].name
        raise DataError(
            f"{lacking} has no identities, and other sources do; give it a folder for each identity"
        )
    if prefix:
        return [
            Regrouped(
                source,
                [f"{name}_{identity}" for identity in source.identities],
                [""] * len(source.identities),
            )
            for name, source in zip(names, sources, strict=True)
        ]
    numbered = Counter(source.name for source in sources if isinstance(source, Records) and not source.named)
    for name, count in numbered.items():
        if count > 1:
            raise DataError(
                f"{count} record sets are called {name} and number their identities, so that those of one number "
                "would become one; keep them apart with --prefix-sources"
            )
    shared = _shared(sources)
    return [
        Regrouped(
            source,
            list(source.identities),
            [f"{name}_" if identity in shared else "" for identity in source.identities],
        )
        for name, source in zip(names, sources, strict=True)
    ]


def _shared(sources: Sequence[Source]) -> set[str]:
    """Identities that are in more than one source."""
    counts = Counter(identity for source in sources for identity in source.identities)
    return {identity for identity, count in counts.items() if count > 1}


def _names(specs: Sequence[str | Path], sources: Sequence[Source]) -> list[str]:
    """A name for each source, no two the same: its own, or what comes before the ``*`` of its pattern."""
    names: list[str] = []
    for spec, source in zip(specs, sources, strict=True):
        name = source.name
        if isinstance(source, Joined):
            path = Path(spec)
            name = path.name.split("*")[0].rstrip("-_.") or path.parent.name or "joined"
        names.append(name)
    seen: Counter[str] = Counter()
    unique = []
    for name in names:
        seen[name] += 1
        unique.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return unique
