"""Clients that disturb: each is a load of `aside`, and tells what became of its requests."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
from collections import Counter
from typing import Any
from urllib.parse import urlsplit

from http_bench.open_loop import BROKEN, unverified

from .aside import Signals
from .idle import address_of, connect_idle, raise_limit, still_open

AGAIN_S = 0.05
"""A client whose connection ended comes back after this time."""
WAVE_PAUSE_S = 0.2
DROP_EVERY_S = 0.5
"""A slow client sends so often, one byte."""
READER_HOLDS_S = 15.0
SPREAD_S = 10.0
"""The slow clients begin over this time. The server ends each after the same time, and all that
come back at once would measure their handshakes."""
PIPELINED = 64
SMALL_BUFFER = 4096
LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
HALF_HELLO = b"\x16\x03\x01"
"""The start of a TLS handshake's first record."""


def request(url: str, method: str, path: str, body: bytes = b"") -> bytes:
    """A whole request."""
    head = f"{method} {path} HTTP/1.1\r\nhost: {urlsplit(url).netloc}\r\n"
    if body:
        head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body


class Looping(asyncio.Protocol):
    """Sends the same request again as soon as it was answered; does as little as it can."""

    def __init__(self, wires: list[bytes], at: int, statuses: Counter[int]) -> None:
        self._wires, self._at, self._statuses = wires, at, statuses
        self._transport: Any = None
        self._got = b""
        self.lost = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        transport.write(self._wires[self._at])  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        got = self._got + data if self._got else data
        end = got.find(b"\r\n\r\n")
        length = LENGTH.search(got, 0, max(end, 0))
        if length is None or len(got) < end + 4 + int(length[1]):
            self._got = got
            return
        self._got = b""
        self._statuses[int(got[9:12])] += 1
        self._at = (self._at + 1) % len(self._wires)
        self._transport.write(self._wires[self._at])

    def connection_lost(self, _: Exception | None) -> None:
        if not self.lost.done():
            self.lost.set_result(None)


async def looping(signals: Signals, url: str, wires: list[bytes], clients: int) -> Counter[int]:
    """A closed loop; how often each status was answered."""
    statuses: Counter[int] = Counter()
    loop, (host, port) = asyncio.get_running_loop(), address_of(url)

    async def client(number: int) -> None:
        while True:
            with contextlib.suppress(OSError):
                # Far from each other: equal texts that wait share a run.
                at = number * len(wires) // clients
                _, made = await loop.create_connection(
                    lambda at=at: Looping(wires, at, statuses), host, port
                )
                await made.lost
            statuses[BROKEN] += 1
            await asyncio.sleep(AGAIN_S)

    tasks = [asyncio.create_task(client(number)) for number in range(clients)]
    signals.up()
    await signals.wait()
    for task in tasks:
        task.cancel()
    return statuses


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
    if urlsplit(url).scheme == "https":
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
    host, port = address_of(url)
    secure = unverified() if urlsplit(url).scheme == "https" else None
    return await asyncio.open_connection(host, port, ssl=secure)


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
