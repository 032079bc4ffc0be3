"""One row of results for each kind of load."""

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from load import latency
from load.open_loop import BROKEN, Asked, good_spread, goodput
from load.wrk import Found

OVERLOAD = 3.0
MIXED_BULK = "mixed, bulk"


@dataclass
class Row:
    """One line of the table; latencies are in milliseconds."""

    server: str
    load: str
    clients: int
    texts_each: int
    requests: int
    seconds: float
    spread: dict[str, float]
    errors: int = 0
    """Requests without a good answer."""
    refused: int = 0
    """Those of them whose answer was an error."""
    offered_per_s: float | None = None
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def requests_per_s(self) -> float:
        """Good answers only; not a number when nothing was answered at all."""
        return (self.requests - self.errors) / self.seconds if self.requests else math.nan

    @property
    def texts_per_s(self) -> float:
        return self.requests_per_s * self.texts_each

    def stored(self) -> dict[str, Any]:
        rates = {"requests_per_s": self.requests_per_s, "texts_per_s": self.texts_per_s}
        return asdict(self) | rates


def single_row(found: list[tuple[float, float | None]], server: str, load: str) -> Row:
    """What `single.run` found, and `added_ms`, what of each latency is not the stage `compute`.

    Both are of the same request, so that a machine which is slow for a while does not come in.
    """
    took = [seconds for seconds, _ in found]
    row = Row(server, load, 1, 1, len(took), sum(took), latency.spread(took))
    if added := [seconds - compute for seconds, compute in found if compute is not None]:
        row.more["added_ms"] = latency.spread(added)
    return row


def wrk_row(found: Found, server: str, load: str, clients: int, each: int) -> Row:
    """What wrk found."""
    errors, requests = found.refused + found.broken, found.requests + found.broken
    row = Row(server, load, clients, each, requests, found.seconds, found.spread, errors)
    row.refused = found.refused
    return row


def open_row(answers: list[Asked], server: str, load: str, seconds: float) -> Row:
    """Latencies of good answers, from when they were due."""
    errors = sum(answer.status != 200 for answer in answers)
    row = Row(server, load, 0, 1, len(answers), seconds, good_spread(answers), errors)
    row.refused = sum(answer.status not in (200, BROKEN) for answer in answers)
    row.offered_per_s = len(answers) / seconds
    sent = [answer for answer in answers if answer.status != BROKEN]
    row.more["sent_late_ms"] = latency.spread(answer.sent - answer.due for answer in sent)
    return row


def overload_row(answers: list[Asked], server: str, seconds: float, deadline_s: float) -> Row:
    """The same; goodput counts what was in time while requests came, at the first or second try."""
    row = open_row(answers, server, f"open {OVERLOAD:.0%}", seconds)
    refused = [answer for answer in answers if answer.status == 429]
    again = [answer.retried for answer in refused if answer.retried is not None]
    first, second = (sum(one.in_time(deadline_s) for one in tried) for tried in (answers, again))
    admitted = len(answers) - len(refused)
    row.more |= {
        "goodput_per_s": goodput([*answers, *again], deadline_s, seconds),
        "admitted": admitted,
        "admitted_in_time": first / admitted if admitted else None,
        "refused": len(refused),
        "refused_share": len(refused) / len(answers) if answers else None,
        "with_retry_after": sum(answer.retry_after is not None for answer in refused),
        "came_back": len(again),
        "came_back_and_succeeded": second / len(again) if again else None,
    }
    return row


def unexpected(rows: list[Row], small: bool) -> list[str]:
    """Loads whose figures say nothing, with the reason.

    Only an overload may be refused. A small run measures nothing, and a slow machine that refuses
    what it could not answer in time is not wrong.
    """
    found = []
    for row in rows:
        overload = "deadline_ms" in row.more
        failed = row.errors - (row.refused if small or overload else 0)
        if failed:
            found.append(f"{failed} requests of {row.server}, {row.load}, failed")
        # What wrk runs beside another load may be too short for one answer.
        elif row.requests == row.errors and not (small and (row.refused or row.load == MIXED_BULK)):
            found.append(f"{row.server}, {row.load}, got no good answer")
    return found
