"""Percentiles of latencies, and when requests of an open loop are due."""

import math
import random
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import accumulate

PARTS = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


def spread(seconds: Iterable[float]) -> dict[str, float]:
    """Percentiles in milliseconds of latencies in seconds."""
    return spread_of_counts(Counter(one * 1e6 for one in seconds))


def spread_of_counts(counts: Mapping[int, int] | Mapping[float, int]) -> dict[str, float]:
    """Percentiles in milliseconds of how often each number of microseconds was seen: the least
    value that such a part of all values do not exceed. Not a number when there is none."""
    seen: list[tuple[float, int]] = sorted(counts.items())
    upto = list(accumulate(count for _, count in seen))
    total = upto[-1] if upto else 0

    def at(part: float) -> float:
        return seen[bisect_left(upto, math.ceil(part * total))][0] / 1e3 if total else math.nan

    return {name: at(part) for name, part in PARTS.items()}


def without_correction(counts: Mapping[int, int], interval_us: int) -> dict[int, int]:
    """What was seen, from counts to which wrk has added.

    For each latency of at least twice the mean `interval_us` wrk adds those that clients would have
    had who sent at that interval: one interval less, two less, as long as more than one is left.
    In a closed loop no client does so. The largest value has nothing added to it, so that
    subtracting from there on downwards gives the first counts exactly.
    """
    left = dict(counts)
    for value in sorted(counts, reverse=True):
        if value < 2 * interval_us:
            break
        for less in range(value - interval_us, interval_us, -interval_us):
            left[less] = left.get(less, 0) - left[value]
    return {value: count for value, count in left.items() if count}


def poisson(rate: float, seconds: float, seed: int) -> list[float]:
    """Due times of independent clients who together send `rate` requests a second."""
    chance = random.Random(seed)
    due: list[float] = []
    at = chance.expovariate(rate)
    while at < seconds:
        due.append(at)
        at += chance.expovariate(rate)
    return due
