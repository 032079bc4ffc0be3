"""What is sent to a server, and one row of results for each kind of load."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from default_package.command import say

from . import latency, open_loop, single, texts
from .open_loop import Answer, Load
from .servers import ROUTE
from .wrk import Wrk

CLOSED = ((1, 1), (16, 1), (64, 1), (4, 32), (2, 256))
"""Clients and texts of each request."""
BULK = (4, 32)
BULK_TIMES = 2
"""So much longer than the others: wrk leaves out what is under way at the end, which is little
then."""
OVERLOAD = 3.0
OVERLOAD_DEADLINE_MS = (300.0, 1000.0)
"""A tenth of the overload, within these: the queue is full and refuses most of the time."""
TAIL = 2.5
"""Refused requests come back for so many times the overload's own length."""
TAIL_MIN_S = 5.0
INTERACTIVE_PER_S = 4.0
SEED = 7


@dataclass
class Row:
    """One line of the table; latencies are in milliseconds."""

    server: str
    load: str
    clients: int
    texts_each: int
    requests: int
    seconds: float
    spread: dict[str, float]
    errors: int = 0
    offered_per_s: float | None = None
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def requests_per_s(self) -> float:
        """Good answers only."""
        return (self.requests - self.errors) / self.seconds

    @property
    def texts_per_s(self) -> float:
        """Texts of good answers."""
        return self.requests_per_s * self.texts_each

    def stored(self) -> dict[str, Any]:
        """For JSON."""
        rates = {"requests_per_s": self.requests_per_s, "texts_per_s": self.texts_per_s}
        return asdict(self) | rates


@dataclass
class Driver:
    """Sends the same texts to any server."""

    wrk: Wrk
    texts: list[str]
    folder: Path
    """Where bodies are written for wrk."""
    seconds: float

    def bodies(self, each: int, encoding: str) -> Path:
        """A file of bodies, one a line."""
        path = self.folder / f"bodies-{each}-{encoding}.jsonl"
        if not path.exists():
            texts.write_lines(path, texts.bodies(self.texts, each, encoding))
        return path

    def load(self, url: str, due: list[float], **more: Any) -> Load:
        """Single texts in an open loop."""
        return Load(url + ROUTE, texts.bodies(self.texts, 1, "base64"), due, **more)

    def closed(
        self, server: str, url: str, clients: int, each: int, encoding: str = "base64"
    ) -> Row:
        """wrk: each client has one request under way."""
        seconds = self.seconds * (1 if each == 1 else BULK_TIMES)
        say(f"{server}: {clients} x {each}, {encoding}, {seconds:g} s")
        found = self.wrk.run(url + ROUTE, clients, seconds, self.bodies(each, encoding))
        return wrk_row(found, server, f"closed {clients} x {each}", clients, each)

    def empty(self, server: str, url: str) -> Row:
        """A route that does nothing."""
        say(f"{server}: an empty route, {self.seconds:g} s")
        found = self.wrk.run(url + "/health/live", 1, self.seconds, None)
        return wrk_row(found, server, "GET /health/live", 1, 0)

    def warm(self, url: str) -> None:
        """A second of bulk load that is not counted."""
        clients, each = BULK
        self.wrk.run(url + ROUTE, clients, 1, self.bodies(each, "base64"))

    def alone(self, server: str, url: str, engine_ms: Callable[[int], float] | None) -> Row:
        """One client on a plain socket; beside it, what the engine takes for each text."""
        say(f"{server}: one client beside the engine's own time, {self.seconds:g} s")
        found = single.run(self.load(url, []), self.seconds)
        took = [seconds for seconds, _ in found]
        row = Row(server, "one client", 1, 1, len(took), sum(took), latency.spread(took))
        if engine_ms is not None:
            added = [seconds - engine_ms(tokens) / 1e3 for seconds, tokens in found]
            row.more["added"] = latency.spread(added)
        return row

    def open(self, server: str, url: str, capacity: float, part: float) -> Row:
        """Independent clients who together send a part of the capacity."""
        say(f"{server}: open loop at {part:.0%} of {capacity:.0f} texts/s, {self.seconds:g} s")
        due = latency.poisson(capacity * part, self.seconds, SEED)
        answers = open_loop.run(self.load(url, due))
        row = open_row(answers, server, f"open {part:.0%}", self.seconds)
        row.more["part"] = part
        return row

    def overload(self, server: str, url: str, capacity: float) -> Row:
        """Three times what it can do; refused clients come back when they are told to."""
        tail = max(self.seconds * TAIL, TAIL_MIN_S)
        say(f"{server}: {OVERLOAD:g} x {capacity:.0f} texts/s, {self.seconds:g} s and {tail:g} s")
        due = latency.poisson(capacity * OVERLOAD, self.seconds, SEED)
        least, most = OVERLOAD_DEADLINE_MS
        deadline = round(min(max(self.seconds * 100, least), most))
        load = self.load(url, due, deadline_ms=deadline, tail_s=tail, retry=True)
        row = overload_row(open_loop.run(load), server, f"open {OVERLOAD:.0%}", self.seconds)
        row.more["part"] = OVERLOAD
        return row

    def mixed(self, server: str, url: str) -> list[Row]:
        """Interactive single texts while bulk clients keep the server busy."""
        say(f"{server}: interactive texts beside bulk, {self.seconds:g} s")
        due = latency.regular(INTERACTIVE_PER_S, self.seconds)
        clients, each = BULK
        bodies = self.bodies(each, "base64")
        with closing(self.wrk.start(url + ROUTE, clients, self.seconds * 2, bodies)) as bulk:
            time.sleep(self.seconds / 2)
            answers = open_loop.run(self.load(url, due))
            found = bulk.result()
        few = open_row(answers, server, "mixed, interactive", self.seconds)
        return [few, wrk_row(found, server, "mixed, bulk", clients, each)]


