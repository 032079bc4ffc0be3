"""One client on a plain socket, which adds next to nothing to a latency."""

from __future__ import annotations

import itertools
import json
import socket
import time
from urllib.parse import urlsplit

from default_package.errors import PackageError

from .open_loop import header

ANSWER_TIMEOUT_S = 60
RECEIVE_BYTES = 1 << 16


def run(url: str, wires: list[bytes], seconds: float) -> list[tuple[float, int]]:
    """Seconds and tokens of each request; no tokens where the answer tells none."""
    target = urlsplit(url)
    address = (target.hostname or "", target.port or 80)
    found: list[tuple[float, int]] = []
    # Only first answers are read, so that little is done between the requests.
    tokens: dict[bytes, int] = {}
    with socket.create_connection(address, ANSWER_TIMEOUT_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        end = time.perf_counter() + seconds
        for wire in itertools.cycle(wires):
            start = time.perf_counter()
            if start >= end and found:
                break
            connection.sendall(wire)
            answer = _receive(connection)
            took = time.perf_counter() - start
            if answer[9:12] != b"200":
                raise PackageError(f"{url} answered {answer.decode(errors='replace')}")
            if wire not in tokens:
                tokens[wire] = _tokens(answer)
            found.append((took, tokens[wire]))
    return found


def _tokens(answer: bytes) -> int:
    content = json.loads(answer.partition(b"\r\n\r\n")[2] or b"{}")
    return content.get("usage", {}).get("total_tokens", 0)


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
