"""Another server and ours in turn, with the same texts and loads; one table with ratios."""

import argparse
import dataclasses
import os
from typing import Any

from default_package.errors import PackageError
from load import report, servers

from . import tables, vectors
from .rows import unexpected
from .scenarios import DEFAULT, Driver, prepared
from .vectors import BASE64, FLOATS, TEI, Dialect, Target

LOADS = ((1, 1), (16, 1), (64, 1), (4, 32))
"""Clients and texts of each request. Other servers take 32 texts of a request by default."""
OTHER = "the other"


def run(typed: argparse.Namespace) -> None:
    """Measures, prints, writes."""
    asked, own_dialect = dialects(typed.dialect, typed.model)
    other = Target(typed.against, asked)
    with prepared(typed) as driver:
        # Before ours is started: that takes a while, and a wrong address is soon told.
        vectors.ask(other, driver.texts[: vectors.LOOKED_AT])
        with servers.duovec(typed.arguments) as server:
            own = Target(server.url, own_dialect)
            outcome = Outcome(typed, {DEFAULT: own, OTHER: other})
            outcome.head(servers.health(server), driver.texts)
            outcome.measure(driver)
    outcome.write()
    outcome.check()


def dialects(name: str, model: str | None) -> tuple[Dialect, Dialect]:
    """How the other server is asked, and how ours is: for vectors of the same form."""
    asked, own = (TEI, FLOATS) if name == "tei" else (BASE64, BASE64)
    if model is not None:
        fields = {**asked.fields, "model": model}
        asked = dataclasses.replace(asked, name=f"{asked.name}, with a model", fields=fields)
    return asked, own


class Outcome:
    """Everything that was seen."""

    def __init__(self, typed: argparse.Namespace, targets: dict[str, Target]) -> None:
        self._typed, self._targets = typed, targets
        self.heading: list[str] = []
        self.pairs: list[tables.Pair] = []

    def head(self, health: dict[str, Any], every: list[str]) -> None:
        """What runs where, and whether both servers give the same vectors."""
        typed = self._typed
        some = every[: vectors.LOOKED_AT]
        own, other = (vectors.ask(target, some) for target in self._targets.values())
        asked = self._targets[OTHER].dialect
        self.heading = [
            f"{os.cpu_count()} cores; {len(every)} texts; in turn, rounds of {typed.seconds:g} s: "
            f"{typed.rounds}; load and both servers on the same machine",
            f"{tables.chosen(health)}, {health['tuning']['precision']}",
            f"{OTHER}: POST {typed.against}{asked.route}; {vectors.likeness(own, other)}",
        ]
        if typed.small:
            self.heading.append(tables.SMALL)

    def measure(self, driver: Driver) -> None:
        """All loads."""
        for target in self._targets.values():
            driver.warm(target)
        for load in LOADS:
            self.pairs.append(
                tables.Pair(*driver.in_turn(self._targets, *load, self._typed.rounds))
            )

    def write(self) -> None:
        """Table on stdout and in a file, JSON."""
        rows = report.table(tables.PAIR_HEAD, tables.lines(self.pairs), tables.WORDS)
        loads = [pair.stored() for pair in self.pairs]
        report.write(self._typed.out, "against", self.heading, [rows], loads=loads)

    def check(self) -> None:
        """Fails when ours failed under any load. What the other one refuses is in the table."""
        found = unexpected([pair.own for pair in self.pairs], self._typed.small)
        silent = [pair for pair in self.pairs if pair.other.requests == pair.other.errors]
        found += [f"{OTHER} server gave no good answer to {pair.load}" for pair in silent]
        if found:
            raise PackageError("; ".join(found))
