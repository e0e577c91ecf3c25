"""``facerts serve``."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, replace
from typing import Annotated

import typer

from facerts.cli.output import warn
from facerts.cli.shared_options import ScorerOptions
from facerts.io.console import printable
from facerts.serving.settings import Settings, is_loopback

TOKEN_VARIABLE = "FACERTS_TOKEN"


@dataclass(frozen=True)
class ServiceOptions(ScorerOptions):
    """The model and detector of a service, whose requests share batches.

    Attributes:
        batch_size: Maximum number of crops in a batch, which requests share; 1 gives each crop a batch of its own.
    """

    batch_size: Annotated[int | None, typer.Option(min=1)] = 8


@dataclass(frozen=True)
class ServiceSettings(Settings):
    """Settings, where the command line writes them in another way."""

    token: Annotated[str | None, typer.Option(envvar=TOKEN_VARIABLE)] = None
    gallery: Annotated[str | None, typer.Option(metavar="GALLERY")] = None
    video: Annotated[bool, typer.Option("--video")] = False
    allowed_hosts: Annotated[list[str], typer.Option("--allowed-host", metavar="NAME")] = ()  # type: ignore[assignment]
    allowed_origins: Annotated[list[str], typer.Option("--allowed-origin", metavar="ORIGIN")] = ()  # type: ignore[assignment]


def serve(
    *,
    options: ServiceOptions,
    host: str = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535)] = 8000,
    settings: ServiceSettings,
) -> None:
    """Serve scoring over HTTP, with a web page for trying it out.

    Example: facerts serve --port 8000

    Args:
        host: Address to listen on; the default is reachable only from this machine.
        port: Port to listen on; 0 for any free port.
    """
    from facerts.serving import build, listen
    from facerts.serving import serve as run_server

    # Typer treats an empty variable as unset; whoever sets one means to protect the service.
    token = os.environ.get(TOKEN_VARIABLE) if settings.token is None else settings.token
    settings = replace(settings, token=token, allowed_hosts=[*settings.allowed_hosts, host])
    app = build(options.open(), settings)
    if token is None and not is_loopback(host):
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
