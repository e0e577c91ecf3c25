"""The service, listening."""

from __future__ import annotations

import logging
import math
import os
import socket
from functools import partial
from typing import TYPE_CHECKING

from facerts.errors import Error, MissingExtraError
from facerts.scoring import Scorer
from facerts.serve.settings import Settings

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import ASGIApp

LOG = logging.getLogger("facerts.serve")
# Connections that wait to be accepted.
BACKLOG = 512
# Seconds beyond the timeout in which requests in flight are answered when the service ends.
GRACE = 5


def build(scorer: Scorer, settings: Settings) -> ASGIApp:
    """The service as an ASGI application; see ``facerts.serve.app.create_app``.

    Raises:
        MissingExtraError: a package of the extra is not installed.

    Examples:
        >>> import facerts
        >>> app = build(facerts.load(), Settings(keep=0.95))  # for uvicorn or any other ASGI server
        >>> callable(app)
        True
    """
    try:
        from facerts.serve.app import create_app
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"serving needs {error.name}, which is not installed: pip install 'facerts[serve]'"
        ) from error
    return create_app(scorer, settings)


def listen(host: str, port: int) -> socket.socket:
    """A listening socket.

    Args:
        host: name or address.
        port: 0 for any that is free.

    Raises:
        Error: the address cannot be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Only where the protocol is named does asyncio send small answers at once, and not after 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
        return listener
    except (OSError, OverflowError) as error:
        listener.close()
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise Error(
            f"cannot listen on {host}, port {port} ({why}); choose others with --host and --port"
        ) from error


def make_server(app: ASGIApp, settings: Settings) -> uvicorn.Server:
    """What answers requests; told to end, it still answers those in flight.

    Raises:
        MissingExtraError: uvicorn is not installed.
    """
    try:
        import uvicorn

        from facerts.serve.connection import Connection
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            "serving needs uvicorn, which is not installed: pip install 'facerts[serve]'"
        ) from error
    config = uvicorn.Config(
        app,
        # The same parser whatever else is installed: its limits are tested.
        http=partial(Connection, settings=settings),  # type: ignore[arg-type]
        ws="none",
        lifespan="on",
        log_config=None,
        # It would log what clients write into paths.
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=math.ceil(settings.timeout) + GRACE,
    )
    return uvicorn.Server(config)


def serve(app: ASGIApp, listener: socket.socket, settings: Settings) -> None:
    """Answer requests until the process is told to end by a signal.

    Raises:
        MissingExtraError: uvicorn is not installed.
    """
    server = make_server(app, settings)
    host, port = listener.getsockname()[:2]
    LOG.info("listening on http://%s:%d/", f"[{host}]" if ":" in host else host, port)
    server.run(sockets=[listener])
