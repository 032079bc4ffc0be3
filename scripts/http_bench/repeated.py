"""Texts that repeat themselves as queries do: a server with a cache and one without, in turn."""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
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
    every = halves(texts.load(typed.texts // 2, cache))
    draws = DRAWS_SMALL if typed.small else DRAWS
    with (
        tempfile.TemporaryDirectory(prefix="duovec-bench-") as folder,
        servers.duovec(typed.arguments) as plain,
        servers.duovec([*typed.arguments, "--cache-bytes", str(CACHE_BYTES)]) as cached,
    ):
        started = {DEFAULT: plain, CACHED: cached}
        targets = {name: Target(server.url) for name, server in started.items()}
        rows = []
        for number in range(typed.rounds):
            # What was drawn before would all be in the cache.
            queries = drawn(every, draws, number)
            part = Path(folder, str(number))
            driver = Driver(wrk, queries, part, typed.seconds)
            turn = dict(reversed(targets.items())) if number % 2 else targets
            for clients in CLIENTS:
                rows += driver.in_turn(turn, clients, 1, 1)
        healths = {name: servers.health(server) for name, server in started.items()}
    head = heading(typed, len(every), healths)
    write(typed.out, head, rows)
    if found := unexpected(rows, typed.small):
        raise PackageError("; ".join(found))


def halves(every: list[str]) -> list[str]:
    """Both halves of each text: queries are short, and the pages have no more than some thousand
    texts."""
    cuts = [(text, len(text) // 2) for text in every]
    return list(dict.fromkeys(half for text, at in cuts for half in (text[:at], text[at:])))


def drawn(every: list[str], count: int, number: int) -> list[str]:
    """`count` queries of a round: the text of rank r comes in proportion to 1/r."""
    weights = [1 / rank for rank in range(1, len(every) + 1)]
    return random.Random(SEED + number).choices(every, weights, k=count)


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
    """Texts a second with the cache over those without: of each load the median of its rounds."""
    rates: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        rates.setdefault(row.load, {}).setdefault(row.server, []).append(row.texts_per_s)
    pairs = [zip(found[CACHED], found[DEFAULT], strict=True) for found in rates.values()]
    return [statistics.median(cached / plain for cached, plain in pair) for pair in pairs]


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
