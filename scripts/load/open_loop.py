"""An open loop: requests are sent when they are due, whatever became of those before.

A latency begins when the request was due, so that waiting in this program counts too.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from . import latency
from .connection import Connection, header, request, tls_of

CONNECTIONS_MAX = 900
"""Fewer than the 1024 files that a process may open by default."""
BROKEN = 0
"""Status of a request that got no answer."""


@dataclass
class Asked:
    """What one request got; times in seconds since the loop began."""

    due: float
    sent: float = 0.0
    ended: float = 0.0
    status: int = BROKEN
    retry_after: float | None = None
    retried: Asked | None = None
    """What it got when it came back as Retry-After said."""

    @property
    def latency(self) -> float:
        """Seconds from when it was due."""
        return self.ended - self.due

    def in_time(self, deadline_s: float) -> bool:
        """Whether it was answered well, and by then."""
        return self.status == 200 and self.latency <= deadline_s


def good_spread(answers: Iterable[Asked]) -> dict[str, float]:
    """Latencies of good answers in milliseconds, from when they were due."""
    return latency.spread(one.latency for one in answers if one.status == 200)


def goodput(answers: Iterable[Asked], deadline_s: float, seconds: float) -> float:
    """Good answers a second, in time and while requests came, which was for so many seconds."""
    return sum(one.in_time(deadline_s) and one.ended <= seconds for one in answers) / seconds


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

    def wire(self, body: dict) -> bytes:
        fields = {}
        if self.deadline_ms is not None:
            fields["x-request-timeout-ms"] = str(self.deadline_ms)
        content = json.dumps(body, ensure_ascii=False).encode()
        return request(self.url, "POST", urlsplit(self.url).path, content, fields)


class _Loop:
    """The connections, and the clock of one run."""

    def __init__(self, load: Load) -> None:
        self._tls = tls_of(load.url)
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

    async def one(self, wire: bytes, answer: Asked) -> None:
        """Sends one request, and once more when it is refused and told when to come back."""
        await self._ask(wire, answer)
        if self._load.retry and answer.status == 429 and answer.retry_after is not None:
            again = Asked(answer.ended + answer.retry_after)
            if again.due < self._load.due[-1] + self._load.tail_s:
                await self.until(again.due)
                answer.retried = again
                await self._ask(wire, again)

    async def _ask(self, wire: bytes, asked: Asked) -> None:
        async with self._room:
            connection = self._idle.pop() if self._idle else self._new()
            try:
                await connection.open()
                asked.sent = self.now()
                answer = await connection.ask(wire)
            except OSError:
                return
            finally:
                asked.ended = self.now()
            self._idle.append(connection)
        asked.status = answer.status
        after = header(answer.head, "retry-after")
        asked.retry_after = float(after) if after else None

    def _new(self) -> Connection:
        self._all.append(Connection(self._load.url, self._tls))
        return self._all[-1]

    def close(self) -> None:
        for connection in self._all:
            connection.close()


async def answers_of(load: Load) -> list[Asked]:
    """All answers in the order in which they were due."""
    wires = [load.wire(body) for body in load.bodies]
    loop = _Loop(load)
    answers = [Asked(at) for at in load.due]
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
