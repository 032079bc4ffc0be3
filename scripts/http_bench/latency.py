"""Percentiles of latencies, and when requests of an open loop are due."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence

PARTS = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


def percentile(ordered: Sequence[float], part: float) -> float:
    """The least value that `part` of all values do not exceed; not a number when there is none."""
    if not ordered:
        return math.nan
    # What rounding adds to a product such as 0.29 * 100 must not count as one more value.
    rank = math.ceil(part * len(ordered) - 1e-9)
    return ordered[min(max(rank, 1), len(ordered)) - 1]


def spread(seconds: Iterable[float]) -> dict[str, float]:
    """Percentiles in milliseconds of latencies in seconds."""
    ordered = sorted(seconds)
    return {name: percentile(ordered, part) * 1e3 for name, part in PARTS.items()}


def poisson(rate: float, seconds: float, seed: int) -> list[float]:
    """Due times of independent clients who together send `rate` requests a second."""
    chance = random.Random(seed)
    due: list[float] = []
    at = chance.expovariate(rate)
    while at < seconds:
        due.append(at)
        at += chance.expovariate(rate)
    return due


def regular(rate: float, seconds: float) -> list[float]:
    """Due times at equal distances."""
    return [number / rate for number in range(math.ceil(rate * seconds - 1e-9))]
