"""The errors that users see."""


class Error(Exception):
    """Something the user can mend: the sentence says what was wrong, where, and what to do."""


class ImageError(Error):
    """One picture could not be read; batch commands turn it into a row with an error."""


class DataError(Error):
    """A data set or benchmark on disk is broken or is not what it was taken for."""


class ModelError(Error):
    """A model file is missing, broken, or does not do what its description says."""


class NonFiniteLossError(Error):
    """Training stopped on a loss that is not a finite number."""


class MissingExtraError(Error):
    """An optional package is needed; the message names the extra to install."""
