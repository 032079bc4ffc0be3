"""Where the server is, and connections to it that say nothing."""

from __future__ import annotations

import resource
import socket
import ssl
from urllib.parse import urlsplit

from http_bench.open_loop import unverified

Address = tuple[str, int]


def address_of(url: str) -> Address:
    """Host and port."""
    target = urlsplit(url)
    return target.hostname or "", target.port or 80


def connect_idle(url: str, count: int) -> list[socket.socket]:
    """Connections that say nothing, behind their handshakes."""
    secure = unverified() if urlsplit(url).scheme == "https" else None
    kept = []
    for _ in range(count):
        made = socket.create_connection(address_of(url), 30)
        if secure:
            made = secure.wrap_socket(made)
        made.setblocking(False)
        kept.append(made)
    return kept


def still_open(connection: socket.socket) -> bool:
    """Whether the server has not closed it."""
    try:
        return connection.recv(1) != b""
    except (BlockingIOError, ssl.SSLWantReadError):
        return True
    except OSError:
        return False


def raise_limit() -> None:
    """As many open files as this process may have."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
