"""One client on a plain socket, which adds next to nothing to a latency, and the tokens it sent."""

from __future__ import annotations

import itertools
import json
import socket
import time
from urllib.parse import urlsplit

from default_package.errors import PackageError

from .open_loop import Load, header

ANSWER_TIMEOUT_S = 60
RECEIVE_BYTES = 1 << 16


def run(load: Load, seconds: float) -> list[tuple[float, int]]:
    """Seconds and tokens of each request."""
    target = urlsplit(load.url)
    found = []
    address = (target.hostname or "", target.port or 80)
    with socket.create_connection(address, ANSWER_TIMEOUT_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        end = time.perf_counter() + seconds
        for wire in itertools.cycle([load.wire(body) for body in load.bodies]):
            start = time.perf_counter()
            if start >= end and found:
                break
            connection.sendall(wire)
            answer = _receive(connection)
            took = time.perf_counter() - start
            content = answer.partition(b"\r\n\r\n")[2]
            if answer[9:12] != b"200":
                raise PackageError(f"{load.url} answered {content.decode(errors='replace')}")
            found.append((took, json.loads(content)["usage"]["total_tokens"]))
    return found


def _receive(connection: socket.socket) -> bytes:
    got, whole = b"", None
    while whole is None or len(got) < whole:
        part = connection.recv(RECEIVE_BYTES)
        if not part:
            raise PackageError("the server closed the connection")
        got += part
        if whole is None and (end := got.find(b"\r\n\r\n")) >= 0:
            whole = end + 4 + int(header(got, "content-length") or 0)
    return got
