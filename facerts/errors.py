"""The errors that users see, and helpers to word them.

Bad input, and whatever cannot be read or written, raises ``Error`` or a subclass, whose message says what is wrong;
docstrings name only what callers may want to act on.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Integral, Real
from typing import Any

# What a sentence names of a file in which everything is wrong.
MAX_PROBLEMS, MAX_FIELD = 10, 200
# What pip installs for an extra that is not given alone, as in docs/install.md.
_INSTALLED = {
    "use": "'.[cpu]', or '.[gpu]' on an NVIDIA GPU",
    "train": "'.[cpu,train]' torch==2.13.0 --extra-index-url https://download.pytorch.org/whl/cpu, or '.[gpu,train]'",
}
# Whether a value is what an argument has to be.
_KINDS: dict[str, Callable[[Any], bool]] = {
    "a name or a path": lambda value: isinstance(value, str | os.PathLike),
    "a number": lambda value: isinstance(value, Real),
    "a whole number from 1 on": lambda value: isinstance(value, Integral) and int(value) >= 1,
    "a list of names": lambda value: isinstance(value, Sequence),
}


class Error(Exception):
    """Something the user can fix: the message says what is wrong, where, and what to do."""


class ImageError(Error):
    """An image could not be read; batch commands turn it into a row with an error."""


class VideoError(Error):
    """A video could not be opened; batch commands turn it into a row with an error."""


class VideoLimitError(VideoError):
    """A video is more than may be read: too long, or its frames too large or too many."""


class DataError(Error):
    """A data set or benchmark on disk is missing, broken, or of another format."""


class ModelError(Error):
    """A model file is missing, broken, or does not match its description."""


class RecipeError(Error):
    """A training recipe that cannot be run; the message names the recipe, and the field or override."""


class WriteError(Error):
    """A file or folder cannot be written: the disk is full or read-only, or a file is where a folder should be."""


class LockedError(Error):
    """Another process is writing a file or folder."""


class NonFiniteLossError(Error):
    """Training stopped because the loss is not a finite number."""


class MissingExtraError(Error):
    """An optional package is missing; the message names the extra to install."""


def check_kind(kind: str, **arguments: object) -> None:
    """Refuse arguments of a function, by name, that are not of a kind; None always is."""
    for name, value in arguments.items():
        if value is not None and not _KINDS[kind](value):
            raise Error(f"{name} must be {kind}, not {value if isinstance(value, Real) else type(value).__name__}")


def documentation_page(name: str) -> str:
    """Where a message sends its readers for more: the address of a page, or its name while the site has no address.

    Names are below ``docs/``, without suffix. The site's address is the ``Documentation`` of the package's metadata,
    from ``project_urls`` in ``setup.cfg``. An installed package has no folder ``docs/`` beside it.
    """
    from importlib import metadata  # slow to import, and seldom needed

    try:
        urls = metadata.metadata("facerts").get_all("Project-URL") or []
    except metadata.PackageNotFoundError:
        urls = []
    for label, _, address in (url.partition(", ") for url in urls):
        if label == "Documentation":
            return f"{address.rstrip('/')}/{name}/"
    return f"the page {name!r} of the documentation"


def install_hint(extra: str) -> str:
    """The end of an error message about a missing package: how to install the extra that has it."""
    return "in your clone of facerts, pip install " + _INSTALLED.get(extra, f"'.[{extra}]'")


@contextmanager
def importing(purpose: str, extra: str) -> Iterator[None]:
    """Turn an ImportError of the block into an error that says what needs the package, and how to install it."""
    try:
        yield
    except ImportError as error:
        raise MissingExtraError(f"{purpose}: {install_hint(extra)}") from error


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of an error message about an unknown name: the closest known name, or an empty string."""
    matches = difflib.get_close_matches(name, list(known), n=1)
    return f", did you mean {matches[0]!r}?" if matches else ""


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its class name if the message is empty."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def problems_text(
    problems: Sequence[Mapping[str, Any]], text_of: Callable[[Mapping[str, Any]], str] | None = None
) -> str:
    """The first problems that pydantic found, in one sentence, without the values; ``text_of`` words them."""
    texts = list(map(text_of or problem_text, problems[:MAX_PROBLEMS]))
    if len(problems) > MAX_PROBLEMS:
        texts.append(f"and {len(problems) - MAX_PROBLEMS:,} more")
    return "; ".join(texts)


def field_name(problem: Mapping[str, Any]) -> str:
    """The dotted name of the field with a problem, cut where it is endless."""
    field = ".".join(map(str, problem["loc"]))
    return field if len(field) <= MAX_FIELD else f"{field[:MAX_FIELD]}…"


def problem_text(problem: Mapping[str, Any]) -> str:
    """The dotted name of the field, and what is wrong with it; a problem of the whole has no field."""
    field = field_name(problem)
    reason = problem["msg"].removeprefix("Value error, ")
    return f"{field}: {reason}" if field else reason
