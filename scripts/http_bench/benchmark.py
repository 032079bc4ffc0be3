"""The whole measurement: servers one after the other, then table and JSON."""

import argparse
import math
import os
import statistics
from typing import Any

from default_package.command import say
from default_package.errors import PackageError
from load import report, servers

from . import figures, tables, texts
from .rows import Row, unexpected
from .scenarios import BULK, CLOSED, FAKE, Driver, prepared
from .vectors import FLOATS, Target

OPEN_PARTS = (0.25, 0.5, 0.75, 0.9)
OPEN_PARTS_SMALL = (0.5, 0.9)
SMALL_CEILING_TEXTS = 16
CEILING_TEXTS = 600
"""What `duovec bench` runs 16 times in a minute or two."""


def run(typed: argparse.Namespace) -> None:
    """Measures, prints, writes. Fails when loads did: their figures say nothing."""
    with prepared(typed) as driver:
        outcome = Outcome(typed, driver)
        outcome.own()
        outcome.fake()
    judged = figures.judge(outcome.rows, outcome.seen)
    report.write(
        typed.out,
        "table",
        outcome.heading(),
        [tables.loads(outcome.rows), report.figures(judged)],
        loads=[row.stored() for row in outcome.rows],
        figures=[vars(figure) for figure in judged],
        seen=outcome.seen,
        benches=outcome.benches,
        health=outcome.health,
    )
    if found := unexpected(outcome.rows, typed.small):
        raise PackageError("; ".join(found))


class Outcome:
    """Everything that was seen."""

    def __init__(self, typed: argparse.Namespace, driver: Driver) -> None:
        self._typed, self._driver = typed, driver
        self.rows: list[Row] = []
        self.benches: list[dict[str, Any]] = []
        self.seen: dict[str, Any] = {}
        self.health: dict[str, Any] = {}
        """What /health said before the loads."""

    def _bench(self) -> None:
        say("duovec bench: the ceiling for the same texts")
        count = SMALL_CEILING_TEXTS if self._typed.small else CEILING_TEXTS
        path = self._driver.folder / "ceiling.jsonl"
        texts.write_lines(path, texts.sample(self._driver.texts, count))
        self.benches.append(servers.bench(path, self.health, self._typed.small))

    def own(self) -> None:
        """The real engine; the ceiling before and after its loads."""
        driver = self._driver
        with servers.duovec(self._typed.arguments) as server:
            target = Target(server.url)
            # The server idles meanwhile.
            self.health = server.ask("/health")[1]
            self._bench()
            self._closed(server, target)
            capacity = figures.capacity_of(self.rows)
            if not capacity > 0:
                raise PackageError("the server answered nothing in the closed loop")
            self.seen["capacity"] = capacity
            for part in OPEN_PARTS_SMALL if self._typed.small else OPEN_PARTS:
                self.rows.append(driver.open(target, capacity, part))
            self.rows += driver.mixed(target)
            self.rows.append(driver.overload(target, capacity))
            self.seen["resident_mb"] = server.resident_megabytes()
            if not self._typed.small:
                self._bench()
        # The machine may have changed between the two.
        times = figures.shape_times(self.benches)
        budget = self.health["tuning"]["max_batch_tokens"]
        self.seen |= {
            "ceiling": statistics.mean(self._best()),
            "own_ms": figures.engine_time(times, round(self.benches[0]["texts"]["mean_tokens"])),
            "largest_batch_ms": figures.largest_batch(times, budget),
        }

    def _closed(self, server: servers.Server, target: Target) -> None:
        """One client, and closed loops of several."""
        driver = self._driver
        driver.warm(target)
        self.rows.append(driver.alone(target))
        # On a busy machine the last one takes a minute, and shows nothing new in a small run.
        for clients, each in CLOSED[:-1] if self._typed.small else CLOSED:
            before = server.ask("/health")[1]["tuning"]
            self.rows.append(driver.closed(target, clients, each))
            if (clients, each) == BULK:
                after = server.ask("/health")[1]["tuning"]
                padded = after["tokens_padded"] - before["tokens_padded"]
                real = after["tokens_real"] - before["tokens_real"]
                self.seen["real_per_padded"] = real / padded if padded else math.nan

    def fake(self) -> None:
        """An engine that takes no time: what is left is the server."""
        driver = self._driver
        arguments = ["--engine", "fake", "--fake-run-ms", "0"]
        with servers.duovec([*self._typed.arguments, *arguments]) as server:
            target = Target(server.url, name=FAKE)
            driver.warm(target)
            self.rows += [driver.empty(target), driver.alone(target), driver.closed(target, 64, 1)]
            floats = driver.closed(Target(server.url, FLOATS, FAKE), 64, 1)
            floats.load += ", floats"
            self.rows.append(floats)

    def _best(self) -> list[float]:
        return [bench["texts"]["ways"][0]["texts_per_s"] for bench in self.benches]

    def heading(self) -> list[str]:
        """What ran where."""
        found = self.benches[0]["texts"]
        ceilings = " and ".join(f"{value:.0f}" for value in self._best())
        largest, mean = self.seen["largest_batch_ms"], self.seen["own_ms"]
        overload = next(row for row in self.rows if "deadline_ms" in row.more)
        refused, cores = overload.more["refused_share"], overload.more["load_program_cores"]
        lines = [
            f"{self.health['tuning']['device']}, {os.cpu_count()} cores; "
            f"{len(self._driver.texts)} texts, {found['mean_tokens']:.1f} tokens on average; "
            f"{self._driver.seconds:g} s each; load and server on the same machine",
            tables.chosen(self.health),
            f"duovec bench: {ceilings} texts/s; largest batch {largest:.1f} ms, "
            f"the mean text alone {mean:.1f} ms",
            f"overload: {refused:.0%} refused; the load program itself took {cores:.2f} cores",
        ]
        if self._typed.small:
            lines.append(tables.SMALL)
        return lines
