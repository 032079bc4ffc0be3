"""Clients that hold what costs them nothing: bodies that never come, answers that nobody takes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import struct
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from load.aside import Signals
from load.connection import address_of, request, tls_of

from .clients import raise_limit

DENSE = "/v1/embeddings"
LONG_MS = 300_000
"""What a head of a storm asks for, so that the storm itself is not refused as late."""
AGAIN_S = 0.2
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS = 0, 1, 4
END_STREAM, END_HEADERS = 1, 4
INITIAL_WINDOW = 4
SMALL_BUFFER = 4096


@dataclass(frozen=True)
class Storm:
    """So many connections, each with the same requests."""

    connections: int
    streams: int
    """Requests of each connection on HTTP/2; 0 is one request on HTTP/1.1."""
    announced: int
    """Bytes of each body by its head."""
    body: bytes = b""
    """What is sent of the body."""
    spread_s: float = 0.0
    """The connections are opened over this time."""

    def wire(self, url: str) -> bytes:
        """All that a connection sends."""
        fields = {"content-length": str(self.announced), "x-request-timeout-ms": str(LONG_MS)}
        if not self.streams:
            return request(url, "POST", DENSE, self.body, fields)
        host = urlsplit(url).netloc
        pseudo = {":method": "POST", ":scheme": "https", ":authority": host, ":path": DENSE}
        pseudo["content-type"] = "application/json"
        block = b"".join(map(_field, (pseudo | fields).items()))
        # Streams without a window: no byte of an answer may be sent.
        parts = [PREFACE, _frame(SETTINGS, 0, 0, struct.pack(">HI", INITIAL_WINDOW, 0))]
        for stream in range(1, 2 * self.streams, 2):
            parts.append(_frame(HEADERS, END_HEADERS, stream, block))
            if self.body:
                parts.append(_frame(DATA, END_STREAM, stream, self.body))
        return b"".join(parts)


async def blow(signals: Signals, url: str, storm: Storm) -> int:
    """Holds all connections open, and opens each again when the server ends it; how often."""
    raise_limit()
    # The storm comes from other machines: here it must not take the processor from the server.
    os.nice(19)
    wire, ended = storm.wire(url), 0
    context = tls_of(url)
    if context and storm.streams:
        context.set_alpn_protocols(["h2"])

    async def client(number: int) -> None:
        nonlocal ended
        await asyncio.sleep(storm.spread_s * number / storm.connections)
        while True:
            with contextlib.suppress(OSError):
                await _hold(url, context, wire, bool(storm.streams))
            ended += 1
            await asyncio.sleep(AGAIN_S)

    tasks = [asyncio.create_task(client(number)) for number in range(storm.connections)]
    await signals.wait(storm.spread_s + 1.0)
    signals.up()
    await signals.wait()
    for task in tasks:
        task.cancel()
    return ended


async def _hold(url: str, context: ssl.SSLContext | None, wire: bytes, reads: bool) -> None:
    """Returns when the server has ended the connection.

    A connection of HTTP/2 reads, since its streams have no window; one of HTTP/1.1 does not.
    """
    lost = asyncio.get_running_loop().create_future()

    class Held(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            transport.write(wire)
            if not reads:
                transport.pause_reading()

        def connection_lost(self, _: Exception | None) -> None:
            if not lost.done():
                lost.set_result(None)

    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER)
    made.setblocking(False)
    loop, (host, port) = asyncio.get_running_loop(), address_of(url)
    await loop.sock_connect(made, (host, port))
    transport, _ = await loop.create_connection(
        Held, sock=made, ssl=context, server_hostname=host if context else None
    )
    try:
        while not lost.done():
            # A paused transport does not see its end; the system knows it.
            if not reads and _is_ended(made):
                return
            await asyncio.wait([lost], timeout=1.0)
    finally:
        transport.abort()


def _is_ended(connection: socket.socket) -> bool:
    """Whether the server has closed it, by the state of TCP."""
    established = 1
    return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != established


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">IBI", len(payload) << 8 | kind, flags, stream) + payload


def _field(field: tuple[str, str]) -> bytes:
    """A field of HPACK, literal and not indexed; name and value have fewer than 127 bytes."""
    name, value = (part.encode() for part in field)
    return bytes([0, len(name)]) + name + bytes([len(value)]) + value
