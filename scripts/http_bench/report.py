"""Tables that read well as they are and as Markdown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .figures import Figure
from .rows import Row

HEAD = ("server", "load", "requests/s", "texts/s", "p50 ms", "p90 ms", "p99 ms", "max ms", "errors")
WORDS = 2
"""Columns of words stand left, those of numbers right."""


def table(head: Sequence[str], rows: Sequence[Sequence[str]], words: int) -> str:
    """Aligned columns; the first `words` of them to the left."""
    widths = [max(len(line[at]) for line in (head, *rows)) for at in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        padded = [
            cell.ljust(width) if at < words else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return f"| {' | '.join(padded)} |"

    rule = [
        "-" * (width + 2) if at < words else "-" * (width + 1) + ":"
        for at, width in enumerate(widths)
    ]
    return "\n".join([line(head), f"|{'|'.join(rule)}|", *(line(cells) for cells in rows)])


def number(value: float) -> str:
    """Three digits that count, and a dash for what is not a number."""
    if math.isnan(value):
        return "-"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}"


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


def figures(found: list[Figure]) -> str:
    """What was reached, and what is wanted."""
    cells = [[one.what, one.reached, one.wanted, one.verdict] for one in found]
    return table(("figure", "reached", "wanted", "PASS or MISS"), cells, 4)


def finite(value: Any) -> Any:
    """JSON has no word for what is not a number: null."""
    if isinstance(value, dict):
        return {key: finite(one) for key, one in value.items()}
    if isinstance(value, list):
        return [finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
