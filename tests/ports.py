"""A port that nobody listens on."""

from __future__ import annotations

import socket


def free_port() -> int:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return int(opened.getsockname()[1])
