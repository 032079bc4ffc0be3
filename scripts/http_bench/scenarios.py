"""What is sent to a server: each kind of load gives rows of results."""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from default_package.command import say
from load import aside, latency
from load.connection import request
from load.open_loop import Load, answers_of
from load.wrk import Found, Wrk, together

from . import single, texts
from .rows import MIXED_BULK, OVERLOAD, Row, open_row, overload_row, single_row, wrk_row
from .vectors import Dialect, Target

CLOSED = ((1, 1), (16, 1), (64, 1), (4, 32), (2, 256))
"""Clients and texts of each request."""
BULK = (4, 32)
DEFAULT, FAKE = Target.name, "duovec, fake"
"""Names of servers: with the arguments that were typed, and with an engine that takes no time."""
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
TEXTS, TEXTS_SMALL = 3000, 200


@dataclass
class Driver:
    """Sends the same texts to any server."""

    wrk: Wrk
    texts: list[str]
    folder: Path
    """Where bodies are written for wrk."""
    seconds: float

    def bodies(self, each: int, dialect: Dialect) -> Path:
        """A file of bodies, one a line."""
        path = self.folder / f"bodies-{each}-{dialect.name}.jsonl"
        if not path.exists():
            texts.write_lines(path, texts.bodies(self.texts, each, dialect))
        return path

    def load(self, target: Target, due: list[float], **more: Any) -> Load:
        """Single texts in an open loop."""
        return Load(target.address, texts.bodies(self.texts, 1, target.dialect), due, **more)

    def closed(self, target: Target, clients: int, each: int) -> Row:
        """wrk: each client has one request under way."""
        found = self._wrk(target, clients, each)
        return wrk_row(found, target.name, f"closed {clients} x {each}", clients, each)

    def in_turn(self, targets: list[Target], clients: int, each: int, rounds: int) -> list[Row]:
        """The same for several servers, every second round in reverse order: a steady drift of the
        machine is then as much in the mean of each. One row for each server."""
        seen: dict[str, list[Found]] = {target.name: [] for target in targets}
        for number in range(rounds):
            for target in reversed(targets) if number % 2 else targets:
                seen[target.name].append(self._wrk(target, clients, each))
        rows, load = [], f"closed {clients} x {each}"
        for server, found in seen.items():
            rounds = [wrk_row(one, server, load, clients, each) for one in found]
            row = wrk_row(together(found), server, load, clients, each)
            row.more["rounds_texts_per_s"] = [one.texts_per_s for one in rounds]
            rows.append(row)
        return rows

    def _wrk(self, target: Target, clients: int, each: int) -> Found:
        seconds = self.seconds * LONGER[each]
        say(f"{target.name}: {clients} x {each}, {target.dialect.name}, {seconds:g} s")
        bodies = self.bodies(each, target.dialect)
        found = self.wrk.run(target.address, clients, seconds, bodies)
        if not found.requests:
            say(f"nothing was answered: once more, {seconds * AGAIN:g} s")
            found = self.wrk.run(target.address, clients, seconds * AGAIN, bodies)
        return found

    def empty(self, target: Target) -> Row:
        """A route that does nothing, for one client on a plain socket."""
        say(f"{target.name}: an empty route, {self.seconds:g} s")
        found = single.run(target.url, [request(target.url, "GET", EMPTY_ROUTE)], self.seconds)
        row = single_row(found, target.name, f"GET {EMPTY_ROUTE}")
        row.texts_each = 0
        return row

    def warm(self, target: Target) -> None:
        """A second of bulk load that is not counted."""
        clients, each = BULK
        self.wrk.run(target.address, clients, 1, self.bodies(each, target.dialect))

    def alone(self, target: Target) -> Row:
        """One client on a plain socket."""
        say(f"{target.name}: one client on a plain socket, {self.seconds:g} s")
        load = self.load(target, [])
        wires = [load.wire(body) for body in load.bodies]
        return single_row(single.run(target.url, wires, self.seconds), target.name, "one client")

    def open(self, target: Target, capacity: float, part: float) -> Row:
        """Independent clients who together send a part of the capacity."""
        say(f"{target.name}: open loop at {part:.0%} of {capacity:.0f} texts/s, {self.seconds:g} s")
        due = latency.poisson(capacity * part, self.seconds, SEED)
        driven = aside.run(answers_of, self.load(target, due))
        row = open_row(driven.found, target.name, f"open {part:.0%}", self.seconds)
        row.more |= {"part": part, "load_program_cores": driven.cores}
        return row

    def overload(self, target: Target, capacity: float) -> Row:
        """Three times what it can do; refused clients come back when they are told to."""
        tail = max(self.seconds * TAIL, TAIL_MIN_S)
        say(f"{target.name}: {OVERLOAD:g} x {capacity:.0f} texts/s, {self.seconds:g} + {tail:g} s")
        due = latency.poisson(capacity * OVERLOAD, self.seconds, SEED)
        least, most = OVERLOAD_DEADLINE_MS
        deadline = round(min(max(self.seconds * 100, least), most))
        load = self.load(target, due, deadline_ms=deadline, tail_s=tail, retry=True)
        driven = aside.run(answers_of, load)
        row = overload_row(driven.found, target.name, self.seconds, deadline / 1e3)
        row.more |= {"part": OVERLOAD, "deadline_ms": deadline, "load_program_cores": driven.cores}
        return row

    def mixed(self, target: Target) -> list[Row]:
        """Interactive single texts while bulk clients keep the server busy."""
        seconds = self.seconds * LONGER[BULK[1]]
        say(f"{target.name}: interactive texts beside bulk, {seconds:g} s")
        due = latency.poisson(INTERACTIVE_PER_S, seconds, SEED)
        clients, each = BULK
        bodies, span = self.bodies(each, target.dialect), seconds + 2 * EDGE_S
        with closing(self.wrk.start(target.address, clients, span, bodies)) as bulk:
            time.sleep(EDGE_S)
            answers = asyncio.run(answers_of(self.load(target, due)))
            found = bulk.result()
        few = open_row(answers, target.name, "mixed, interactive", seconds)
        return [few, wrk_row(found, target.name, MIXED_BULK, clients, each)]


@contextmanager
def prepared(typed: argparse.Namespace) -> Iterator[Driver]:
    """A driver with the texts and the seconds that were typed; fetches what it needs."""
    wrk, every = Wrk.found(), texts.load(TEXTS_SMALL if typed.small else TEXTS)
    with tempfile.TemporaryDirectory(prefix="duovec-bench-") as folder:
        yield Driver(wrk, every, Path(folder), typed.seconds)
