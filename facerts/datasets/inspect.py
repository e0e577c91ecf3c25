"""A summary of a source, to check before training on it."""

from __future__ import annotations

from collections import Counter

import numpy as np

from facerts.datasets.source import Source
from facerts.errors import Error
from facerts.images import decode
from facerts.io.progress import track

SAMPLE = 1000


def inspect_source(source: Source, *, every: bool = False) -> tuple[dict[str, object], list[str]]:
    """Count images and identities, and measure sizes; the second are the problems of images that cannot be read.

    Not ``every`` image is decoded, but 1,000 spread evenly over the source.
    """
    count = len(source) if every else min(SAMPLE, len(source))
    indices = np.unique(np.linspace(0, len(source) - 1, count).astype(np.int64))
    sizes: Counter[str] = Counter()
    lengths: list[int] = []
    broken: list[str] = []
    for index in track([int(i) for i in indices], f"reading {source.name}"):
        where = source.location(index)
        try:
            data = source.read(index)
            height, width = decode(data, where=where).shape[:2]
        except Error as error:
            broken.append(str(error))
            continue
        lengths.append(len(data))
        sizes[f"{width} x {height}"] += 1
    report: dict[str, object] = {
        "name": source.name,
        "kind": type(source).__name__,
        "images": len(source),
        "identities": len(source.identities) if source.labels is not None else None,
        "decoded": len(indices),
        "sizes": dict(sizes.most_common(5)),
        "bytes_median": int(np.median(lengths)) if lengths else None,
    }
    if source.labels is not None:
        per_identity = np.bincount(source.labels)
        report["images_per_identity"] = {
            name: int(value)
            for name, value in zip(
                ("min", "median", "max"),
                (per_identity.min(), np.median(per_identity), per_identity.max()),
                strict=True,
            )
        }
        report["identities_with_one_image"] = int((per_identity == 1).sum())
    return report, broken
