"""What is sent to a server, and one row of results for each kind of load."""

from __future__ import annotations

import math
import time
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from default_package.command import say

from . import latency, open_loop, single, texts
from .open_loop import BROKEN, Answer, Load
from .servers import ROUTE
from .wrk import Found, Wrk, together

CLOSED = ((1, 1), (16, 1), (64, 1), (4, 32), (2, 256))
"""Clients and texts of each request."""
BULK = (4, 32)
DEFAULT, THROUGHPUT, FAKE = "duovec", "duovec, throughput", "duovec, fake"
"""Names of servers: as it starts by itself, with `--optimize-for throughput`, and with an engine
that takes no time."""
IN_TURN = ((16, 1), BULK)
"""Closed loops of both modes, in turn."""
LONGER = {1: 1, 32: 2, 256: 3}
"""So many times the seconds by texts of a request: wrk leaves out what is under way at the end,
which is little then."""
AGAIN = 8
"""So many times longer a load runs once more in which nothing was answered."""
OVERLOAD = 3.0
OVERLOAD_DEADLINE_MS = (300.0, 1000.0)
"""A tenth of the overload, within these: the server refuses most of the time."""
TAIL = 2.5
"""Refused requests come back for so many times the overload's own length."""
TAIL_MIN_S = 5.0
INTERACTIVE_PER_S = 10.0
"""Few, so that bulk fills the server, and enough for a 99th percentile in 20 seconds."""
SEED = 7
EDGE_S = 1.0
"""Bulk begins so much before the interactive texts and goes on after them."""
MIXED_BULK = "mixed, bulk"
EMPTY_ROUTE = "/health/live"


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
    """Requests without a good answer."""
    refused: int = 0
    """Those of them whose answer was an error."""
    offered_per_s: float | None = None
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def requests_per_s(self) -> float:
        """Good answers only; not a number when nothing was answered at all."""
        return (self.requests - self.errors) / self.seconds if self.requests else math.nan

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
        found = self._wrk(server, url, clients, each, encoding)
        return wrk_row(found, server, f"closed {clients} x {each}", clients, each)

    def in_turn(self, urls: dict[str, str], clients: int, each: int, twice: bool) -> list[Row]:
        """The same for several servers by name, and once more in reverse order if `twice`: a drift
        of the machine is then as much in the mean of each. One row for each server."""
        order = [*urls, *reversed(urls)] if twice else list(urls)
        seen: dict[str, list[Found]] = {server: [] for server in urls}
        for server in order:
            seen[server].append(self._wrk(server, urls[server], clients, each))
        rows = []
        for server, found in seen.items():
            load = f"closed {clients} x {each}"
            rounds = [wrk_row(one, server, load, clients, each) for one in found]
            row = wrk_row(together(found), server, load, clients, each)
            row.more["rounds_texts_per_s"] = [one.texts_per_s for one in rounds]
            rows.append(row)
        return rows

    def _wrk(
        self, server: str, url: str, clients: int, each: int, encoding: str = "base64"
    ) -> Found:
        seconds = self.seconds * LONGER[each]
        say(f"{server}: {clients} x {each}, {encoding}, {seconds:g} s")
        bodies = self.bodies(each, encoding)
        found = self.wrk.run(url + ROUTE, clients, seconds, bodies)
        if not found.requests:
            say(f"nothing was answered: once more, {seconds * AGAIN:g} s")
            found = self.wrk.run(url + ROUTE, clients, seconds * AGAIN, bodies)
        return found

    def empty(self, server: str, url: str) -> Row:
        """A route that does nothing, for one client on a plain socket."""
        say(f"{server}: an empty route, {self.seconds:g} s")
        host = urlsplit(url).netloc
        wire = f"GET {EMPTY_ROUTE} HTTP/1.1\r\nhost: {host}\r\n\r\n".encode()
        row = single_row(single.run(url, [wire], self.seconds), server, f"GET {EMPTY_ROUTE}")
        row.texts_each = 0
        return row

    def warm(self, url: str) -> None:
        """A second of bulk load that is not counted."""
        clients, each = BULK
        self.wrk.run(url + ROUTE, clients, 1, self.bodies(each, "base64"))

    def alone(self, server: str, url: str) -> Row:
        """One client on a plain socket."""
        say(f"{server}: one client on a plain socket, {self.seconds:g} s")
        load = self.load(url, [])
        wires = [load.wire(body) for body in load.bodies]
        return single_row(single.run(url, wires, self.seconds), server, "one client")

    def open(self, server: str, url: str, capacity: float, part: float) -> Row:
        """Independent clients who together send a part of the capacity."""
        say(f"{server}: open loop at {part:.0%} of {capacity:.0f} texts/s, {self.seconds:g} s")
        due = latency.poisson(capacity * part, self.seconds, SEED)
        answers, cores = _driven(self.load(url, due))
        row = open_row(answers, server, f"open {part:.0%}", self.seconds)
        row.more |= {"part": part, "load_program_cores": cores}
        return row

    def overload(self, server: str, url: str, capacity: float) -> Row:
        """Three times what it can do; refused clients come back when they are told to."""
        tail = max(self.seconds * TAIL, TAIL_MIN_S)
        say(f"{server}: {OVERLOAD:g} x {capacity:.0f} texts/s, {self.seconds:g} s and {tail:g} s")
        due = latency.poisson(capacity * OVERLOAD, self.seconds, SEED)
        least, most = OVERLOAD_DEADLINE_MS
        deadline = round(min(max(self.seconds * 100, least), most))
        load = self.load(url, due, deadline_ms=deadline, tail_s=tail, retry=True)
        answers, cores = _driven(load)
        row = overload_row(answers, server, self.seconds, deadline / 1e3)
        row.more |= {"part": OVERLOAD, "deadline_ms": deadline, "load_program_cores": cores}
        return row

    def mixed(self, server: str, url: str) -> list[Row]:
        """Interactive single texts while bulk clients keep the server busy."""
        seconds = self.seconds * LONGER[BULK[1]]
        say(f"{server}: interactive texts beside bulk, {seconds:g} s")
        due = latency.poisson(INTERACTIVE_PER_S, seconds, SEED)
        clients, each = BULK
        bodies = self.bodies(each, "base64")
        with closing(self.wrk.start(url + ROUTE, clients, seconds + 2 * EDGE_S, bodies)) as bulk:
            time.sleep(EDGE_S)
            answers = open_loop.run(self.load(url, due))
            found = bulk.result()
        few = open_row(answers, server, "mixed, interactive", seconds)
        return [few, wrk_row(found, server, MIXED_BULK, clients, each)]


