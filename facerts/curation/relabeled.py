"""A source with renamed identities."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

import numpy as np

from facerts.datasets.source import Source, WrappedSource


class Relabeled(WrappedSource):
    """A source whose identities are renamed.

    Args:
        names: ``(C,)`` the new name of each identity; identities with the same name are merged.
        prefixes: ``(C,)`` the prefix for the file names of each identity, so that the file names of merged identities
            stay unique; may be "".
    """

    def __init__(self, source: Source, names: Sequence[str], prefixes: Sequence[str]) -> None:
        assert source.labels is not None
        super().__init__(source)
        self._prefixes = list(prefixes)
        self.identities = sorted(set(names))
        number = {name: label for label, name in enumerate(self.identities)}
        self.labels = np.array([number[name] for name in names], dtype=np.int64)[source.labels]

    def key(self, index: int) -> str:
        assert self._source.labels is not None
        prefix = self._prefixes[self._source.labels[index]]
        key = PurePosixPath(self._source.key(index))
        return str(key.with_name(prefix + key.name)) if prefix else str(key)
