"""A connection of HTTP/1.1 that believes nothing: each request gets one whole answer."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

from http_bench.open_loop import header

ANSWER_TIMEOUT_S = 60.0
"""Longer than the server gives any request."""


class Broken(Exception):
    """The request got no whole answer; says how."""


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
        self._room = asyncio.Event()
        self._room.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.got += data
        self.came.set()

    def connection_lost(self, _: Exception | None) -> None:
        self.open = False
        self.came.set()
        self._room.set()

    def pause_writing(self) -> None:
        self._room.clear()

    def resume_writing(self) -> None:
        self._room.set()

    async def room(self) -> None:
        """Returns when the system takes more, or never will."""
        await self._room.wait()


class Connection:
    """Opened when needed, and again when the server closed it."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._wire: Wire | None = None

    async def send(self, data: bytes) -> Wire:
        """Sends on a connection that is open and silent."""
        if self._wire is not None and self._wire.got:
            self.close()
            raise Broken("the server said something that nobody had asked for")
        if self._wire is None or not self._wire.open:
            loop = asyncio.get_running_loop()
            _, self._wire = await loop.create_connection(Wire, *self._address)
        self._wire.transport.write(data)
        return self._wire

    async def ask(self, data: bytes) -> Answer:
        """Sends one request and takes its answer."""
        wire = await self.send(data)
        return await self.answer(wire)

    async def answer(self, wire: Wire) -> Answer:
        """The answer to what was sent."""
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                while (answer := self._whole(wire)) is None:
                    if not wire.open:
                        raise Broken(f"the connection ended after {len(wire.got)} bytes")
                    wire.came.clear()
                    await wire.came.wait()
        except TimeoutError:
            raise Broken(f"no whole answer within {ANSWER_TIMEOUT_S:g} s") from None
        finally:
            if self._whole(wire) is None:
                self.close()
        wire.got.clear()
        if header(answer.head, "connection") == "close":
            self.close()
        return answer

    @staticmethod
    def _whole(wire: Wire) -> Answer | None:
        end = wire.got.find(b"\r\n\r\n")
        if end < 0:
            return None
        head = bytes(wire.got[: end + 4])
        length = end + 4 + int(header(head, "content-length") or 0)
        if len(wire.got) < length:
            return None
        if len(wire.got) > length:
            raise Broken("there are bytes behind the answer")
        return Answer(int(head[9:12]), head, bytes(wire.got[end + 4 :]))

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


def get(path: str, key: str) -> bytes:
    """A request without a body."""
    return f"GET {path} HTTP/1.1\r\nhost: x\r\n{_authorization(key)}\r\n".encode()


def post(path: str, key: str, body: bytes, more: str = "") -> bytes:
    """A request with a JSON body; `more` are whole lines of its head."""
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\n{_authorization(key)}{more}"
    head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def _authorization(key: str) -> str:
    return f"authorization: Bearer {key}\r\n"