def wrk_row(found: dict[str, Any], server: str, load: str, clients: int, each: int) -> Row:
    """What wrk found."""
    spread = {name: found[name] if found["requests"] else math.nan for name in latency.PARTS}
    errors = found["refused"] + found["broken"]
    requests = found["requests"] + found["broken"]
    return Row(server, load, clients, each, requests, found["seconds"], spread, errors)


def open_row(answers: list[Answer], server: str, load: str, seconds: float) -> Row:
    """Latencies of good answers, from when they were due."""
    good = [answer for answer in answers if answer.status == 200]
    spread = latency.spread(answer.latency for answer in good)
    errors = len(answers) - len(good)
    row = Row(server, load, 0, 1, len(answers), seconds, spread, errors)
    row.offered_per_s = len(answers) / seconds
    row.more["sent_late"] = latency.spread(answer.sent - answer.due for answer in answers)
    return row


def overload_row(answers: list[Answer], server: str, load: str, seconds: float) -> Row:
    """The same; the rate counts what was answered while requests came, first or second try."""
    row = open_row(answers, server, load, seconds)
    refused = [answer for answer in answers if answer.status == 429]
    again = [answer.retried for answer in refused if answer.retried is not None]
    good = [answer for answer in answers if answer.status == 200]
    second = [answer for answer in again if answer.status == 200]
    admitted = len(answers) - len(refused)
    row.more |= {
        "goodput_per_s": sum(answer.ended <= seconds for answer in good + second) / seconds,
        "admitted": admitted,
        "admitted_in_time": len(good) / admitted if admitted else None,
        "refused": len(refused),
        "with_retry_after": sum(answer.retry_after is not None for answer in refused),
        "came_back": len(again),
        "came_back_and_succeeded": len(second) / len(again) if again else None,
    }
    # Refusing is what is wanted here.
    row.more["not_answered"] = admitted - len(good)
    return row
