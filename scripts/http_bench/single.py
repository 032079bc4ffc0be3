"""One client on a plain socket, which adds next to nothing to a latency."""

import itertools
import re
import socket
import time

from default_package.errors import PackageError
from load.connection import address_of, header

ANSWER_TIMEOUT_S = 60
RECEIVE_BYTES = 1 << 16
COMPUTE = re.compile(rb"\bcompute;dur=([0-9.]+)")
"""Milliseconds from the start of a text's batch until its worker had the row: the engine's run
with its copies in and out."""


def run(url: str, wires: list[bytes], seconds: float) -> list[tuple[float, float | None]]:
    """Sends one request behind the other for so many seconds, at least one.

    Of each the seconds from before its first byte was sent until its last one was there, at the
    client, and the part of them in the stage `compute`, where the server tells that.
    """
    found: list[tuple[float, float | None]] = []
    with socket.create_connection(address_of(url), ANSWER_TIMEOUT_S) as connection:
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
            found.append((took, compute_seconds(answer)))
    return found


def compute_seconds(answer: bytes) -> float | None:
    """`compute` of the header `server-timing`. Only the head is searched, and nothing else of it
    is parsed, so that little is done between the requests."""
    told = COMPUTE.search(answer, 0, max(answer.find(b"\r\n\r\n"), 0))
    return float(told[1]) / 1e3 if told else None


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
