"""What is sent to a server: each kind of load gives rows of results."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from default_package.command import say

from . import latency, open_loop, single, texts
from .open_loop import Answer, Load
from .rows import MIXED_BULK, OVERLOAD, Row, open_row, overload_row, single_row, wrk_row
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
EMPTY_ROUTE = "/health/live"


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


def _driven(load: Load) -> tuple[list[Answer], float]:
    """The answers, and how many cores this program itself took."""
    start, used = time.monotonic(), time.process_time()
    answers = open_loop.run(load)
    return answers, (time.process_time() - used) / (time.monotonic() - start)
