"""An open loop: requests are sent when they are due, whatever became of those before.

A latency begins when the request was due, so that waiting in this program counts too.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from dataclasses import dataclass, field
from urllib.parse import urlsplit

CONNECTIONS_MAX = 900
"""Fewer than the 1024 files that a process may open by default."""
BROKEN = 0
"""Status of a request that got no answer."""


@dataclass
class Answer:
    """What one request got; times in seconds since the loop began."""

    due: float
    sent: float = 0.0
    ended: float = 0.0
    status: int = BROKEN
    retry_after: float | None = None
    retried: Answer | None = None
    """What it got when it came back as Retry-After said."""

    @property
    def latency(self) -> float:
        """Seconds from when it was due."""
        return self.ended - self.due

    def in_time(self, deadline_s: float) -> bool:
        """Whether it was answered well, and by then."""
        return self.status == 200 and self.latency <= deadline_s


@dataclass
class Load:
    """What is sent, and when."""

    url: str
    bodies: list[dict]
    due: list[float]
    deadline_ms: int | None = None
    """The server's time for each request; its own setting when absent."""
    tail_s: float = 30.0
    """So long after the last request answers count."""
    retry: bool = False
    """Whether a refused request comes back once when Retry-After says."""
    headers: dict[str, str] = field(default_factory=dict)

    def wire(self, body: dict) -> bytes:
        """One whole request."""
        target = urlsplit(self.url)
        content = json.dumps(body, ensure_ascii=False).encode()
        headers = {
            "host": target.netloc,
            "content-type": "application/json",
            "content-length": str(len(content)),
            **self.headers,
        }
        if self.deadline_ms is not None:
            headers["x-request-timeout-ms"] = str(self.deadline_ms)
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"POST {target.path} HTTP/1.1\r\n{lines}\r\n".encode() + content


def run(load: Load) -> list[Answer]:
    """All answers in the order in which they were due."""
    return asyncio.run(answers_of(load))


def unverified() -> ssl.SSLContext:
    """For servers of this machine, whose certificates were made for the occasion."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class Connection(asyncio.Protocol):
    """One request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._whole: int | None = None
        self._answer: asyncio.Future[bytes] | None = None
        self.open = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._whole is None:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            self._whole = end + 4 + int(header(bytes(self._buffer), "content-length") or 0)
        if len(self._buffer) >= self._whole and self._answer and not self._answer.done():
            self._answer.set_result(bytes(self._buffer))

    def connection_lost(self, _: Exception | None) -> None:
        self.open = False
        if self._answer and not self._answer.done():
            self._answer.set_exception(ConnectionError("the server closed the connection"))

    def close(self) -> None:
        if self._transport:
            self._transport.abort()

    async def ask(self, wire: bytes) -> bytes:
        """Head and content of the answer."""
        assert self._transport is not None
        self._buffer.clear()
        self._whole = None
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(wire)
        answer = await self._answer
        if (header(answer, "connection") or "").lower() == "close":
            # The server reads no further request; the next one needs a connection of its own.
            self.open = False
            self.close()
        return answer


def header(answer: bytes, name: str) -> str | None:
    """The value of a header, if it is there."""
    head = answer.partition(b"\r\n\r\n")[0].decode("latin-1")
    for line in head.split("\r\n")[1:]:
        key, _, value = line.partition(":")
        if key.lower() == name:
            return value.strip()
    return None


class _Loop:
    """The connections, and the clock of one run."""

    def __init__(self, load: Load) -> None:
        target = urlsplit(load.url)
        self._host, self._port = target.hostname, target.port
        self._tls = unverified() if target.scheme == "https" else None
        self._idle: list[Connection] = []
        self._all: list[Connection] = []
        self._room = asyncio.Semaphore(CONNECTIONS_MAX)
        self._clock = asyncio.get_running_loop().time
        self._start = self._clock()
        self._load = load

    def now(self) -> float:
        """Seconds since the run began."""
        return self._clock() - self._start

    async def until(self, at: float) -> None:
        """Returns at once when `at` is past."""
        if (left := at - self.now()) > 0:
            await asyncio.sleep(left)

    async def one(self, wire: bytes, answer: Answer) -> None:
        """Sends one request, and once more when it is refused and told when to come back."""
        await self._ask(wire, answer)
        if self._load.retry and answer.status == 429 and answer.retry_after is not None:
            again = Answer(answer.ended + answer.retry_after)
            if again.due < self._load.due[-1] + self._load.tail_s:
                await self.until(again.due)
                answer.retried = again
                await self._ask(wire, again)

    async def _ask(self, wire: bytes, answer: Answer) -> None:
        async with self._room:
            try:
                connection = await self._connection()
                answer.sent = self.now()
                got = await connection.ask(wire)
                answer.ended = self.now()
            except OSError:
                answer.ended = self.now()
                return
            self._idle.append(connection)
        answer.status = int(got[9:12])
        after = header(got, "retry-after")
        answer.retry_after = float(after) if after else None

    async def _connection(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.open:
                return connection
        loop = asyncio.get_running_loop()
        _, made = await loop.create_connection(Connection, self._host, self._port, ssl=self._tls)
        self._all.append(made)
        return made

    def close(self) -> None:
        for connection in self._all:
            connection.close()


async def answers_of(load: Load) -> list[Answer]:
    """The same, inside a running loop."""
    wires = [load.wire(body) for body in load.bodies]
    loop = _Loop(load)
    answers = [Answer(at) for at in load.due]
    tasks = []
    try:
        for number, answer in enumerate(answers):
            await loop.until(answer.due)
            tasks.append(asyncio.create_task(loop.one(wires[number % len(wires)], answer)))
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=load.tail_s)
            for task in late:
                task.cancel()
            for outcome in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(outcome, Exception):
                    raise outcome
        for answer in answers:
            for one in (answer, answer.retried):
                if one is not None and not one.ended:
                    one.ended = loop.now()
    finally:
        loop.close()
    return answers
