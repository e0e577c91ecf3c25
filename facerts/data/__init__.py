"""Labelled pictures on disk, read the same way whatever their layout."""

from facerts.data.open import Joined, open_pictures, open_source
from facerts.data.source import Source, Subset

__all__ = ["Joined", "Source", "Subset", "open_pictures", "open_source"]
