"""The heading and the table of loads."""

from __future__ import annotations

from typing import Any

from load.report import number, table

from .rows import Row

HEAD = ("server", "load", "requests/s", "texts/s", "p50 ms", "p90 ms", "p99 ms", "max ms", "errors")
WORDS = 2
"""Columns of words stand left, those of numbers right."""
SMALL = "a small run shows that everything works; its figures say nothing"


def chosen(healths: dict[str, dict[str, Any]]) -> str:
    """What the server chose in each mode, from its /health by the mode's name: workers, threads of
    each and padded tokens of a batch; in words for the first one."""
    parts = []
    for mode, health in healths.items():
        workers, tuning = health["workers"]["total"], health["tuning"]
        threads, tokens = tuning["threads_per_worker"], tuning["max_batch_tokens"]
        if parts:
            parts.append(f"{mode}: {workers} x {threads}, {tokens}")
        else:
            some = [f"{workers} worker{'s' * (workers != 1)}"]
            some.append(f"{threads} thread{'s' * (threads != 1)}")
            parts.append(f"{mode}: {' x '.join(some)}, batches of {tokens} tokens")
    return "; ".join(parts)


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
