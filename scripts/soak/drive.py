"""One run: clients and faults beside each other, checks behind, a report."""

import argparse
import asyncio
import contextlib
import os
import random
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from default_package.command import say
from default_package.errors import PackageError
from load import servers

from .clients import BODY_BYTES, Client
from .faults import Faults
from .tally import Tally, growth

KEY = "soak-key"
LOOKS = 5
"""At memory and descriptors of a server that nobody asks anything, a second apart."""
STUCK_MS = 1000
FAKE = ("--engine", "fake", "--fake-run-ms", "3")
INFLIGHT_BYTES = 256 << 20
"""The default of --max-inflight-bytes."""
BODIES = INFLIGHT_BYTES // BODY_BYTES
"""Large bodies that fill what may be in flight."""
HELD_S = 0.8
"""So long the workers stand still while the queue fills up: less than --worker-stuck-ms."""
COUNTS = ("replied", "failed", "expired", "cancelled", "abandoned")


def run(typed: argparse.Namespace) -> None:
    """Drives, checks, prints."""
    say(f"soak: {typed.minutes:g} minutes with {typed.clients} clients, --seed {typed.seed}")
    # What is freed goes back at once, so that what stays is held by somebody. By default the
    # allocator waits for a moment, and then for somebody who allocates.
    os.environ.setdefault("MIMALLOC_PURGE_DELAY", "0")
    with tempfile.TemporaryDirectory(prefix="duovec-soak-") as folder:
        key_file = Path(folder) / "keys"
        key_file.write_text(KEY + "\n")
        arguments = [] if typed.real else list(FAKE)
        arguments += ["--api-key-file", str(key_file), "--worker-stuck-ms", str(STUCK_MS)]
        arguments += ["--head-timeout-ms", "5000", "--body-timeout-ms", "5000"]
        with servers.duovec([*arguments, *typed.arguments]) as server:
            soak = Soak(typed, server, key_file)
            asyncio.run(soak.drive())
            code = server.stop()
    soak.check("exit code 0 at SIGTERM", code == 0, f"{code}")
    soak.report()


class Soak:
    """One run."""

    def __init__(self, typed: argparse.Namespace, server: servers.Server, key_file: Path) -> None:
        self._typed, self._server = typed, server
        self._tally = Tally()
        chance = random.Random(typed.seed)
        own = [entry["text"] for entry in servers.project_texts()]
        vectors: dict[str, str] | None = None if typed.real else {}
        self._clients = [
            Client(server.url, KEY, self._tally, random.Random(chance.random()), own, vectors)
            for _ in range(typed.clients)
        ]
        by_chance, times = random.Random(chance.random()), (typed.fault_seconds, STUCK_MS / 1e3 + 1)
        self._faults = Faults(server, KEY, key_file, self._tally, by_chance, *times)
        self._failed: list[str] = []
        self._lines: list[str] = []

    async def drive(self) -> None:
        """Everything at once, in rounds. Behind each is a rest, in which memory is looked at.

        A rest tells what is held for good. Under load, memory is what is under way.
        """
        for _ in range(self._typed.peaks):
            await _reach(self._clients, self._faults)
        rests = []
        for _ in range(self._typed.rounds):
            await self._load(self._typed.minutes * 60 / self._typed.rounds)
            rests.append(await self._rest())
        descriptors, own_mb = zip(*rests, strict=True)
        first, last = descriptors[0], descriptors[-1]
        self.check("no descriptor leaks", last <= first, f"{first}, then {last}")
        _, health = await asyncio.to_thread(self._server.ask, "/health")
        self._compare(health["tuning"]["items"], own_mb)

    async def _load(self, seconds: float) -> None:
        until = asyncio.get_running_loop().time() + seconds
        faults = [self._faults.stops(), self._faults.hangs(), self._faults.keys()]
        running = asyncio.gather(*(client.run(until) for client in self._clients))
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.gather(*faults), seconds)
        finally:
            # A process that stands still would never answer.
            self._faults.go_on()
        await running

    async def _rest(self) -> tuple[int, float]:
        """The fewest descriptors of a server that nobody asks anything, and the least memory."""
        await asyncio.sleep(self._typed.rest_seconds)
        folder = Path(f"/proc/{self._server.process.pid}/fd")
        looks = []
        for _ in range(LOOKS):
            await asyncio.sleep(1)
            looks.append((len(list(folder.iterdir())), self._server.own_megabytes()))
        descriptors, own_mb = zip(*looks, strict=True)
        return min(descriptors), min(own_mb)

    def _compare(self, items: dict[str, int], own_mb: Sequence[float]) -> None:
        tally = self._tally
        ended = sum(tally.ended.values())
        self.check("every request ended once", ended == tally.sent, f"{ended} of {tally.sent}")
        wrong = tally.ended["wrong"]
        self.check("no answer is wrong", wrong == 0, f"{wrong} of {tally.sent}")
        added = sum(items[name] for name in COUNTS)
        told = f"{items['accepted']} = {' + '.join(f'{items[one]} {one}' for one in COUNTS)}"
        self.check("the server's counts add up", added == items["accepted"], told)
        seen = tally.items_answered
        self.check("answered items were replied", items["replied"] >= seen, f"{seen} seen")
        more = growth(own_mb)
        told = f"{more:+.1%} of MB in the rests: {' '.join(f'{rest:.1f}' for rest in own_mb)}"
        self.check("memory stays", more <= self._typed.growth, told)
        self._lines += [f"  {count:>9,} {what}" for what, count in sorted(tally.ended.items())]
        done: Counter[str] = self._faults.done
        self._lines += [f"  {count:>9,} {what}" for what, count in sorted(done.items())]

    def check(self, what: str, holds: bool, seen: str) -> None:
        self._lines.append(f"{'ok  ' if holds else 'FAIL'} {what}: {seen}")
        if not holds:
            self._failed.append(what)

    def report(self) -> None:
        """Prints everything; fails when a check did."""
        self._lines += self._tally.lines()
        print("\n".join(self._lines), flush=True)
        if self._failed:
            raise PackageError("; ".join(self._failed))


async def _reach(clients: Sequence[Client], faults: Faults) -> None:
    """Brings the server to the most memory that its settings allow, one peak after the other.

    What it keeps behind that is all that it keeps for a reason: whatever grows later is a leak.
    """
    few = clients[:BODIES]
    await asyncio.gather(*(client.do(client.send_the_largest_body) for client in few))
    await asyncio.gather(*(client.do(client.ask_for_largest_texts) for client in few))
    await asyncio.gather(*(client.do(client.ask_for_largest_text) for client in clients))
    await asyncio.gather(*(client.do(client.read_slowly) for client in clients))
    await asyncio.gather(
        faults.hold_workers(HELD_S),
        *(client.do(client.ask_for_most_texts) for client in clients),
    )
