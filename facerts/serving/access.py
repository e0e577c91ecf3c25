"""Access control: only requests that name this service, and only browsers' posts from its own page.

A page of another site can have its own name resolve to this machine (DNS rebinding), and then read the responses as its
own; but its requests name another host. And any page can post here, even though it cannot read the response; but its
posts name another origin.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from facerts.serving.error_responses import RequestError, error_response
from facerts.serving.settings import ANY, Settings, address_of, is_loopback

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_HOST = re.compile(r"(\[[^\[\]/@?#\s]*\]|[^:\[\]/@?#\s]+)(?::(\d*))?")
_DEFAULT_PORTS = {"http": "80", "https": "443"}
# These change nothing, and pages of other origins cannot read their responses.
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
RESPONSE_HEADERS = {
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cache-control": b"no-store",
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'",
}


class AccessControl:
    """ASGI middleware that rejects requests for other hosts and from other origins.

    ``Host`` must be a loopback name or address, the address that the request came in on, or one of the settings' hosts.
    ``Origin``, which browsers send with a post, must be of the same host and port, or one of the settings' origins.
    Every response gets the headers that tell browsers not to store, embed or reinterpret it.

    Cookies, which browsers send for whatever else runs on this host, are dropped: the service uses none, and FastAPI
    would have them parsed, which takes some Pythons quadratic time (CVE-2024-7592).
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self._hosts = {_normalize(host) for host in settings.allowed_hosts}
        self._origins = {origin.lower() for origin in settings.allowed_origins}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name.lower() for name, _ in message["headers"]}
                added = [(name, value) for name, value in RESPONSE_HEADERS.items() if name not in present]
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        scope["headers"] = [(name, value) for name, value in scope["headers"] if name != b"cookie"]
        app = self.app
        try:
            self._check(scope)
        except RequestError as error:
            app = error_response(error.code, str(error))
        await app(scope, receive, send_with_headers)

    def _check(self, scope: Scope) -> None:
        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        host = _HOST.fullmatch(hosts[0]) if len(hosts) == 1 else None
        if not self._is_own_host("" if host is None else _normalize(host[1]), scope):
            raise RequestError(
                "wrong_host",
                "the request is for another host; if this service has other names, add them to the "
                "setting serve.allowed_hosts",
            )
        if scope["method"] in _SAFE_METHODS or ANY in self._origins:
            return
        for name, value in scope["headers"]:
            if name == b"origin" and not self._is_own_origin(value.decode("latin-1").lower(), host):
                raise RequestError(
                    "foreign_origin",
                    "pages from other origins may not post here; if this service's page has another origin, add "
                    "it to the setting serve.allowed_origins",
                )

    def _is_own_host(self, host: str, scope: Scope) -> bool:
        if ANY in self._hosts or host in self._hosts or is_loopback(host):
            return True
        # An address, other than a name, cannot be made to resolve to this machine.
        server = scope.get("server")
        return server is not None and host == _normalize(server[0]) and address_of(host) is not None

    def _is_own_origin(self, origin: str, host: re.Match[str] | None) -> bool:
        if origin in self._origins:
            return True
        scheme, _, location = origin.partition("://")
        page = _HOST.fullmatch(location)
        if page is None or host is None:
            return False
        # A proxy may speak HTTPS for the service, so the origin's scheme gives the default port.
        port = _DEFAULT_PORTS.get(scheme, "")
        return (_normalize(page[1]), page[2] or port) == (_normalize(host[1]), host[2] or port)


def _normalize(host: str) -> str:
    """One spelling for each name and address."""
    name = host.removeprefix("[").removesuffix("]").removesuffix(".").lower()
    return str(address_of(name) or name)
