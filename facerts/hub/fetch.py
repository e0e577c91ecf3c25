"""Models that are not shipped but can be downloaded, when they are first needed or by ``facerts models pull``.

``fetch.json`` lists the URLs, size and SHA-256 of each. Downloads are stored in ``$FACERTS_CACHE``, by default the
user's cache folder, and are also found in ``$FACERTS_MODELS``. Nothing is downloaded if ``$FACERTS_OFFLINE`` is set.
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

from facerts.errors import MissingModelError, ModelError, WriteError, did_you_mean
from facerts.hub.registry import ListedModel, StrictModel, read_list
from facerts.io.console import say
from facerts.io.files import atomic_write
from facerts.io.progress import progress_bar
from facerts.version import __version__

# Encrypted, so that nobody on the way can see the request or change the model.
SCHEME = "https"
DOWNLOADS = Path(__file__).with_suffix(".json")
OFFLINE_VARIABLE = "FACERTS_OFFLINE"
BLOCK = 1 << 16
TIMEOUT_S = 30.0
ATTEMPTS = 3
PAUSE_S = 1.0
# HTTP status codes of temporary failures.
TEMPORARY = frozenset({408, 425, 429, 500, 502, 503, 504})


class DownloadableModel(ListedModel):
    """A model that can be downloaded."""

    urls: tuple[Annotated[str, StringConstraints(pattern=rf"^{SCHEME}://\S+$")], ...] = Field(min_length=1)


class DownloadList(StrictModel):
    """The list of models that can be downloaded."""

    schema_: Literal["facerts.pull/1"] = Field(alias="schema")
    models: tuple[DownloadableModel, ...]


class _FetchError(ModelError):
    """A download failed."""

    def __init__(self, reason: str, *, temporary: bool) -> None:
        super().__init__(reason)
        self.temporary = temporary


def downloadable_models() -> tuple[DownloadableModel, ...]:
    """All models that can be downloaded, whether they already are or not."""
    return read_list(DOWNLOADS, DownloadList, of="list of downloadable models").models


def cache_folder() -> Path:
    """The folder for downloaded models: ``$FACERTS_CACHE``, or the platform's cache folder."""
    if folder := os.environ.get("FACERTS_CACHE"):
        return Path(folder)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "facerts"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "facerts"


def locate(model: DownloadableModel) -> Path | None:
    """The model's file, after checking its hash; None if it is not on this machine."""
    return next((path for path in _candidates(model) if path.is_file() and not model.mismatch(path)), None)


def find_downloaded(name: str) -> Path:
    """The file of a downloaded model, after checking its hash.

    Raises:
        ModelError: there is no model of that name, or it has not been downloaded.
    """
    model = _named(name)
    path = locate(model)
    if path is None:
        raise ModelError(
            f"the model {name} is not downloaded: run facerts models pull {name}{_other_files(model)}"
        )
    return path


def find_or_download(name: str, *, otherwise: str = "") -> Path:
    """The file of a model, after checking its hash; downloaded now if it is not on this machine.

    Args:
        otherwise: appended to the advice in the error if the model cannot be downloaded.

    Raises:
        ModelError: there is no model of that name.
        MissingModelError: the model is not on this machine, and the download failed or is not allowed.
    """
    model = _named(name)
    path = locate(model)
    if path is not None:
        return path
    try:
        return _fetch(model, cache_folder() / model.file, progress=False)
    except (ModelError, WriteError) as error:
        raise MissingModelError(f"{error}{otherwise}{_other_files(model)}") from error


