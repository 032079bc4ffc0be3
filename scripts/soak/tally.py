"""What is counted of a soak's requests, when wrong answers came, and memory from rest to rest."""

import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

KINDS_SHOWN = 20
WRONG_SHOWN = 100


def machine_load() -> str:
    """The load of the last minute, and how many threads run or want to right now."""
    minute, _, _, threads, *_ = Path("/proc/loadavg").read_text().split()
    return f"{minute}, {threads.split('/')[0]} threads"


@dataclass
class Tally:
    """What became of every request."""

    sent: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    """What went wrong: status and code, or how a request broke."""
    wrong: list[str] = field(default_factory=list)
    """Each with its moment since the start."""
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
        self.kinds[text] += 1
        now = self.clock()
        self.wrong.append(
            f"wrong at {now - self._start:.1f} s, took {now - began:.3f} s, load {self.load()}: "
            f"{text}"
        )

    def lines(self) -> list[str]:
        """What went wrong: how often each, then each with its moment."""
        kinds = self.kinds.most_common(KINDS_SHOWN)
        told = [f"wrong, {count} times: {text}" for text, count in kinds]
        return told + self.wrong[:WRONG_SHOWN]


def growth(samples: Sequence[float]) -> float:
    """How much more the last third has than the first, as a part: means of both.

    A server that held as many bytes in each of 18 rests had 51 to 58 MB: freed memory goes back by
    pages, and a page stays for one block on it. So means of six rests differ by 2 % (one sigma).
    """
    third = max(len(samples) // 3, 1)
    return statistics.fmean(samples[-third:]) / statistics.fmean(samples[:third]) - 1
