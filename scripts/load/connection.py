"""A connection of HTTP/1.1 that believes nothing: each request gets one whole answer.

No HTTP library stands between: it would repair what is wrong on purpose, and its own work would be
a part of each latency.
"""

import asyncio
import contextlib
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

ANSWER_TIMEOUT_S = 60.0
"""Longer than the server gives any request."""


class Broken(OSError):
    """The request got no whole answer; says how."""


def address_of(url: str) -> tuple[str, int]:
    """Host and port."""
    target = urlsplit(url)
    return target.hostname or "", target.port or 80


def tls_of(url: str) -> ssl.SSLContext | None:
    """For https; the certificates of this machine's servers were made for the occasion."""
    if urlsplit(url).scheme != "https":
        return None
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def request(
    url: str, method: str, path: str, body: bytes = b"", fields: Mapping[str, str] | None = None
) -> bytes:
    """A whole request with further `fields` of its head; the body of a POST is JSON."""
    lines = {"host": urlsplit(url).netloc}
    if method == "POST":
        lines |= {"content-type": "application/json", "content-length": str(len(body))}
    head = "".join(f"{name}: {value}\r\n" for name, value in (lines | dict(fields or {})).items())
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body


def header(answer: bytes, name: str) -> str | None:
    """The value of a header of an answer, if it is there."""
    head = answer.partition(b"\r\n\r\n")[0].decode("latin-1")
    for line in head.split("\r\n")[1:]:
        key, _, value = line.partition(":")
        if key.lower() == name:
            return value.strip()
    return None


@dataclass(frozen=True)
class Answer:
    """One whole answer."""

    status: int
    head: bytes
    body: bytes

    def json(self) -> Any:
        """The body; `Broken` when it is not JSON."""
        try:
            return json.loads(self.body)
        except ValueError as error:
            raise Broken(f"{self.status} with a body that is not JSON: {error}") from error

    @property
    def code(self) -> str:
        """The word of a refusal."""
        return self.json()["error"]["code"]

    @property
    def told(self) -> str:
        """The word of a refusal, else how the body begins."""
        try:
            return self.code
        except (Broken, KeyError, TypeError):
            return self.body[:80].decode(errors="replace")


class Wire(asyncio.Protocol):
    """Collects what comes."""

    def __init__(self) -> None:
        self.got = bytearray()
        self.came = asyncio.Event()
        self.open = True
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.got += data
        self.came.set()

    def connection_lost(self, _: Exception | None) -> None:
        self.open = False
        self.came.set()

    async def wait(self, seconds: float) -> None:
        """Returns when something came or the connection ended, or after so many seconds."""
        self.came.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.came.wait(), seconds)

    def whole(self) -> Answer | None:
        """The answer, once all of it is there; `Broken` when there is more."""
        end = self.got.find(b"\r\n\r\n")
        if end < 0:
            return None
        head = bytes(self.got[: end + 4])
        length = end + 4 + int(header(head, "content-length") or 0)
        if len(self.got) < length:
            return None
        if len(self.got) > length:
            raise Broken("there are bytes behind the answer")
        return Answer(int(head[9:12]), head, bytes(self.got[end + 4 :]))


class Connection:
    """Opened when needed, and again when the server closed it; one request at a time."""

    def __init__(self, url: str, tls: ssl.SSLContext | None = None) -> None:
        """`tls` is of `tls_of`: many connections share it."""
        self._address, self._tls = address_of(url), tls
        self._wire: Wire | None = None

    async def open(self) -> Wire:
        """A connection that is open and silent."""
        if self._wire is not None and self._wire.got:
            self.close()
            raise Broken("the server said something that nobody had asked for")
        if self._wire is None or not self._wire.open:
            loop = asyncio.get_running_loop()
            _, self._wire = await loop.create_connection(Wire, *self._address, ssl=self._tls)
        return self._wire

    async def send(self, data: bytes) -> Wire:
        """Sends, and waits for nothing."""
        wire = await self.open()
        wire.transport.write(data)
        return wire

    async def ask(self, data: bytes) -> Answer:
        return await self.answer(await self.send(data))

    async def answer(self, wire: Wire) -> Answer:
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                while (answer := wire.whole()) is None:
                    if not wire.open:
                        raise Broken(f"the connection ended after {len(wire.got)} bytes")
                    wire.came.clear()
                    await wire.came.wait()
        except TimeoutError:
            self.close()
            raise Broken(f"no whole answer within {ANSWER_TIMEOUT_S:g} s") from None
        except BaseException:
            self.close()
            raise
        wire.got.clear()
        if (header(answer.head, "connection") or "").lower() == "close":
            # The server reads no further request.
            self.close()
        return answer

    def close(self) -> None:
        """Leaves without a word."""
        if self._wire is not None and self._wire.transport is not None:
            self._wire.transport.abort()
        self._wire = None

    async def drip(self, data: bytes, pieces: int, pause_s: float) -> Wire:
        """Sends `data` in pieces; stops when an answer comes."""
        size = len(data) // pieces + 1
        wire = await self.send(data[:size])
        for at in range(size, len(data), size):
            await asyncio.sleep(pause_s)
            if wire.open and not wire.got:
                wire.transport.write(data[at : at + size])
        return wire
