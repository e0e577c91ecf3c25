"""``facerts serve``."""

from __future__ import annotations

import ipaddress
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from facerts.cli.output import warn
from facerts.cli.shared_options import ScorerOptions
from facerts.errors import Error
from facerts.io.console import printable
from facerts.io.files import read_file

TOKEN_VARIABLE = "FACERTS_TOKEN"


@dataclass(frozen=True)
class ServiceOptions(ScorerOptions):
    """The model and detector of a service, whose requests share batches.

    Attributes:
        batch_size: Maximum number of crops in a batch, which requests share; 1 gives each crop a batch of its own.
    """

    batch_size: Annotated[int | None, typer.Option(min=1)] = 8


def serve(
    *,
    options: ServiceOptions,
    host: str = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535)] = 8000,
    token: Annotated[str | None, typer.Option(envvar=TOKEN_VARIABLE)] = None,
    token_file: Path | None = None,
    keep: float | None = None,
    min_quality: float | None = None,
    fmr: float | None = None,
    gallery: Annotated[str | None, typer.Option(metavar="GALLERY")] = None,
    fpir: float = 0.01,
    max_bytes: Annotated[int, typer.Option(min=1)] = 32 << 20,
    max_pixels: Annotated[int, typer.Option(min=1)] = 32_000_000,
    max_faces: Annotated[int, typer.Option(min=1)] = 100,
    max_images: Annotated[int, typer.Option(min=1)] = 16,
    video: Annotated[bool, typer.Option("--video")] = False,
    max_seconds: float = 60.0,
    queue: Annotated[int, typer.Option(min=1)] = 64,
    timeout: float = 30.0,
    header_timeout: float = 10.0,
    allowed_host: Annotated[list[str] | None, typer.Option(metavar="NAME")] = None,
    allowed_origin: Annotated[list[str] | None, typer.Option(metavar="ORIGIN")] = None,
    batch_wait_ms: Annotated[float, typer.Option(min=0)] = 0.0,
) -> None:
    """Serve scoring over HTTP, with a web page for trying it out.

    Example: facerts serve --detector yunet.onnx --port 8000

    Args:
        host: Address to listen on; the default is reachable only from this machine.
        port: Port to listen on; 0 for any free port.
        token: Bearer token that requests must carry. Other users of this machine can see command lines: prefer the
            variable or --token-file.
        token_file: File whose first line is the token.
        keep: Accept faces above the model's threshold that keeps this fraction of its calibration faces, unless a
            request sets a threshold.
        min_quality: Accept faces with at least this quality, unless a request sets a threshold.
        fmr: False match rate of /v1/verify, unless a request sets one; by default 0.001. One of those that the model
            was calibrated for.
        gallery: Gallery for /v1/search, written by facerts gallery build with the same model: a file, which is read
            once, at the start, or the address of a database, in which changes are seen at once.
        fpir: False positive identification rate of /v1/search, unless a request sets one: the share of searches for
            unknown people that may find somebody.
        max_bytes: Maximum size of a request body, in bytes.
        max_pixels: Maximum number of pixels of an image.
        max_faces: Score at most this many faces per image, largest first.
        max_images: Maximum number of images per request.
        video: Also take clips, at /v1/video; needs facerts[video].
        max_seconds: Maximum duration of a clip, in seconds.
        queue: Maximum number of requests in progress; further requests get 503.
        timeout: Seconds for a request's body to arrive, again to compute the response, and again for it to be read.
        header_timeout: Seconds for a request's headers to arrive.
        allowed_host: Another host name or address of the service, besides localhost, --host and the address that a
            request arrives at; may be repeated. * for any.
        allowed_origin: Another origin whose pages may send requests, e.g. https://faces.example, besides the service's
            own; may be repeated. * for any.
        batch_wait_ms: Wait this many milliseconds for a batch that is not full yet.
    """
    from facerts.serving import Settings, build, listen
    from facerts.serving import serve as run_server

    settings = Settings(
        token=_token(token, token_file),
        keep=keep,
        min_quality=min_quality,
        fmr=fmr,
        gallery=gallery,
        fpir=fpir,
        max_bytes=max_bytes,
        max_pixels=max_pixels,
        max_faces=max_faces,
        max_images=max_images,
        video=video,
        max_seconds=max_seconds,
        queue=queue,
        timeout=timeout,
        header_timeout=header_timeout,
        batch_wait=batch_wait_ms / 1000,
        allowed_hosts=(*(allowed_host or ()), host),
        allowed_origins=tuple(allowed_origin or ()),
    )
    app = build(options.open(), settings)
    if settings.token is None and not _is_loopback(host):
        warn(f"anyone who can reach {host} can use this service; protect it with a token ({TOKEN_VARIABLE})")
    listener = listen(host, port)
    handler = logging.StreamHandler()
    handler.setFormatter(PrintableFormatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(handlers=[handler])
    logging.getLogger("facerts").setLevel(logging.INFO)
    run_server(app, listener, settings)


class PrintableFormatter(logging.Formatter):
    """Records and tracebacks with control characters as escapes."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record), keep="\n")


def _token(token: str | None, file: Path | None) -> str | None:
    if file is None:
        # Typer treats an empty variable as unset; whoever sets one means to protect the service.
        return os.environ.get(TOKEN_VARIABLE) if token is None else token
    if token is not None:
        raise typer.BadParameter(
            f"--token-file and --token (or {TOKEN_VARIABLE}) both give a token; use only one"
        )
    try:
        lines = read_file(file).decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise Error(f"{file}: cannot read the token ({error})") from error
    return lines[0].strip() if lines else ""


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
