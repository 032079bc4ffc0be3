"""What is counted of a soak's requests, and when the wrong answers came."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

KINDS_SHOWN = 20
WRONG_SHOWN = 100


@dataclass(frozen=True)
class Wrong:
    """A request that did not end as it should."""

    at_s: float
    """Since the start."""
    took_s: float
    load: str
    text: str
    """Status and code, or how the request broke."""

    def line(self) -> str:
        """For the report."""
        return (
            f"wrong at {self.at_s:.1f} s, took {self.took_s:.3f} s, load {self.load}: {self.text}"
        )


def machine_load() -> str:
    """The load of the last minute, and how many threads run or want to right now."""
    minute, _, _, threads, *_ = Path("/proc/loadavg").read_text().split()
    return f"{minute}, {threads.split('/')[0]} threads"


@dataclass
class Tally:
    """What became of every request."""

    sent: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    wrong: list[Wrong] = field(default_factory=list)
    items_answered: int = 0
    unavailable_until: float = 0.0
    """While the server is held up from outside, and a little longer, 408 and 503 are right."""
    clock: Callable[[], float] = time.monotonic
    load: Callable[[], str] = machine_load

    def __post_init__(self) -> None:
        """The start is now."""
        self._start = self.clock()

    def problem(self, text: str, began: float) -> None:
        """Counts a request that began at `began` by the clock."""
        self.ended["wrong"] += 1
        now = self.clock()
        self.wrong.append(Wrong(now - self._start, now - began, self.load(), text))

    def lines(self) -> list[str]:
        """What went wrong: how often each, then each with its moment."""
        kinds = Counter(one.text for one in self.wrong).most_common(KINDS_SHOWN)
        return [f"wrong, {count} times: {text}" for text, count in kinds] + [
            one.line() for one in self.wrong[:WRONG_SHOWN]
        ]
