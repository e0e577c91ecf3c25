"""Data sets with the same images as others: split by identity, packed (several as one, shuffled), or unpacked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from facerts.curation.output_spec import OutputSpec, Report, open_job
from facerts.datasets.encoded_images import encoded_image, read_ahead
from facerts.datasets.open_source import Joined, open_source
from facerts.datasets.records import Records
from facerts.datasets.sampler import sample_identities
from facerts.datasets.source import Relabeled, Source
from facerts.errors import DataError, Error
from facerts.images import decode
from facerts.io.file_names import safe_path
from facerts.io.files import writing
from facerts.io.job import staged
from facerts.io.progress import track


def split(
    source: Source,
    out: OutputSpec,
    held_out: OutputSpec,
    *,
    identities: int | None = None,
    share: float | None = None,
    seed: int = 0,
) -> Report:
    """Write two data sets without a common identity.

    A number or a share, above 0 and below 1, of the identities is held out. The held-out identities are the same as
    those of ``data.holdout_identities`` in a recipe with the same seed.
    """
    if (identities is None) == (share is None):
        raise Error("give the identities to hold out as either --identities or --share")
    if share is not None and not 0 < share < 1:
        raise Error(f"{share:g} is not a share of the identities; it must be above 0 and below 1")
    if source.labels is None:
        raise DataError(f"{source.name}: a split needs identities, and this source has none")
    count = identities or max(1, round((share or 0) * len(source.identities)))
    held = sample_identities(source, count, seed)[source.labels]
    with open_job(source, [out, held_out], {"identities": count, "share": share, "seed": seed}) as job:
        job.write(out, source, ~held)
        job.write(held_out, source, held)
    return job.report


def pack(
    sources: Sequence[str | Path | Source],
    out: OutputSpec,
    *,
    prefix_sources: bool = False,
    shuffle_seed: int | None = None,
    check: bool = False,
) -> Report:
    """Write the images of sources, each anything that ``open_source`` accepts, unchanged, as one data set.

    A pattern for several files is one source. Identities of the same name are merged, unless ``prefix_sources``
    prefixes them with the name of their source. Files of an identity that is in several sources are prefixed with the
    name of the source, so that names are unique.

    Args:
        shuffle_seed: write all images in random order, so that a sequential read is a shuffled read. Every order is
            equally likely, and depends only on this seed and the number of images. None keeps images of an identity
            together.
        check: decode every image, and drop those that cannot be decoded.
    """
    opened = [source if isinstance(source, Source) else open_source(source) for source in sources]
    names = _names(sources, opened)
    relabeled = _relabel(opened, names, prefix_sources) if len(opened) > 1 or prefix_sources else opened
    joined = relabeled[0] if len(relabeled) == 1 else Joined(relabeled)
    order = None
    if shuffle_seed is not None:
        order = np.argsort(np.random.default_rng(shuffle_seed).permutation(len(joined)))
    settings = {"prefix_sources": prefix_sources, "seed": shuffle_seed, "check": check}
    with open_job(joined, [out], settings) as job:
        job.report["sources"] = [
            {"name": name, "images": len(source), "identities": len(source.identities)}
            for name, source in zip(names, opened, strict=True)
        ]
        if check:
            job.drop_unreadable(_undecodable(joined))
        job.write(out, joined, job.kept, order)
    return job.report


def _undecodable(source: Source) -> dict[int, str]:
    """The problems of the images that cannot be decoded."""

    def problem(index: int) -> str:
        try:
            decode(source.read(index), where=source.location(index))
        except Error as error:
            return str(error)
        return ""

    checked = read_ahead(range(len(source)), problem, f"checking {source.name}")
    return {index: found for index, found in enumerate(checked) if found}


def unpack(source: Source, folder: Path) -> None:
    """Write every image as a file: ``IDENTITY/NAME``, or ``NAME`` without identities.

    The folder appears only when it is complete.
    """
    with staged([folder]) as temporary:
        part = temporary[folder]
        for index in track(range(len(source)), f"unpacking {source.name}"):
            data = source.read(index)
            identity, _, name = encoded_image(source, index, data).name.rpartition("/")
            path = part / safe_path([identity, name] if identity else [name])
            if path.exists():
                raise DataError(f"{source.name}: two images are called {path.relative_to(part)}")
            with writing(folder):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)


def _relabel(sources: Sequence[Source], names: Sequence[str], prefix: bool) -> list[Source]:
    """The sources with the final names of their identities and unique file names."""
    with_identities = [source.labels is not None for source in sources]
    if not any(with_identities):
        return list(sources)
    if not all(with_identities):
        without = sources[with_identities.index(False)].name
        raise DataError(f"{without} has no identities, and other sources do; sort it into a folder per identity")
    if prefix:
        return [
            Relabeled(
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
                f"{count} record sets are called {name} and have numbered identities, which would be merged; keep "
                "them apart with --prefix-sources"
            )
    shared = _shared(sources)
    return [
        Relabeled(
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


def _names(specs: Sequence[str | Path | Source], sources: Sequence[Source]) -> list[str]:
    """A unique name for each source: its own, or the part of its pattern before the ``*``."""
    names: list[str] = []
    for spec, source in zip(specs, sources, strict=True):
        name = source.name
        if isinstance(source, Joined) and not isinstance(spec, Source):
            path = Path(spec)
            name = path.name.split("*")[0].rstrip("-_.") or path.parent.name or "joined"
        names.append(name)
    seen: Counter[str] = Counter()
    unique = []
    for name in names:
        seen[name] += 1
        unique.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return unique
