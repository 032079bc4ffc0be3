"""The heading, the table of loads, and that of two servers: what each reached, and the ratio."""

import math
from collections.abc import Sequence
from typing import Any

from load.report import number, table

from .rows import Row

HEAD = ("server", "load", "requests/s", "texts/s", "p50 ms", "p90 ms", "p99 ms", "max ms", "errors")
WORDS = 2
"""Columns of words stand left, those of numbers right."""
PAIR_HEAD = ("load", "figure", "duovec", "the other", "ratio", "of each round")
LATENCIES = ("p50", "p99")
SMALL = "a small run shows that everything works; its figures say nothing"


def chosen(health: dict[str, Any]) -> str:
    """What the server chose, from its /health: workers, threads of each, tokens of a batch, and in
    what precision it computes."""
    workers, tuning = health["workers"]["total"], health["tuning"]
    threads, tokens = tuning["threads_per_worker"], tuning["max_batch_tokens"]
    return (
        f"{workers} worker{'s' * (workers != 1)} x {threads} thread{'s' * (threads != 1)}, "
        f"batches of {tokens} tokens, {tuning['precision']}"
    )


def loads(rows: list[Row]) -> str:
    """One line for each kind of load."""
    return table(HEAD, [_cells(row) for row in rows], WORDS)


def _cells(row: Row) -> list[str]:
    rates = [number(row.requests_per_s), number(row.texts_per_s) if row.texts_each else "-"]
    errors = f"{row.errors:,}"
    if silent := row.errors - row.refused:
        errors += f" ({silent:,} silent)"
    spread = [number(row.spread[name]) for name in ("p50", "p90", "p99", "max")]
    return [row.server, row.load, *rates, *spread, errors]


def words(row: Row) -> str:
    """What was sent."""
    one, texts = row.clients, row.texts_each
    return f"{one} client{'s' * (one != 1)} x {texts} text{'s' * (texts != 1)}"


def lines(pairs: Sequence[Sequence[Row]]) -> list[list[str]]:
    """The cells of the table of our server and the other one, each load in turn. Ratios above 1 are
    in duovec's favour, whatever the figure."""
    found = []
    for own, other in pairs:
        rates = own.texts_per_s, other.texts_per_s
        cells = [["texts/s", *map(number, rates), ratio(*rates), rounds(own, other)]]
        for name in LATENCIES:
            times = own.spread[name], other.spread[name]
            cells.append([f"{name} ms", *map(number, times), ratio(times[1], times[0]), ""])
        if own.errors or other.errors:
            cells.append(["failed", f"{own.errors:,}", f"{other.errors:,}", "", ""])
        found += [["" if at else words(own), *line] for at, line in enumerate(cells)]
    return found


def ratio(one: float, other: float) -> str:
    """How many times as much; a dash where it cannot be told."""
    return f"{one / other:.2f}" if other and math.isfinite(one / other) else "-"


def rounds(own: Row, other: Row) -> str:
    """The least and the largest ratio of rounds that followed each other: how far to trust it."""
    pairs = zip(own.more["rounds_texts_per_s"], other.more["rounds_texts_per_s"], strict=True)
    found = [one / two for one, two in pairs if two and math.isfinite(one / two)]
    return f"{min(found):.2f} to {max(found):.2f}" if len(found) > 1 else ""
