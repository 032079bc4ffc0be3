"""What is done to the server from outside: stops, a worker that hangs, keys that change."""

import asyncio
import contextlib
import ctypes
import os
import random
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from load.connection import Connection, request
from load.servers import Server

from .clients import authorized
from .tally import Tally

LOOKED_AT_S = 3.0
"""The server looks at its key file each second."""
RECOVERY_S = 3.0
"""After it was held up, a server may answer 503 for so long."""
PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_DETACH = 0x4206, 0x4207, 17
WALL = 0x40000000


@dataclass
class Faults:
    """Each kind in a loop of its own until it is cancelled."""

    server: Server
    key: str
    key_file: Path
    tally: Tally
    chance: random.Random
    every_s: float
    stuck_s: float
    """How long a worker is stopped, longer than --worker-stuck-ms."""
    done: Counter[str] = field(default_factory=Counter)

    async def stops(self) -> None:
        """The whole process stands still, as on a machine that swaps or is suspended."""
        while True:
            await asyncio.sleep(self.every_s * self.chance.uniform(0.5, 1.5))
            os.kill(self.server.process.pid, signal.SIGSTOP)
            await self._held_up(self.chance.uniform(0.1, 1.0))
            os.kill(self.server.process.pid, signal.SIGCONT)
            self.done["stops of the process"] += 1

    async def hangs(self) -> None:
        """One worker's thread stands still, as in a driver that does not return."""
        while True:
            await asyncio.sleep(2 * self.every_s * self.chance.uniform(0.5, 1.5))
            threads = worker_threads(self.server.process.pid)
            if not threads:
                continue
            try:
                with stopped(self.chance.choice(threads)):
                    await self._held_up(self.stuck_s)
            except OSError:
                self.done["hangs that the system does not allow"] += 1
                return
            self.done["hangs of a worker"] += 1

    async def hold_workers(self, seconds: float) -> None:
        """All workers' threads stand still, so that what comes must wait."""
        with contextlib.suppress(OSError), contextlib.ExitStack() as held:
            for thread in worker_threads(self.server.process.pid):
                held.enter_context(stopped(thread))
            await self._held_up(seconds)

    def go_on(self) -> None:
        """Ends a stop that was interrupted."""
        os.kill(self.server.process.pid, signal.SIGCONT)

    async def _held_up(self, seconds: float) -> None:
        until = asyncio.get_running_loop().time() + seconds + RECOVERY_S
        self.tally.unavailable_until = max(self.tally.unavailable_until, until)
        await asyncio.sleep(seconds)

    async def keys(self) -> None:
        """A key is taken away and another one added; both are tried."""
        last = 0
        while True:
            # A file that is written in place is empty for a moment, and an empty one revokes all.
            new = self.key_file.with_suffix(".new")
            new.write_text(f"{self.key}\nturn-{last + 1}\n")
            new.replace(self.key_file)
            await asyncio.sleep(LOOKED_AT_S)
            last += 1
            expected = {f"turn-{last}": 200, f"turn-{last - 1}": 401}
            for key, status in expected.items():
                data = request(self.server.url, "GET", "/v1/models", fields=authorized(key))
                # One that waits for the next key may be closed by the server in between.
                connection, began = Connection(self.server.url), self.tally.clock()
                try:
                    answer = await connection.ask(data)
                finally:
                    connection.close()
                now = asyncio.get_running_loop().time()
                if answer.status != status and now > self.tally.unavailable_until:
                    told = f"key {key}: {answer.status} {answer.told}, expected {status}"
                    self.tally.problem(told, began)
            self.done["exchanges of a key"] += 1
            await asyncio.sleep(self.every_s / 2)


def worker_threads(pid: int) -> list[int]:
    """The threads that run the model."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            if (task / "comm").read_text().startswith("duovec-worker"):
                found.append(int(task.name))
    return found


@contextlib.contextmanager
def stopped(thread: int) -> Iterator[None]:
    """Holds one thread with ptrace, which signals cannot."""
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    ptrace.restype = ctypes.c_long

    def call(request: int) -> None:
        if ptrace(request, thread, None, None) < 0:
            raise OSError(ctypes.get_errno(), "ptrace")

    call(PTRACE_SEIZE)
    try:
        call(PTRACE_INTERRUPT)
        os.waitpid(thread, WALL)
        yield
    finally:
        call(PTRACE_DETACH)
