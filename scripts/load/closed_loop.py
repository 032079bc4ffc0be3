"""A closed loop that does as little as it can: its work would be taken from the server's."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import Counter
from typing import Any

from .aside import Signals
from .connection import address_of
from .open_loop import BROKEN

AGAIN_S = 0.05
"""A client whose connection ended comes back after this time."""
LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


class Looping(asyncio.Protocol):
    """Sends the same request again as soon as it was answered; does as little as it can."""

    def __init__(self, wires: list[bytes], at: int, statuses: Counter[int]) -> None:
        self._wires, self._at, self._statuses = wires, at, statuses
        self._transport: Any = None
        self._got = b""
        self.lost = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        transport.write(self._wires[self._at])  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        got = self._got + data if self._got else data
        end = got.find(b"\r\n\r\n")
        length = LENGTH.search(got, 0, max(end, 0))
        if length is None or len(got) < end + 4 + int(length[1]):
            self._got = got
            return
        self._got = b""
        self._statuses[int(got[9:12])] += 1
        self._at = (self._at + 1) % len(self._wires)
        self._transport.write(self._wires[self._at])

    def connection_lost(self, _: Exception | None) -> None:
        if not self.lost.done():
            self.lost.set_result(None)


async def looping(signals: Signals, url: str, wires: list[bytes], clients: int) -> Counter[int]:
    """A closed loop; how often each status was answered."""
    statuses: Counter[int] = Counter()
    loop, (host, port) = asyncio.get_running_loop(), address_of(url)

    async def client(number: int) -> None:
        while True:
            with contextlib.suppress(OSError):
                # Far from each other: equal texts that wait share a run.
                at = number * len(wires) // clients
                _, made = await loop.create_connection(
                    lambda at=at: Looping(wires, at, statuses), host, port
                )
                await made.lost
            statuses[BROKEN] += 1
            await asyncio.sleep(AGAIN_S)

    tasks = [asyncio.create_task(client(number)) for number in range(clients)]
    signals.up()
    await signals.wait()
    for task in tasks:
        task.cancel()
    return statuses
