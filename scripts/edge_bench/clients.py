"""Clients that disturb: each is a load of `aside`, and tells what became of its requests."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
import ssl
from collections import Counter
from typing import Any

from load.aside import Signals
from load.closed_loop import AGAIN_S
from load.connection import address_of, request, tls_of
from load.open_loop import BROKEN

WAVE_PAUSE_S = 0.2
DROP_EVERY_S = 0.5
"""A slow client sends so often, one byte."""
READER_HOLDS_S = 15.0
SPREAD_S = 10.0
"""The slow clients begin over this time. The server ends each after the same time, and all that
come back at once would measure their handshakes."""
PIPELINED = 64
SMALL_BUFFER = 4096
HALF_HELLO = b"\x16\x03\x01"
"""The start of a TLS handshake's first record."""


async def waves(signals: Signals, url: str, wire: bytes, clients: int) -> Counter[int]:
    """So many clients send the same large request at once, and again when all have ended."""
    statuses: Counter[int] = Counter()
    signals.up()
    while not signals.stopped:
        ended = await asyncio.gather(*(_send_large(url, wire) for _ in range(clients)))
        statuses.update(ended)
        await signals.wait(WAVE_PAUSE_S)
    return statuses


async def _send_large(url: str, wire: bytes) -> int:
    """The status; reads while it sends, since a refusal may come early. Copies nothing."""
    loop = asyncio.get_running_loop()
    with socket.socket() as connection:
        connection.setblocking(False)
        try:
            await loop.sock_connect(connection, address_of(url))
        except OSError:
            return BROKEN
        sending = asyncio.create_task(loop.sock_sendall(connection, wire))
        got = b""
        try:
            while b"\r\n" not in got and (part := await loop.sock_recv(connection, 1 << 16)):
                got += part
        except OSError:
            pass
        finally:
            sending.cancel()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await sending
        return int(got[9:12]) if got.startswith(b"HTTP/1.1 ") else BROKEN


async def slow_ones(
    signals: Signals, url: str, slow: int, readers: int, half_open: int, idle: int
) -> dict[str, int]:
    """Slow heads and bodies (`slow` each), readers, half-open handshakes, idle connections.

    What is told is how many connections of each kind the server ended, and the idle ones that were
    open at the end.
    """
    raise_limit()
    # Such clients have machines of their own: here their handshakes must not take the processor
    # from the server that is measured.
    os.nice(19)
    kept = await asyncio.to_thread(connect_idle, url, idle)
    cut: Counter[str] = Counter()
    head = request(url, "GET", "/health")[:-2] + b"x-slow: "
    body = request(url, "POST", "/v1/embeddings", b" " * 100_000)[:-100_000]
    kinds = [("slow heads", _drop, head, slow), ("slow bodies", _drop, body, slow)]
    if tls_of(url):
        kinds.append(("half-open handshakes", _half_open, b"", half_open))
    kinds.append(("slow readers", _deaf, request(url, "GET", "/openapi.json"), readers))
    tasks = [
        asyncio.create_task(_for_ever(kind, name, url, wire, cut, SPREAD_S * number / count))
        for name, kind, wire, count in kinds
        for number in range(count)
    ]
    await signals.wait(SPREAD_S)
    signals.up()
    await signals.wait()
    for task in tasks:
        task.cancel()
    found = {f"{name} cut": cut[name] for name, *_ in kinds}
    return found | {"idle, still open": sum(map(still_open, kept))}


async def _for_ever(
    kind: Any, name: str, url: str, wire: bytes, cut: Counter[str], begin_s: float
) -> None:
    await asyncio.sleep(begin_s)
    while True:
        with contextlib.suppress(OSError):
            await kind(url, wire)
            cut[name] += 1
        await asyncio.sleep(AGAIN_S)


async def _open(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(*address_of(url), ssl=tls_of(url))


async def _drop(url: str, wire: bytes) -> None:
    """Returns when the server has had enough."""
    reader, writer = await _open(url)
    try:
        writer.write(wire)
        reading = asyncio.create_task(reader.read(1))
        while not reading.done():
            writer.write(b"a")
            await asyncio.wait([reading], timeout=DROP_EVERY_S)
        with contextlib.suppress(OSError):
            reading.result()
    finally:
        writer.transport.abort()


async def _deaf(url: str, wire: bytes) -> None:
    """Asks for much and takes nothing of it."""
    reader, writer = await _open(url)
    try:
        writer.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER
        )
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(wire * PIPELINED)
        await asyncio.sleep(READER_HOLDS_S)
    finally:
        writer.transport.abort()


async def _half_open(url: str, _: bytes) -> None:
    """Begins a handshake; returns when the server has had enough."""
    reader, writer = await asyncio.open_connection(*address_of(url))
    try:
        writer.write(HALF_HELLO)
        await reader.read()
    finally:
        writer.transport.abort()


def connect_idle(url: str, count: int) -> list[socket.socket]:
    """Connections that say nothing, behind their handshakes."""
    secure = tls_of(url)
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
