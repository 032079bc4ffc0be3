"""A neighbour on the machine: a program that takes one core for half of the time.

It is a process of its own, which ends with its input: when it is closed, or when whoever started
it is gone.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator

PERIOD_S = 0.1
"""Longer than a scheduler's time slice, so that it takes the core away and gives it back."""
SHARE = 0.5
END_TIMEOUT_S = 10


class Neighbour:
    """What it took."""

    cores = 0.0
    """Known behind the block; less than SHARE where the servers left it less."""


@contextlib.contextmanager
def beside() -> Iterator[Neighbour]:
    """It runs within the block."""
    process = subprocess.Popen(
        [sys.executable, "-S", __file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    found = Neighbour()
    try:
        yield found
        told, _ = process.communicate(timeout=END_TIMEOUT_S)
        found.cores = float(told)
    finally:
        process.kill()
        process.wait()


def main() -> None:
    """Take the last allowed core until the input ends; print the part of it that was had."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    start, used = time.monotonic(), time.process_time()
    ended = False
    while not ended:
        busy_until = time.monotonic() + PERIOD_S * SHARE
        while time.monotonic() < busy_until:
            pass
        ended = bool(select.select([sys.stdin], [], [], PERIOD_S * (1 - SHARE))[0])
    print((time.process_time() - used) / (time.monotonic() - start))


if __name__ == "__main__":
    main()
