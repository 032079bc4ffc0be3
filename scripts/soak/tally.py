"""What is counted of a soak's requests, when wrong answers came, and memory over the run."""

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


SAMPLE_S = 1.0
STEP, STEPS_A_LINE = 20, 15
"""Samples of a figure, and figures of a line."""


def series(samples: Sequence[float]) -> list[str]:
    """The median of each 20 s of memory, in lines of five minutes."""
    steps = [samples[at : at + STEP] for at in range(0, len(samples), STEP)]
    figures = [f"{statistics.median(step):.0f}" for step in steps]
    return [
        f"  MB from minute {at * STEP / 60:>2.0f}: {' '.join(figures[at : at + STEPS_A_LINE])}"
        for at in range(0, len(figures), STEPS_A_LINE)
    ]


def thirds(samples: Sequence[float]) -> tuple[Sequence[float], Sequence[float]]:
    """The first third of the samples, and the last."""
    count = max(len(samples) // 3, 1)
    return samples[:count], samples[-count:]


def growth(before: Sequence[float], after: Sequence[float]) -> float:
    """How much more there is in the middle of `after` than in the middle of `before`, as a part.

    Single samples scatter by a fifth with what is under way, and what stays in a minute of rest by
    a tenth; medians of a quarter of an hour under load scatter by a hundredth.
    """
    return statistics.median(after) / statistics.median(before) - 1


def spread(samples: Sequence[float]) -> str:
    """The median, with the lowest and the highest."""
    low, high = min(samples), max(samples)
    return f"{statistics.median(samples):.1f} MB ({low:.1f} to {high:.1f})"
