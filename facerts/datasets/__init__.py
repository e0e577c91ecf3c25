"""Labelled pictures on disk, read the same way whatever their layout."""

from facerts.datasets.open import Joined, open_pictures, open_source
from facerts.datasets.source import Source, Subset

__all__ = ["Joined", "Source", "Subset", "open_pictures", "open_source"]
