"""What is wanted of the server, beside what was seen."""

import math
from typing import Any

from load.report import Figure, at_least, at_most, share

from .rows import Row
from .scenarios import DEFAULT, FAKE

milliseconds = "{:.2f} ms".format
"""0.3 -> `0.30 ms`."""
rate = "{:,.0f} requests/s".format
"""15000 -> `15,000 requests/s`."""


def capacity_of(rows: list[Row]) -> float:
    """Texts a second of the default server's best closed loop of single texts."""
    return max(
        row.texts_per_s
        for row in rows
        if row.server == DEFAULT and row.texts_each == 1 and row.load.startswith("closed")
    )


def shape_times(benches: list[dict[str, Any]]) -> dict[tuple[int, int], float]:
    """Rows and length -> milliseconds: the mean of the medians before and after."""
    medians: dict[tuple[int, int], list[float]] = {}
    for shape in (shape for bench in benches for shape in bench["shapes"]):
        medians.setdefault((shape["rows"], shape["length"]), []).append(shape["median_ms"])
    return {shape: sum(found) / len(found) for shape, found in medians.items()}


def engine_time(times: dict[tuple[int, int], float], tokens: int) -> float:
    """Milliseconds of the smallest shape of one row that holds a text of so many tokens."""
    known = {length: one for (rows, length), one in times.items() if rows == 1}
    holding = [length for length in known if length >= tokens]
    return known[min(holding)] if holding else math.nan


def largest_batch(times: dict[tuple[int, int], float], most_tokens: int) -> float:
    """Milliseconds of the slowest shape within the batch budget, or of one text alone."""
    within = [
        one for (rows, length), one in times.items() if rows == 1 or rows * length <= most_tokens
    ]
    return max(within, default=math.nan)


def judge(rows: list[Row], seen: dict[str, Any]) -> list[Figure]:
    """`seen`: ceiling, capacity, largest_batch_ms, own_ms, real_per_padded."""
    own, fake = (
        {row.load: row for row in rows if row.server == server} for server in (DEFAULT, FAKE)
    )
    ceiling, over = seen["ceiling"], own["open 300%"].more
    bulk, of_16 = (own[f"closed {load}"].texts_per_s / ceiling for load in ("4 x 32", "16 x 1"))
    added = own["one client"].more.get("added_ms", {}).get("p50")
    beside = own["mixed, interactive"].spread["p99"]
    most = 2 * (seen["largest_batch_ms"] + seen["own_ms"])
    more = fake["one client"].spread["p50"] - fake["GET /health/live"].spread["p50"]
    good = over["goodput_per_s"] / seen["capacity"]
    told = over["with_retry_after"] / over["refused"] if over["refused"] else None
    back = over["came_back_and_succeeded"]
    request = "one client: p50 over the engine's own time for the same request"
    mixed = "interactive p99 beside bulk: 2 x (largest batch + mean text)"
    return [
        at_least("bulk 4 x 32 of the ceiling", bulk, 0.9, share),
        at_least("16 x 1 of the ceiling", of_16, 0.6, share),
        at_most(request, added, 0.3, milliseconds),
        at_most(mixed, beside, most, milliseconds),
        at_least("real tokens of padded ones, bulk", seen["real_per_padded"], 0.9, share),
        at_least("fake engine, 64 x 1", fake["closed 64 x 1"].requests_per_s, 15_000, rate),
        at_most("fake engine, one client: p50 over an empty route's", more, 0.12, milliseconds),
        at_least("overload: goodput of capacity", good, 0.9, share),
        at_least("overload: admitted ones in time", over["admitted_in_time"], 0.99, share),
        at_least("overload: refused ones with Retry-After", told, 1, share),
        at_least("overload: come back when told, and succeed", back, 0.5, share),
    ]
