"""Downloads of models of the catalog.

Files are stored in ``$FACERTS_CACHE``, by default the user's cache folder, and are also found in ``$FACERTS_MODELS``
and in the package.
Nothing is downloaded if ``$FACERTS_OFFLINE`` is set. What an interrupted download has received is kept beside the file
(``.FILE.part``), and the next one continues there. A file gets its name when its SHA-256 is the catalog's, and is not
opened before.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException, HTTPMessage, HTTPResponse
from pathlib import Path
from typing import IO
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from facerts.errors import LockedError, ModelError, WriteError
from facerts.hub.catalog import SCHEME, CatalogModel, in_catalog
from facerts.io.cache import ADVICE, cache_folder
from facerts.io.console import say
from facerts.io.files import locked, make_folder, refuse_link, regular, sync_names, writing
from facerts.io.progress import progress_bar
from facerts.version import __version__

OFFLINE_VARIABLE = "FACERTS_OFFLINE"
BLOCK = 1 << 16
TIMEOUT_S = 30.0
ATTEMPTS = 3
PAUSE_S = 1.0
# HTTP status codes of temporary failures.
TEMPORARY = frozenset({408, 425, 429, 500, 502, 503, 504})
PARTIAL, UNSATISFIABLE = 206, 416


class _FetchError(ModelError):
    """A download failed: ``temporary``, another attempt may succeed; ``spoilt``, what came does not begin the file."""

    def __init__(self, reason: str, *, temporary: bool, spoilt: bool = False) -> None:
        super().__init__(reason)
        self.temporary, self.spoilt = temporary, spoilt


def is_offline() -> bool:
    """Whether downloads are forbidden."""
    return os.environ.get(OFFLINE_VARIABLE, "") not in ("", "0")


def locate(model: CatalogModel) -> Path | None:
    """The model's file, after checking its hash; None if it is not on this machine."""
    return next((path for path in candidates(model) if path.is_file() and not model.mismatch(path)), None)


def find_file(name: str) -> Path:
    """The file of a model of the catalog, after checking its hash."""
    model = in_catalog(name)
    path = locate(model)
    if path is None:
        # Files of its name that are something else.
        others = "".join(f"; {path}: {model.mismatch(path)}" for path in candidates(model) if path.is_file())
        advice = "reinstall facerts" if model.packaged.is_file() else f"run facerts models pull {name}"
        raise ModelError(f"the model {name} is not on this machine: {advice}{others}")
    return path


def fetch(model: CatalogModel, source: str | Path | None = None, mirror: str | None = None) -> Path:
    """The file of a model: of this machine, or downloaded; it is stored only if its hash matches.

    ``source`` is a copy of the file to use instead, such as one downloaded on another machine; ``mirror`` an address
    below which it is looked for first, also by http, because the hash is checked. Returns the file in the cache or in
    ``$FACERTS_MODELS``.
    """
    try:
        if source is None:
            return locate(model) or _fetch(model, mirror)
        path, part = downloaded_file(model), _part(downloaded_file(model))
        with alone(path):
            try:
                with writing(part, advice=ADVICE), part.open("wb") as file:
                    for block in _read(Path(source)):
                        file.write(block)
                        _check_size(model, file.tell(), str(source))
                return _finish(model, str(source), path)
            finally:
                part.unlink(missing_ok=True)
    except WriteError as error:
        raise ModelError(str(error)) from error


def remove(model: CatalogModel) -> list[Path]:
    """Delete what was downloaded of a model, and return it; files in ``$FACERTS_MODELS`` stay."""
    target = downloaded_file(model)
    found = []
    if target.parent.is_dir():
        with alone(target):
            found = [path for path in (target, _part(target)) if path.is_file()]
            for path in found:
                with writing(path):
                    path.unlink()
    return found


def _fetch(model: CatalogModel, mirror: str | None = None) -> Path:
    """Download from the first address that works, and say so on standard error."""
    by_hand = f"facerts models pull {model.name} --from FILE"
    if is_offline():
        raise ModelError(
            f"{model.name} is not on this machine, and {OFFLINE_VARIABLE} forbids downloading it. Run "
            f"facerts models pull {model.name} without it, or on another machine: {by_hand} then takes the file "
            f"{model.file} from there"
        )
    urls = list(model.urls)
    if mirror is not None:
        if urlsplit(mirror).scheme not in (SCHEME, "http"):
            raise ModelError(f"{mirror}: a mirror is an address that begins with https:// or http://")
        urls.insert(0, f"{mirror.rstrip('/')}/{quote(model.file)}")
    if not urls:
        raise ModelError(
            f"no address is known for {model.file} ({model.source}); if you have the file (SHA-256 {model.sha256}), "
            f"{by_hand} takes it"
        )
    path = downloaded_file(model)
    problems = []
    with alone(path):
        if path.is_file() and not model.mismatch(path):
            return path
        for url in urls:
            say(f"downloading {model.name} ({model.size}) from {url}")
            for attempt in range(ATTEMPTS):
                time.sleep(attempt * PAUSE_S)
                try:
                    continued = _download(url, model, _part(path))
                    return _finish(model, url, path, continued=continued)
                except _FetchError as error:
                    problem = error
                if problem.spoilt:
                    _part(path).unlink(missing_ok=True)
                if not problem.temporary:
                    break
            problems.append(str(problem))
    raise ModelError(
        f"{model.name} could not be downloaded ({'; '.join(problems)}). Download it on a machine with network access "
        f"({model.length}, SHA-256 {model.sha256}); then {by_hand} stores it at {path}"
    )


