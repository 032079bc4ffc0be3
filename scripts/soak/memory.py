"""Resident memory over a run: samples, the series that is printed, and whether it grew."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

SAMPLE_S = 1.0
STEP_S = 20.0
STEPS_A_LINE = 15


@dataclass
class MemorySeries:
    """What was read since the start: at which second, how many MB."""

    samples: list[tuple[float, float]] = field(default_factory=list)

    async def sample(self, read: Callable[[], float]) -> None:
        """Reads each second until it is cancelled."""
        clock = asyncio.get_running_loop().time
        start = clock()
        while True:
            self.samples.append((clock() - start, read()))
            await asyncio.sleep(SAMPLE_S)

    def last(self, seconds: float) -> list[float]:
        """The samples of the last `seconds`."""
        start = self.samples[-1][0] - seconds
        return [megabytes for at, megabytes in self.samples if at >= start]

    def lines(self) -> list[str]:
        """The median of each 20 s, in lines of five minutes."""
        steps: dict[int, list[float]] = {}
        for at, megabytes in self.samples:
            steps.setdefault(int(at / STEP_S), []).append(megabytes)
        lines: dict[int, list[str]] = {}
        for step, found in steps.items():
            figures = lines.setdefault(step // STEPS_A_LINE, [])
            figures.append(f"{statistics.median(found):.0f}")
        minutes = STEP_S * STEPS_A_LINE / 60
        return [
            f"  MB from minute {line * minutes:>2.0f}: {' '.join(found)}"
            for line, found in lines.items()
        ]


def growth(before: Sequence[float], after: Sequence[float]) -> float:
    """How much more there is in the middle of `after` than in the middle of `before`, as a part.

    Single samples scatter by a twentieth with what is under way; medians of a minute do not.
    """
    return statistics.median(after) / statistics.median(before) - 1


def spread(samples: Sequence[float]) -> str:
    """The median, with the lowest and the highest."""
    low, high = min(samples), max(samples)
    return f"{statistics.median(samples):.1f} MB ({low:.1f} to {high:.1f})"
