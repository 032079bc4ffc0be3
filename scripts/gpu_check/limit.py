"""How much time the whole check may take, and each part of it."""

import time

from gpu_check.report import SkipSection

#: A build of the largest model takes a minute, the check of its files some seconds.
COMMAND_SECONDS_MAX = 900.0


class Limit:
    """Counts from its making."""

    def __init__(self, seconds: float | None) -> None:
        self._end = None if seconds is None else time.monotonic() + seconds

    def seconds(self, most: float = COMMAND_SECONDS_MAX) -> float:
        """What a part may take, at most `most`; skips the section when nothing is left."""
        if self._end is None:
            return most
        left = self._end - time.monotonic()
        if left <= 0:
            raise SkipSection("the time of --limit is over")
        return min(most, left)
