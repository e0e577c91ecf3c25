"""The errors that users see, and what helps them along."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class Error(Exception):
    """Something the user can mend: the sentence says what was wrong, where, and what to do."""


class ImageError(Error):
    """One picture could not be read; batch commands turn it into a row with an error."""


class DataError(Error):
    """A data set or benchmark on disk is broken or is not what it was taken for."""


class ModelError(Error):
    """A model file is missing, broken, or does not do what its description says."""


class RecipeError(Error):
    """A training recipe that cannot be run; the message names the recipe, and the field or override."""


class WriteError(Error):
    """A file or a folder cannot be written: a full or read-only disk, or a file where a folder is wanted."""


class NonFiniteLossError(Error):
    """Training stopped on a loss that is not a finite number."""


class MissingExtraError(Error):
    """An optional package is needed; the message names the extra to install."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about a name that is not known: the nearest one that is, or nothing."""
    matches = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f", did you mean {matches[0]!r}?" if matches else ""


def first_line(error: BaseException) -> str:
    """The first line of what an error says, or its kind where it says nothing."""
    said = str(error).strip().splitlines()
    return said[0] if said else type(error).__name__
