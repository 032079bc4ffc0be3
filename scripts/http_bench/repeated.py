"""Texts that repeat themselves as queries do: a server with a cache and one without, in turn."""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import tempfile
from pathlib import Path
from typing import Any

from debian_texts import packages
from default_package.command import say
from default_package.errors import PackageError

from . import report, servers, texts
from .dialect import Target
from .rows import Row, unexpected
from .scenarios import DEFAULT, Driver
from .wrk import Wrk

CACHED = "duovec, cache"
"""The name of the server with a cache."""
CACHE_BYTES = 256 << 20
CLIENTS = (1, 16, 64)
DRAWS = 50_000
DRAWS_SMALL = 1_000
SEED = 11


def run(typed: argparse.Namespace) -> None:
    """Measures, prints, writes."""
    cache = packages.default_cache().parent
    wrk = Wrk.found(cache)
    every = texts.load(typed.texts, cache)
    queries = drawn(every, DRAWS_SMALL if typed.small else DRAWS)
    with (
        tempfile.TemporaryDirectory(prefix="duovec-bench-") as folder,
        servers.duovec(typed.arguments) as plain,
        servers.duovec([*typed.arguments, "--cache-bytes", str(CACHE_BYTES)]) as cached,
    ):
        driver = Driver(wrk, queries, Path(folder), typed.seconds)
        started = {DEFAULT: plain, CACHED: cached}
        targets = {name: Target(server.url) for name, server in started.items()}
        rows = [
            row for clients in CLIENTS for row in driver.in_turn(targets, clients, 1, typed.rounds)
        ]
        healths = {name: servers.health(server) for name, server in started.items()}
    head = heading(typed, len(every), healths)
    write(typed.out, head, rows)
    if found := unexpected(rows, typed.small):
        raise PackageError("; ".join(found))


def drawn(every: list[str], count: int) -> list[str]:
    """`count` queries: the text of rank r comes in proportion to 1/r."""
    weights = [1 / rank for rank in range(1, len(every) + 1)]
    return random.Random(SEED).choices(every, weights, k=count)


def heading(
    typed: argparse.Namespace, distinct: int, healths: dict[str, dict[str, Any]]
) -> list[str]:
    """What ran where, and how much of it repeated itself."""
    tuning = healths[CACHED]["tuning"]
    cache = tuning["cache"]
    looked_up = cache["hits"] + cache["misses"]
    shared = {name: health["tuning"]["items_coalesced"] for name, health in healths.items()}
    items = healths[DEFAULT]["tuning"]["items"]["accepted"]
    lines = [
        f"{tuning['device']}, {os.cpu_count()} cores, {tuning['precision']}; {distinct} texts, "
        f"drawn with exponent 1; in turn, rounds of {typed.seconds:g} s: {typed.rounds}; load "
        "and both servers on the same machine",
        f"without a cache {_part(shared[DEFAULT], items)} of the texts shared a run; with "
        f"{CACHE_BYTES >> 20} MiB {_part(cache['hits'], looked_up)} were in the cache, which held "
        f"{cache['entries']} texts in {cache['bytes'] / 2**20:.1f} MiB",
    ]
    if typed.small:
        lines.append("a small run shows that everything works; its figures say nothing")
    return lines


def ratios(rows: list[Row]) -> list[float]:
    """Texts a second with the cache over those without, one for each load."""
    rates: dict[str, dict[str, float]] = {}
    for row in rows:
        rates.setdefault(row.load, {})[row.server] = row.texts_per_s
    return [found[CACHED] / found[DEFAULT] for found in rates.values()]


def write(out: Path, head: list[str], rows: list[Row]) -> None:
    """Table on stdout and in a file, JSON."""
    out.mkdir(parents=True, exist_ok=True)
    times = ", ".join(f"{report.number(ratio)} times" for ratio in ratios(rows))
    text = "\n\n".join([*head, report.loads(rows), f"texts/s with the cache: {times} as many"])
    print(text, flush=True)
    stored = {
        "machine": platform.platform(),
        "heading": head,
        "loads": [row.stored() for row in rows],
        "ratios": ratios(rows),
    }
    (out / "repeated.md").write_text(text + "\n", encoding="utf-8")
    written = json.dumps(report.finite(stored), indent=1)
    (out / "repeated.json").write_text(written, encoding="utf-8")
    say(f"wrote {out}")


def _part(some: int, every: int) -> str:
    return f"{some / every:.0%}" if every else "nothing"