def pull(name: str, source: str | Path | None = None) -> Path:
    """Download a model unless it is in the cache already; it is stored only if its hash matches.

    Args:
        source: a copy of the file to use instead, such as one downloaded on another machine.

    Returns:
        The file in the cache.

    Raises:
        ModelError: there is no model of that name; the download failed (the message says how to install the file by
            hand); or the file is not the expected one.
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


def _fetch(model: DownloadableModel, target: Path, *, progress: bool = True) -> Path:
    """Download from the first URL that works, and say so on standard error."""
    if os.environ.get(OFFLINE_VARIABLE, "") not in ("", "0"):
        raise ModelError(
            f"{model.name} is not on this machine, and --offline or {OFFLINE_VARIABLE} forbids downloading it. Run "
            f"facerts models pull {model.name} without them, or on another machine: facerts models pull {model.name} "
            f"--from FILE then takes the file {model.file} from there"
        )
    problems = []
    for url in model.urls:
        size = f"{model.bytes / 1e6:.1f} MB"
        say(f"downloading {model.name} ({size}) from {url}")
        for attempt in range(ATTEMPTS):
            time.sleep(attempt * PAUSE_S)
            try:
                return _store(_download(url, model, progress=progress), model, url, target)
            except _FetchError as error:
                problem = error
            if not problem.temporary:
                break
        problems.append(str(problem))
    raise ModelError(
        f"{model.name} could not be downloaded ({'; '.join(problems)}). Download it on a machine with network access "
        f"({model.bytes:,} bytes, SHA-256 {model.sha256}); then facerts models pull {model.name} --from FILE stores it "
        f"at {target}"
    )


def _candidates(model: DownloadableModel) -> list[Path]:
    folder = os.environ.get("FACERTS_MODELS")
    return [cache_folder() / model.file, *([Path(folder) / model.file] if folder else [])]


def _other_files(model: DownloadableModel) -> str:
    """The end of an error message: files of the model's name that are not the model."""
    return "".join(f"; {path}: {model.mismatch(path)}" for path in _candidates(model) if path.is_file())


def _named(name: str) -> DownloadableModel:
    models = {model.name: model for model in downloadable_models()}
    if name not in models:
        raise ModelError(
            f"no downloadable model {name!r}{did_you_mean(name, models)}; available: {', '.join(models)}"
        )
    return models[name]


class _Redirects(HTTPRedirectHandler):
    """Follows redirects to https URLs only."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        if urlsplit(newurl).scheme != SCHEME:
            raise _FetchError(
                f"{req.full_url}: redirects to {newurl}, which is not {SCHEME}", temporary=False
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _download(url: str, model: DownloadableModel, *, progress: bool) -> Iterator[bytes]:
    request = Request(url, headers={"User-Agent": f"facerts/{__version__}"})
    try:
        with (
            build_opener(_Redirects).open(request, timeout=TIMEOUT_S) as response,
            progress_bar(shown=progress) as bar,
        ):
            task = bar.add_task(model.file, total=model.bytes, unit="bytes")
            while block := response.read(BLOCK):
                bar.advance(task, len(block))
                yield block
    except HTTPError as error:
        raise _FetchError(f"{url}: {error}", temporary=error.code in TEMPORARY) from error
    except (OSError, HTTPException) as error:
        raise _FetchError(f"{url}: {getattr(error, 'reason', error)}", temporary=True) from error


def _read(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            while block := file.read(BLOCK):
                yield block
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror})") from error


def _store(blocks: Iterable[bytes], model: DownloadableModel, origin: str, target: Path) -> Path:
    """Store a model's file if its size and hash match.

    Raises:
        _FetchError: they do not match; temporary if the file is incomplete.
    """
    digest, size = hashlib.sha256(), 0
    with atomic_write(target, advice="set FACERTS_CACHE to a writable folder") as file:
        for block in blocks:
            size += len(block)
            if size > model.bytes:
                break
            digest.update(block)
            file.write(block)
        if size != model.bytes:
            actual = f"more than {model.bytes:,} bytes" if size > model.bytes else f"{size:,} bytes"
            raise _FetchError(
                f"{origin}: {actual}, but {model.name} has {model.bytes:,}", temporary=size < model.bytes
            )
        if wrong := model.hash_mismatch(digest.hexdigest()):
            raise _FetchError(f"{origin}: {wrong}", temporary=False)
    return target
