"""Models that do not ship but can be fetched: where they are, what they must be, and where they lie once they are here.

``pull.json`` has the addresses, the size and the SHA-256 of each. They are kept in the folder ``$FACERTS_CACHE``, by
default the user's own for such files, and are also found in ``$FACERTS_MODELS``, by default ``../shared/models``.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Iterable, Iterator
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from typing import IO, Annotated, Literal
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from pydantic import Field, StringConstraints

from facerts.errors import ModelError, WriteError, did_you_mean
from facerts.hub.listing import ListedModel, StrictModel, read_list
from facerts.io.files import atomic_write
from facerts.io.progress import progress_bar
from facerts.version import __version__

# Neither who asks for a model nor what comes is for others on the way.
SCHEME = "https"
REGISTRY = Path(__file__).with_suffix(".json")
BLOCK = 1 << 16
TIMEOUT_S = 30.0
ATTEMPTS = 3
PAUSE_S = 1.0
# Answers that may be others a moment later.
PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})


class DownloadableModel(ListedModel):
    """One model.

    Attributes:
        urls: of the file, https, in the order in which they are tried.
    """

    urls: tuple[Annotated[str, StringConstraints(pattern=rf"^{SCHEME}://\S+$")], ...] = Field(min_length=1)


class DownloadList(StrictModel):
    """All of them."""

    schema_: Literal["facerts.pull/1"] = Field(alias="schema")
    models: tuple[DownloadableModel, ...]


class _FetchError(ModelError):
    """An address did not give the file.

    Attributes:
        passing: whether another attempt may do better.
    """

    def __init__(self, reason: str, *, passing: bool) -> None:
        super().__init__(reason)
        self.passing = passing


def downloadable_models() -> tuple[DownloadableModel, ...]:
    """Those that can be fetched, here or not."""
    return read_list(REGISTRY, DownloadList, of="list of the models to fetch").models


def cache_folder() -> Path:
    """Where they are put: ``$FACERTS_CACHE``, or the folder that the platform has for it."""
    if told := os.environ.get("FACERTS_CACHE"):
        return Path(told)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "facerts" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "facerts"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "facerts"


def locate(model: DownloadableModel) -> Path | None:
    """The model's file, whose hash was checked, or None where it is not here."""
    return next((path for path in _places(model) if path.is_file() and not model.mismatch(path)), None)


def find_downloaded(name: str, *, otherwise: str = "") -> Path:
    """The file of a model, whose hash was checked.

    Args:
        name: of the model.
        otherwise: what else can be done where it is not here, for the error.

    Raises:
        ModelError: there is no model of that name, or it is not here.
    """
    model = _named(name)
    found = locate(model)
    if found is not None:
        return found
    wrong = [f"; {path}: {model.mismatch(path)}" for path in _places(model) if path.is_file()]
    raise ModelError(
        f"the model {name} is not here: facerts models pull {name} fetches it{otherwise}{''.join(wrong)}"
    )


def pull(name: str, source: str | Path | None = None) -> Path:
    """Fetch a model, unless it is in the cache already; it appears there only if its hash is right.

    Args:
        name: of the model.
        source: the file, where it was carried over from another machine.

    Raises:
        ModelError: there is no model of that name; it could not be fetched, and the sentence says how to carry it
            over; or what came is another file.
    """
    model = _named(name)
    target = cache_folder() / model.file
    if target.is_file() and not model.mismatch(target):
        return target
    try:
        if source is not None:
            return _store(_read(Path(source)), model, str(source), target)
        return _fetch(model, target)
    except WriteError as error:
        raise ModelError(str(error)) from error


def _fetch(model: DownloadableModel, target: Path) -> Path:
    """From the first of its addresses that gives it."""
    problems = []
    for url in model.urls:
        for attempt in range(ATTEMPTS):
            time.sleep(attempt * PAUSE_S)
            try:
                return _store(_download(url, model), model, url, target)
            except _FetchError as error:
                problem = error
            if not problem.passing:
                break
        problems.append(str(problem))
    raise ModelError(
        f"{model.name} could not be fetched ({'; '.join(problems)}). Fetch it where there is a network "
        f"({model.bytes:,} bytes, SHA-256 {model.sha256}); then facerts models pull {model.name} --from FILE puts it "
        f"at {target}"
    )


def _places(model: DownloadableModel) -> list[Path]:
    return [
        cache_folder() / model.file,
        Path(os.environ.get("FACERTS_MODELS", "../shared/models")) / model.file,
    ]


def _named(name: str) -> DownloadableModel:
    models = {model.name: model for model in downloadable_models()}
    if name not in models:
        raise ModelError(
            f"no model {name!r} to fetch{did_you_mean(name, models)}; there are {', '.join(models)}"
        )
    return models[name]


class _Redirects(HTTPRedirectHandler):
    """Follows an address to others of its kind alone."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        if urlsplit(newurl).scheme != SCHEME:
            raise _FetchError(f"{req.full_url}: leads on to {newurl}, which is not {SCHEME}", passing=False)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _download(url: str, model: DownloadableModel) -> Iterator[bytes]:
    request = Request(url, headers={"User-Agent": f"facerts/{__version__}"})
    try:
        with build_opener(_Redirects).open(request, timeout=TIMEOUT_S) as response, progress_bar() as bar:
            task = bar.add_task(model.file, total=model.bytes, unit="bytes")
            while block := response.read(BLOCK):
                bar.advance(task, len(block))
                yield block
    except HTTPError as error:
        raise _FetchError(f"{url}: {error}", passing=error.code in PASSING) from error
    except (OSError, HTTPException) as error:
        raise _FetchError(f"{url}: {getattr(error, 'reason', error)}", passing=True) from error


def _read(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            while block := file.read(BLOCK):
                yield block
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror})") from error


def _store(blocks: Iterable[bytes], model: DownloadableModel, origin: str, target: Path) -> Path:
    """Write a file if it is the one that was meant.

    Raises:
        _FetchError: it is not; passing where its end is missing.
    """
    digest, size = hashlib.sha256(), 0
    with atomic_write(target, advice="set FACERTS_CACHE to a folder that can") as file:
        for block in blocks:
            size += len(block)
            if size > model.bytes:
                break
            digest.update(block)
            file.write(block)
        if size != model.bytes:
            found = f"more than {model.bytes:,} bytes" if size > model.bytes else f"{size:,} bytes"
            raise _FetchError(
                f"{origin}: {found}, and {model.name} has {model.bytes:,}", passing=size < model.bytes
            )
        if wrong := model.hash_mismatch(digest.hexdigest()):
            raise _FetchError(f"{origin}: {wrong}", passing=False)
    return target
