"""Load from many clients at once, in a thread of its own; every request is remembered."""

from __future__ import annotations

import asyncio
import itertools
import ssl
import statistics
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import httpx

BODY = {"input": "one short text"}
"""Of a request that is alone."""
ANSWER_TIMEOUT_S = 60
END_TIMEOUT_S = 90


@dataclass(frozen=True)
class Answer:
    """One request: when it was due, how long it took from then, what came of it."""

    due: float
    seconds: float
    status: int
    failure: str = ""


class Load:
    """Requests until the end of a `with` block: from `clients` that send the next one when they
    have an answer, or at the times of `due` in seconds, whatever the servers do."""

    def __init__(
        self,
        url: str,
        trusted: ssl.SSLContext,
        *,
        clients: int = 0,
        due: Iterable[float] = (),
    ) -> None:
        self.answers: list[Answer] = []
        self._url, self._trusted = url, trusted
        self._clients, self._due = clients, due
        self._numbers = itertools.count()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(timeout=END_TIMEOUT_S)
        assert not self._thread.is_alive(), "requests do not end"

    async def _run(self) -> None:
        limits = httpx.Limits(max_connections=256, max_keepalive_connections=256)
        async with httpx.AsyncClient(
            base_url=self._url, verify=self._trusted, limits=limits, timeout=ANSWER_TIMEOUT_S
        ) as http:
            if self._clients:
                await asyncio.gather(*(self._closed(http) for _ in range(self._clients)))
            else:
                await self._open(http)

    async def _closed(self, http: httpx.AsyncClient) -> None:
        while not self._ended.is_set():
            await self._ask(http, time.monotonic())

    async def _open(self, http: httpx.AsyncClient) -> None:
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for offset in self._due:
                if self._ended.is_set():
                    break
                due = began + offset
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                group.create_task(self._ask(http, due))

    async def _ask(self, http: httpx.AsyncClient, due: float) -> None:
        status, failure = 0, ""
        try:
            # Equal texts that meet would share one run, and a server would do many at once.
            body = {"input": f"short text {next(self._numbers)}"}
            answer = await http.post("/v1/embeddings", json=body)
            status = answer.status_code
            failure = "" if status == httpx.codes.OK else answer.text
        except httpx.HTTPError as error:
            failure = repr(error)
        self.answers.append(Answer(due, time.monotonic() - due, status, failure))

    def failures(self) -> list[str]:
        """What went wrong, of all requests so far."""
        return [f"{answer.status} {answer.failure}" for answer in self.answers if answer.failure]

    def between(self, start: float, end: float) -> list[Answer]:
        """The requests that were due in the span."""
        return [answer for answer in self.answers if start <= answer.due < end]


def evenly(per_second: float) -> Iterator[float]:
    """Times at even distances, without an end."""
    return (number / per_second for number in itertools.count(1))


def p99(answers: list[Answer]) -> float:
    """Seconds that 99 % of the requests took at most."""
    seconds = [answer.seconds for answer in answers]
    return statistics.quantiles(seconds, n=100, method="inclusive")[-1]
