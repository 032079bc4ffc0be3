"""Lanes beside one worker a core and one worker over all cores, in turn, from one client to
saturation. With two cores these are all ways that there are: figures of more cores are welcome."""

import argparse
import os
from typing import Any

from default_package.errors import PackageError
from load import report, servers

from . import tables
from .rows import Row, unexpected
from .scenarios import prepared
from .vectors import Target

LANES, NARROW, WIDE = "lanes", "N x 1", "1 x N"


def run(typed: argparse.Namespace) -> None:
    """Measures, prints, writes."""
    if not servers.chooses_itself(typed.arguments):
        raise PackageError("--lanes needs a server that shares the cores as it likes")
    with prepared(typed) as driver, servers.duovec(typed.arguments) as own:
        health = servers.health(own)
        widths = health["tuning"]["lanes"]
        cores = widths[0]["lanes"] * widths[0]["width"]
        with (
            servers.duovec([*typed.arguments, "--workers", str(cores)]) as narrow,
            servers.duovec([*typed.arguments, "--workers", "1"]) as wide,
        ):
            started = {LANES: own, NARROW: narrow, WIDE: wide}
            targets = {name: Target(server.url) for name, server in started.items()}
            rows = []
            for clients, each in loads(cores):
                rows += driver.in_turn(targets, clients, each, typed.rounds)
    beside = ratios(rows)
    told = ", ".join(f"{load}: {report.number(ratio)}" for load, ratio in beside.items())
    last = f"texts/s of lanes over those of the better other way: {told}"
    report.write(
        typed.out,
        "lanes",
        heading(typed, cores, len(driver.texts), health),
        [tables.loads(rows), last],
        loads=[row.stored() for row in rows],
        ratios=beside,
    )
    if found := unexpected(rows, typed.small):
        raise PackageError("; ".join(found))


def loads(cores: int) -> list[tuple[int, int]]:
    """Clients and texts of each of their requests; those of the simulation."""
    clients = {1, 2, cores // 4, cores // 2, cores, 4 * cores} - {0}
    bulk = sorted({1, 4, cores})
    return [(number, 1) for number in sorted(clients)] + [(number, 32) for number in bulk]


def heading(
    typed: argparse.Namespace, cores: int, distinct: int, health: dict[str, Any]
) -> list[str]:
    """What ran where."""
    tuning = health["tuning"]
    lanes = ", ".join(f"{of['lanes']} of width {of['width']}" for of in tuning["lanes"])
    lines = [
        f"{tuning['device']}, {cores} cores, {os.cpu_count()} hardware threads, "
        f"{tuning['precision']}; {distinct} texts; in turn, {typed.rounds} rounds of "
        f"{typed.seconds:g} s; load and all servers on the same machine",
        f"lanes: {lanes}",
    ]
    if typed.small:
        lines.append(tables.SMALL)
    return lines


def ratios(rows: list[Row]) -> dict[str, float]:
    """Of each load the texts a second of lanes over those of the better other way."""
    rates: dict[str, dict[str, float]] = {}
    for row in rows:
        rates.setdefault(row.load, {})[row.server] = row.texts_per_s
    return {load: of[LANES] / max(of[NARROW], of[WIDE]) for load, of in rates.items()}