def single_row(found: list[single.Seen], server: str, load: str) -> Row:
    """One client's latencies, and `added_ms`, what of each is not the stage `compute` of the same
    request, where the server tells that."""
    took = [seen.seconds for seen in found]
    row = Row(server, load, 1, 1, len(took), sum(took), latency.spread(took))
    added = [seen.added_seconds for seen in found if seen.added_seconds is not None]
    if added:
        row.more["added_ms"] = latency.spread(added)
    return row


def _driven(load: Load) -> tuple[list[Answer], float]:
    """The answers, and how many cores this program itself took."""
    start, used = time.monotonic(), time.process_time()
    answers = open_loop.run(load)
    return answers, (time.process_time() - used) / (time.monotonic() - start)


def wrk_row(found: Found, server: str, load: str, clients: int, each: int) -> Row:
    """What wrk found."""
    errors, requests = found.refused + found.broken, found.requests + found.broken
    row = Row(server, load, clients, each, requests, found.seconds, found.spread, errors)
    row.refused = found.refused
    return row


def open_row(answers: list[Answer], server: str, load: str, seconds: float) -> Row:
    """Latencies of good answers, from when they were due."""
    good = [answer for answer in answers if answer.status == 200]
    spread = latency.spread(answer.latency for answer in good)
    errors = len(answers) - len(good)
    row = Row(server, load, 0, 1, len(answers), seconds, spread, errors)
    row.refused = sum(answer.status not in (200, BROKEN) for answer in answers)
    row.offered_per_s = len(answers) / seconds
    sent = [answer for answer in answers if answer.status != BROKEN]
    row.more["sent_late_ms"] = latency.spread(answer.sent - answer.due for answer in sent)
    return row


def overload_row(answers: list[Answer], server: str, seconds: float, deadline_s: float) -> Row:
    """The same; goodput counts what was in time while requests came, at the first or second try."""
    row = open_row(answers, server, f"open {OVERLOAD:.0%}", seconds)
    refused = [answer for answer in answers if answer.status == 429]
    again = [answer.retried for answer in refused if answer.retried is not None]
    first = [answer for answer in answers if answer.in_time(deadline_s)]
    second = [answer for answer in again if answer.in_time(deadline_s)]
    admitted = len(answers) - len(refused)
    row.more |= {
        "goodput_per_s": sum(answer.ended <= seconds for answer in first + second) / seconds,
        "admitted": admitted,
        "admitted_in_time": len(first) / admitted if admitted else None,
        "refused": len(refused),
        "refused_share": len(refused) / len(answers) if answers else None,
        "with_retry_after": sum(answer.retry_after is not None for answer in refused),
        "came_back": len(again),
        "came_back_and_succeeded": len(second) / len(again) if again else None,
    }
    return row


def unexpected(rows: list[Row], small: bool) -> list[str]:
    """Loads whose figures say nothing, with the reason.

    Only an overload may be refused. A small run measures nothing, and a slow machine that refuses
    some of it is not wrong.
    """
    found = []
    for row in rows:
        overload = "deadline_ms" in row.more
        failed = row.errors - (row.refused if small or overload else 0)
        if failed:
            found.append(f"{failed} requests of {row.server}, {row.load}, failed")
        # What wrk runs beside another load may be too short for one answer.
        elif row.requests == row.errors and not (small and row.load == MIXED_BULK):
            found.append(f"{row.server}, {row.load}, got no good answer")
    return found
