"""Lanes beside one worker a core and one worker over all cores, in turn, from one client to
saturation. With two cores these are all ways that there are: figures of more cores are welcome."""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
from pathlib import Path
from typing import Any

from debian_texts import packages
from default_package.command import say
from default_package.errors import PackageError

from . import report, servers, texts
from .dialect import Target
from .rows import Row, unexpected
from .scenarios import Driver
from .wrk import Wrk

LANES, NARROW, WIDE = "lanes", "N x 1", "1 x N"


def run(typed: argparse.Namespace) -> None:
    """Measures, prints, writes."""
    if not servers.chooses_itself(typed.arguments):
        raise PackageError("--lanes needs a server that shares the cores as it likes")
    cache = packages.default_cache().parent
    wrk = Wrk.found(cache)
    every = texts.load(typed.texts, cache)
    with (
        tempfile.TemporaryDirectory(prefix="duovec-bench-") as folder,
        servers.duovec(typed.arguments) as own,
    ):
        health = servers.health(own)
        widths = health["tuning"]["lanes"]
        cores = widths[0]["lanes"] * widths[0]["width"]
        with (
            servers.duovec([*typed.arguments, "--workers", str(cores)]) as narrow,
            servers.duovec([*typed.arguments, "--workers", "1"]) as wide,
        ):
            started = {LANES: own, NARROW: narrow, WIDE: wide}
            targets = {name: Target(server.url) for name, server in started.items()}
            driver = Driver(wrk, every, Path(folder), typed.seconds)
            rows = []
            for clients, each in loads(cores):
                rows += driver.in_turn(targets, clients, each, typed.rounds)
    write(typed.out, heading(typed, cores, len(every), health), rows)
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
        lines.append("a small run shows that everything works; its figures say nothing")
    return lines


def ratios(rows: list[Row]) -> dict[str, float]:
    """Of each load the texts a second of lanes over those of the better other way."""
    rates: dict[str, dict[str, float]] = {}
    for row in rows:
        rates.setdefault(row.load, {})[row.server] = row.texts_per_s
    return {load: of[LANES] / max(of[NARROW], of[WIDE]) for load, of in rates.items()}


def write(out: Path, head: list[str], rows: list[Row]) -> None:
    """Table on stdout and in a file, JSON."""
    out.mkdir(parents=True, exist_ok=True)
    beside = [f"{load}: {report.number(ratio)}" for load, ratio in ratios(rows).items()]
    last = f"texts/s of lanes over those of the better other way: {', '.join(beside)}"
    text = "\n\n".join([*head, report.loads(rows), last])
    print(text, flush=True)
    stored = {
        "machine": platform.platform(),
        "heading": head,
        "loads": [row.stored() for row in rows],
        "ratios": ratios(rows),
    }
    (out / "lanes.md").write_text(text + "\n", encoding="utf-8")
    written = json.dumps(report.finite(stored), indent=1)
    (out / "lanes.json").write_text(written, encoding="utf-8")
    say(f"wrote {out}")