@contextmanager
def alone(path: Path, doing: str = "downloads") -> Iterator[None]:
    """Wait until no other process writes a file of the cache, and keep others from it until the block ends.

    Args:
        doing: what the other process does with it, for the message.
    """
    with writing(path, advice=ADVICE):
        make_folder(path.parent)
    said = False
    while True:
        try:
            with locked(path):
                refuse_link(_part(path))
                yield
                return
        except LockedError:
            if not said:
                say(f"waiting for another process, which {doing} {path.name}")
            said = True
            time.sleep(PAUSE_S)


def downloaded_file(model: CatalogModel) -> Path:
    """Where a downloaded file of the cache is, or would be."""
    return cache_folder() / model.file


def _part(path: Path) -> Path:
    """Where an unfinished download of a file lies."""
    return path.with_name(f".{path.name}.part")


def candidates(model: CatalogModel) -> list[Path]:
    """Where the file of a model may be on this machine, in order."""
    folder = os.environ.get("FACERTS_MODELS")
    return [downloaded_file(model), *([Path(folder) / model.file] if folder else []), model.packaged]


class _Redirects(HTTPRedirectHandler):
    """Follows redirects to https addresses only, and those of an http mirror anywhere."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        if urlsplit(newurl).scheme not in (SCHEME, urlsplit(req.full_url).scheme):
            raise _FetchError(f"{req.full_url}: redirects to {newurl}, which is not {SCHEME}", temporary=False)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _download(url: str, model: CatalogModel, part: Path) -> bool:
    received = part.stat().st_size if part.is_file() else 0
    request = Request(url, headers={"User-Agent": f"facerts/{__version__}", "Accept-Encoding": "identity"})
    if received:
        request.add_header("Range", f"bytes={received}-")
    try:
        with build_opener(_Redirects).open(request, timeout=TIMEOUT_S) as response:
            start = f"bytes {received}-"
            continues: bool = response.status == PARTIAL and response.headers.get("Content-Range", "").startswith(start)
            if response.status == PARTIAL and not continues:
                raise _FetchError(
                    f"{url}: sent another part than bytes {received:,} and on", temporary=True, spoilt=True
                )
            with (
                writing(part, advice=ADVICE),
                part.open("ab" if continues else "wb") as file,
                progress_bar() as bar,
            ):
                task = bar.add_task(model.file, total=model.bytes, unit="bytes")
                bar.advance(task, file.tell())
                for block in _blocks(response, url):
                    file.write(block)
                    bar.advance(task, len(block))
                    _check_size(model, file.tell(), url)
                file.flush()
                os.fsync(file.fileno())
            if response.length:
                raise _FetchError(f"{url}: ended {response.length:,} bytes too early", temporary=True)
            return continues
    except HTTPError as error:
        # The server says so of a range that begins at or beyond the end of its file.
        spoilt = error.code == UNSATISFIABLE and received > 0
        raise _FetchError(f"{url}: {error}", temporary=spoilt or error.code in TEMPORARY, spoilt=spoilt) from error
    except (OSError, HTTPException) as error:
        raise _FetchError(f"{url}: {getattr(error, 'reason', error)}", temporary=True) from error


def _blocks(response: HTTPResponse, url: str) -> Iterator[bytes]:
    while True:
        try:
            block = response.read(BLOCK)
        except (OSError, HTTPException) as error:
            raise _FetchError(f"{url}: {getattr(error, 'reason', error)}", temporary=True) from error
        if not block:
            return
        yield block


def _read(path: Path) -> Iterator[bytes]:
    try:
        with open(path, "rb", opener=regular) as file:
            while block := file.read(BLOCK):
                yield block
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror})") from error


def _check_size(model: CatalogModel, size: int, origin: str) -> None:
    """Check that what was received so far is not more than the file."""
    if size > model.most_bytes:
        raise _FetchError(
            f"{origin}: more than {model.most_bytes:,} bytes; {model.name} has {model.length}",
            temporary=False,
            spoilt=True,
        )


def _finish(model: CatalogModel, origin: str, path: Path, *, continued: bool = False) -> Path:
    """Give the received file its name if its size and hash are right."""
    part = _part(path)
    size = part.stat().st_size
    if model.bytes is not None and size < model.bytes:
        raise _FetchError(f"{origin}: {size:,} bytes, but {model.name} has {model.bytes:,}", temporary=True)
    if wrong := model.mismatch(part):
        raise _FetchError(f"{origin}: {wrong}", temporary=continued, spoilt=True)
    with writing(path, advice=ADVICE):
        os.replace(part, path)
        sync_names([path])
    return path
