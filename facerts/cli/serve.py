"""``facerts serve``."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from typing import Annotated

import typer

from facerts.cli.output import warn
from facerts.cli.settings import CommandSettings
from facerts.cli.shared_options import ScorerOptions
from facerts.io.console import printable
from facerts.serving.settings import is_loopback

TOKEN_VARIABLE = "FACERTS_TOKEN"


def serve(
    *,
    models: ScorerOptions,
    host: str = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535)] = 8000,
    token: Annotated[str | None, typer.Option(envvar=TOKEN_VARIABLE)] = None,
    gallery: Annotated[str | None, typer.Option(metavar="GALLERY")] = None,
    video: Annotated[bool, typer.Option("--video")] = False,
    settings: CommandSettings,
) -> None:
    """Serve scoring over HTTP, with a web page for trying it out.

    Limits are settings: facerts config list, those that begin with serve.

    Example: facerts serve --port 8000

    Args:
        host: Address to listen on; the default is reachable only from this machine.
        port: Port to listen on; 0 for any free port.
        token: Bearer token that requests must carry; without one the service is open to everybody.
        gallery: Gallery for /v1/search, written by facerts gallery build with the same model: a file, which is read
            once, at the start, or the address of a database, in which changes are seen at once.
        video: Also accept video clips, at /v1/video.
    """
    from facerts.serving import build, listen
    from facerts.serving import serve as run_server

    # Typer treats an empty variable as unset; whoever sets one means to protect the service.
    token = os.environ.get(TOKEN_VARIABLE) if token is None else token
    limits = replace(
        settings.serve,
        token=token,
        keep=None if settings.keep == "none" else settings.keep,
        min_quality=settings.min_quality,
        fmr=settings.fmr,
        gallery=gallery,
        video=video,
        allowed_hosts=[*settings.serve.allowed_hosts, host],
    )
    app = build(models.open(settings, batch_size=8), limits)
    if token is None and not is_loopback(host):
        warn(f"anyone who can reach {host} can use this service; protect it with a token ({TOKEN_VARIABLE})")
    listener = listen(host, port)
    handler = logging.StreamHandler()
    handler.setFormatter(PrintableFormatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(handlers=[handler])
    logging.getLogger("facerts").setLevel(logging.INFO)
    run_server(app, listener, limits)


class PrintableFormatter(logging.Formatter):
    """Records and tracebacks with control characters as escapes."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record), keep="\n")
