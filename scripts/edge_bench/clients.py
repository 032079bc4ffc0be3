"""Clients that disturb: each is a load of `aside`, and tells what became of its requests.

A storm holds what costs it nothing: bodies that never come, answers that nobody takes.
"""

import asyncio
import contextlib
import os
import resource
import socket
import ssl
import struct
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from urllib.parse import urlsplit

from load.aside import Signals
from load.connection import ANSWER_TIMEOUT_S, Connection, Wire, address_of, request, tls_of
from load.open_loop import BROKEN

WAVE_PAUSE_S = 0.2
AGAIN_S = 0.05
"""A client whose connection ended comes back after this time."""
DROP_EVERY_S = 0.5
"""A slow client sends so often, one byte."""
READER_HOLDS_S = 15.0
SPREAD_S = 10.0
"""The slow clients begin over this time. The server ends each after the same time, and all that
come back at once would measure their handshakes."""
PIPELINED = 64
SMALL_BUFFER = 4096
DENSE = "/v1/embeddings"
LONG_MS = 300_000
"""What a head of a storm asks for, so that the storm itself is not refused as late."""
STORM_AGAIN_S = 0.2
BEGUN_S = 1.0
"""After this time the last ones have begun too."""
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS, WINDOW_UPDATE = 0, 1, 4, 8
END_STREAM, END_HEADERS = 1, 4
INITIAL_WINDOW = 4
FRAME_HEAD_BYTES = 9
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
    make_way()
    kept = await asyncio.to_thread(connect_idle, url, idle)
    head = request(url, "GET", "/health")[:-2] + b"x-slow: "
    body = request(url, "POST", "/v1/embeddings", b" " * 100_000)[:-100_000]
    kinds = [("slow heads", partial(_drop, url, head), slow)]
    kinds.append(("slow bodies", partial(_drop, url, body), slow))
    if tls_of(url):
        kinds.append(("half-open handshakes", partial(_half_open, url), half_open))
    page = request(url, "GET", "/openapi.json")
    kinds.append(("slow readers", partial(_deaf, url, page), readers))
    cut = await _keep(signals, kinds, SPREAD_S, AGAIN_S)
    found = {f"{name} cut": cut[name] for name, *_ in kinds}
    return found | {"idle, still open": sum(map(still_open, kept))}


async def _keep(
    signals: Signals,
    kinds: Sequence[tuple[str, Callable[[], Awaitable[None]], int]],
    spread_s: float,
    again_s: float,
) -> Counter[str]:
    """So many clients of each kind begin over `spread_s`, and come back `again_s` after the server
    has ended them; how often it did."""
    ended: Counter[str] = Counter()

    async def client(name: str, kind: Callable[[], Awaitable[None]], begin_s: float) -> None:
        await asyncio.sleep(begin_s)
        while True:
            with contextlib.suppress(OSError):
                await kind()
                ended[name] += 1
            await asyncio.sleep(again_s)

    tasks = [
        asyncio.create_task(client(name, kind, spread_s * number / count))
        for name, kind, count in kinds
        for number in range(count)
    ]
    await signals.wait(spread_s + BEGUN_S)
    signals.up()
    await signals.wait()
    for task in tasks:
        task.cancel()
    return ended


async def _drop(url: str, data: bytes) -> None:
    """Returns when the server has had enough."""
    with contextlib.closing(Connection(url, tls_of(url))) as connection:
        wire = await connection.send(data)
        while wire.open and not wire.got:
            wire.transport.write(b"a")
            await wire.wait(DROP_EVERY_S)


async def _deaf(url: str, data: bytes) -> None:
    """Asks for much and takes nothing of it."""
    with contextlib.closing(Connection(url, tls_of(url))) as connection:
        wire = await connection.open()
        shrink(wire.transport.get_extra_info("socket"))
        wire.transport.pause_reading()
        wire.transport.write(data * PIPELINED)
        await asyncio.sleep(READER_HOLDS_S)


async def _half_open(url: str) -> None:
    """Begins a handshake; returns when the server has had enough."""
    with contextlib.closing(Connection(url)) as connection:
        wire = await connection.send(HALF_HELLO)
        while wire.open:
            await wire.wait(ANSWER_TIMEOUT_S)


def shrink(connection: socket.socket) -> None:
    """The system keeps little of what nobody reads."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER)


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


def make_way() -> None:
    """As many open files as this process may have, and what the server leaves of the processor:
    such clients have machines of their own."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    os.nice(19)


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
        """The requests of a connection; on HTTP/2 without what opens it."""
        fields = {"content-length": str(self.announced), "x-request-timeout-ms": str(LONG_MS)}
        if not self.streams:
            return request(url, "POST", DENSE, self.body, fields)
        host = urlsplit(url).netloc
        pseudo = {":method": "POST", ":scheme": "https", ":authority": host, ":path": DENSE}
        pseudo["content-type"] = "application/json"
        block = b"".join(map(_field, (pseudo | fields).items()))
        parts = []
        for stream in range(1, 2 * self.streams, 2):
            parts.append(_frame(HEADERS, END_HEADERS, stream, block))
            if self.body:
                parts.append(_frame(DATA, END_STREAM, stream, self.body))
        return b"".join(parts)


async def blow(signals: Signals, url: str, storm: Storm) -> int:
    """Holds all connections open, and opens each again when the server ends it; how often."""
    make_way()
    wire = storm.wire(url)
    context = tls_of(url)
    if context and storm.streams:
        context.set_alpn_protocols(["h2"])

    async def held() -> None:
        # One that the server refuses was ended too.
        with contextlib.suppress(OSError):
            await _hold(url, context, wire, bool(storm.streams))

    kinds = [("storm", held, storm.connections)]
    return (await _keep(signals, kinds, storm.spread_s, STORM_AGAIN_S))["storm"]


async def _hold(url: str, context: ssl.SSLContext | None, data: bytes, reads: bool) -> None:
    """Returns when the server has ended the connection.

    A connection of HTTP/2 reads, since its streams have no window; one of HTTP/1.1 does not.
    """
    made = socket.socket()
    shrink(made)
    made.setblocking(False)
    loop, (host, port) = asyncio.get_running_loop(), address_of(url)
    await loop.sock_connect(made, (host, port))
    name = host if context else None
    transport, wire = await loop.create_connection(
        Wire, sock=made, ssl=context, server_hostname=name
    )
    try:
        if reads:
            # Streams without a window: no byte of an answer may be sent.
            no_window = struct.pack(">HI", INITIAL_WINDOW, 0)
            transport.write(PREFACE + _frame(SETTINGS, 0, 0, no_window))
            # Bodies need a larger window than the protocol's first one, which the server tells.
            while wire.open and WINDOW_UPDATE not in _kinds(wire.got):
                await wire.wait(1.0)
        else:
            transport.pause_reading()
        transport.write(data)
        # A paused transport does not see its end; the system knows it.
        while wire.open and (reads or not _is_ended(made)):
            await wire.wait(1.0)
    finally:
        transport.abort()


def _kinds(got: bytes | bytearray) -> set[int]:
    """Of the frames that came."""
    kinds, at = set(), 0
    while len(got) >= at + FRAME_HEAD_BYTES:
        kinds.add(got[at + 3])
        at += FRAME_HEAD_BYTES + int.from_bytes(got[at : at + 3])
    return kinds


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
