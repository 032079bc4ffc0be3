"""What is counted of a soak's requests."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Tally:
    """What became of every request."""

    sent: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    problems: Counter[str] = field(default_factory=Counter)
    items_answered: int = 0
    unavailable_until: float = 0.0
    """While the server is held up from outside, and a little longer, 408 and 503 are right."""

    def problem(self, text: str) -> None:
        """Counts what is told alike."""
        self.ended["wrong"] += 1
        self.problems[text] += 1
