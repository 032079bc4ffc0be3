"""Load from a process of its own, so that one load's work is not in another's latencies."""

import asyncio
import contextlib
import multiprocessing
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from default_package.errors import PackageError

UP_TIMEOUT_S = 120
END_TIMEOUT_S = 60
GONE_TIMEOUT_S = 5


class Signals:
    """What the two processes tell each other."""

    def __init__(self, pipe: Connection) -> None:
        """In the child: notice when the parent wants it to stop, or is gone."""
        self._pipe = pipe
        self._stop = asyncio.Event()
        self.began = processor_time(), time.monotonic()
        asyncio.get_running_loop().add_reader(pipe.fileno(), self._told)

    def _told(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pipe.fileno())
        self._stop.set()

    def up(self) -> None:
        """The load has begun; what was done before is not counted as its work."""
        self.began = processor_time(), time.monotonic()
        self._pipe.send(("up", None))

    @property
    def stopped(self) -> bool:
        return self._stop.is_set()

    async def wait(self, seconds: float | None = None) -> None:
        """Returns when the load is to end, or after so many seconds."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stop.wait(), seconds)


def processor_time() -> float:
    """Seconds of this process and its children, their own work and the kernel's for it."""
    return sum(os.times()[:4])


Work = Callable[..., Awaitable[Any]]
"""Takes `Signals`, calls `up`, and runs until it is stopped; its result must be picklable."""


@dataclass
class Ended:
    """What became of a load."""

    found: Any = None
    cores: float = 0.0
    """How much of one core the process took, with programs that it ran and ended."""


@contextlib.contextmanager
def aside(work: Work, *arguments: Any) -> Iterator[Ended]:
    """Runs `work` beside the block; the result is complete behind it."""
    # A fork of a process that has imported this already, and nothing of what runs here.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["load.open_loop"])
    ours, theirs = context.Pipe()
    process = context.Process(target=_child, args=(theirs, work, arguments), daemon=True)
    process.start()
    theirs.close()
    ended = Ended()
    try:
        _receive(ours, "up", UP_TIMEOUT_S)
        yield ended
        # A load that failed is gone already; why is still to be read.
        with contextlib.suppress(BrokenPipeError):
            ours.send("stop")
        ended.found, ended.cores = _receive(ours, "ended", END_TIMEOUT_S)
        process.join(END_TIMEOUT_S)
    finally:
        # A load that was not told to stop ends with the pipe, and what it started with it.
        ours.close()
        process.join(GONE_TIMEOUT_S)
        process.kill()
        process.join()


def run(work: Work, *arguments: Any) -> Ended:
    """Runs a load that ends by itself."""
    with aside(_whole, work, arguments) as ended:
        pass
    return ended


async def _whole(signals: Signals, work: Work, arguments: tuple[Any, ...]) -> Any:
    signals.up()
    return await work(*arguments)


def _receive(pipe: Connection, expected: str, timeout_s: float) -> Any:
    if expected == "up" and not pipe.poll(timeout_s):
        raise PackageError(f"a load did not begin within {timeout_s} s")
    try:
        word, value = pipe.recv()
    except EOFError:
        raise PackageError("a process that makes load died") from None
    if word != expected:
        raise PackageError(f"a process that makes load failed: {value}")
    return value


def _child(pipe: Connection, work: Work, arguments: tuple[Any, ...]) -> None:
    async def whole() -> tuple[Any, float]:
        signals = Signals(pipe)
        found = await work(signals, *arguments)
        processor, clock = signals.began
        took = max(time.monotonic() - clock, 1e-3)
        return found, (processor_time() - processor) / took

    try:
        pipe.send(("ended", asyncio.run(whole())))
    except Exception as error:
        pipe.send(("failed", repr(error)))
    finally:
        pipe.close()
        # Thousands of connections are closed by the system, faster than one by one.
        os._exit(0)
