"""Labeled images on disk, read the same way whatever their layout."""

from facerts.datasets.open_source import Joined, open_images, open_source
from facerts.datasets.source import Source, Subset

__all__ = ["Joined", "Source", "Subset", "open_images", "open_source"]
