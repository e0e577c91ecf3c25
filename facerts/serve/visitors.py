"""Who is let in: requests that name this service, and browsers' posts from its own page.

A page of another site can have its name resolve to this machine (DNS rebinding) and then reads the answers as its own:
its requests name another host. And any page can post here without reading the answer: its posts name another origin.
"""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING

from facerts.serve.problems import problem
from facerts.serve.refusal import RefusedError
from facerts.serve.settings import ANY, Settings

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

_HOST = re.compile(r"(\[[^\[\]/@?#\s]*\]|[^:\[\]/@?#\s]+)(?::(\d*))?")
_PORTS = {"http": "80", "https": "443"}
# What these do is to be read, which pages of other origins cannot.
_READING = frozenset({"GET", "HEAD", "OPTIONS"})


class Visitors:
    """ASGI middleware: answers who is not let in.

    Let in are requests whose ``Host`` is a name of this machine for itself, the address that they came in on, or one of
    the settings'. Browsers' posts must also come from a page of that host, or of one of the settings' origins.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self._hosts = {_normal(host) for host in settings.allowed_hosts}
        self._origins = {origin.lower() for origin in settings.allowed_origins}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self.app
        if scope["type"] == "http":
            try:
                self._check(scope)
            except RefusedError as error:
                app = problem(error.code, str(error))
        await app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        """
        Raises:
            RefusedError: it is not let in.
        """
        told = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        matched = _HOST.fullmatch(told[0]) if len(told) == 1 else None
        if not self._is_ours("" if matched is None else _normal(matched[1]), scope):
            raise RefusedError(
                "wrong_host",
                "the request is for another host; where this service is reached under other names, it is started with "
                "--allowed-host NAME",
            )
        if scope["method"] in _READING or ANY in self._origins:
            return
        for name, value in scope["headers"]:
            if name == b"origin" and not self._is_from_here(value.decode("latin-1").lower(), matched):
                raise RefusedError(
                    "foreign_origin",
                    "pages of other origins may not post here; where this service's own page is reached under another "
                    "one, it is started with --allowed-origin ORIGIN",
                )

    def _is_ours(self, host: str, scope: Scope) -> bool:
        if ANY in self._hosts or host in self._hosts or host == "localhost":
            return True
        try:
            if ipaddress.ip_address(host).is_loopback:
                return True
        except ValueError:  # a name
            return False
        # It is an address, so nobody has made a name resolve to it.
        server = scope.get("server")
        return server is not None and host == _normal(server[0])

    def _is_from_here(self, origin: str, host: re.Match[str] | None) -> bool:
        if origin in self._origins:
            return True
        scheme, _, place = origin.partition("://")
        page = _HOST.fullmatch(place)
        if page is None or host is None:
            return False
        # A proxy may speak HTTPS for the service, so the scheme says which port is meant where none is named.
        port = _PORTS.get(scheme, "")
        return (_normal(page[1]), page[2] or port) == (_normal(host[1]), host[2] or port)


def _normal(host: str) -> str:
    """One spelling for each name and address."""
    name = host.removeprefix("[").removesuffix("]").removesuffix(".").lower()
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return name
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)
