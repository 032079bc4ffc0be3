"""The measurements: each is a load beside single texts, or against the best that is possible."""

from __future__ import annotations

import contextlib
import json
import math
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from default_package.command import say
from default_package.errors import PackageError
from http_bench import latency, open_loop, servers
from http_bench.figures import Figure, at_least, at_most, share
from http_bench.open_loop import BROKEN, Answer, Load

from . import aside, clients, material
from .aside import Ended

DENSE = "/v1/embeddings"
OVERLOAD = 3.0
FLOODS = 3
"""In turn with what the server does without them: a shared machine is not equally fast all day."""
CLOSED_CLIENTS = 4
AGAIN = 8
"""So many times longer a closed loop runs once more on a machine too busy to answer at all."""
BODY_BYTES = 33_000_000
"""A little less than the largest body that is taken."""
BODY_CLIENTS = 4
BODY_ITEMS = 2048
GROWTH_MB = 268.4
"""What the default of --max-inflight-bytes allows, 256 MiB."""
DEEP_CLIENTS = 64
TAIL_S = 40.0
"""Longer than a request may take."""


@dataclass
class Sizes:
    """How long and how many; the command line sets them."""

    seconds: float
    slow_seconds: float
    rate: float
    deadline_ms: int
    idle: int
    slow: int


@dataclass
class Measured:
    """Figures for people, and everything that was seen for JSON."""

    sizes: Sizes
    texts: list[str]
    arguments: list[str]
    figures: list[Figure] = field(default_factory=list)
    seen: dict[str, Any] = field(default_factory=dict)

    @contextlib.contextmanager
    def server(self, *more: str) -> Iterator[servers.Server]:
        """A fresh server, warmed up a little."""
        with servers.duovec([*self.arguments, *more]) as server:
            self._probe(server, min(self.sizes.seconds, 2.0))
            yield server

    def flood(self) -> None:
        """Three times as many documents as the server can do."""
        say("flood: documents in an open loop, against what the server does without it")
        bodies = [{"input": text} for text in material.documents(self.texts)]
        seconds, deadline = self.sizes.seconds, self.sizes.deadline_ms / 1e3
        answers: list[Answer] = []
        goodputs, cores = [], []
        with self.server() as server:
            load = Load(server.url + DENSE, bodies, [], tail_s=TAIL_S)
            load.deadline_ms = self.sizes.deadline_ms
            wires = [load.wire(body) for body in bodies]
            capacities = [self._capacity(server.url, wires)]
            for turn in range(FLOODS):
                rate = OVERLOAD * capacities[-1]
                load.due = latency.poisson(rate, seconds, material.SEED + turn)
                driven = aside.run(open_loop.answers_of, load)
                answers += driven.found
                goodputs.append(good_per_s(driven.found, deadline, seconds))
                cores.append(driven.cores)
                capacities.append(self._capacity(server.url, wires))
        capacity, good = statistics.mean(capacities), statistics.mean(goodputs)
        offered = len(answers) / FLOODS / seconds
        refused = [one for one in answers if one.status == 429]
        silent = sum(one.status == BROKEN for one in answers)
        self.seen["flood"] = {
            "capacity_per_s": capacities,
            "offered_per_s": offered,
            "goodput_per_s": goodputs,
            "statuses": Counter(one.status for one in answers),
            "refused_within_ms": latency.spread(one.ended - one.sent for one in refused),
            "sender_cores": statistics.mean(cores),
        }
        told = f"{offered:.0f}/s offered, {capacity:.1f}/s are its best"
        self.figures += [
            at_least(f"flood: goodput of its best ({told})", good / capacity, 0.95, share),
            at_least(
                "flood: refusals that reached their client",
                ratio(len(refused), len(refused) + silent),
                1.0,
                share,
            ),
        ]

    def bodies(self) -> None:
        """Four of the largest bodies at once, as many texts and as one."""
        each = BODY_BYTES // BODY_ITEMS - 16
        kinds = {
            "2048 texts each": [
                material.long_text(self.texts, each, number) for number in range(BODY_ITEMS)
            ],
            "one text each": material.long_text(self.texts, BODY_BYTES - 1000, 0),
        }
        for name, value in kinds.items():
            say(f"bodies: {BODY_CLIENTS} of 33 MB at once, {name}")
            body = json.dumps({"input": value}, ensure_ascii=False).encode()
            with self.server() as server:
                wire = clients.request(server.url, "POST", DENSE, body)
                before = server.resident_megabytes()
                Path(f"/proc/{server.process.pid}/clear_refs").write_text("5")
                found = self._beside(
                    server, self.sizes.seconds, clients.waves, server.url, wire, BODY_CLIENTS
                )
                peak = material.peak_megabytes(server.process.pid)
            self._p99(f"bodies, {name}", found, 2.0)
            self.figures.append(
                at_most(f"bodies, {name}: memory grows", peak - before, GROWTH_MB, megabytes)
            )
            self.seen[f"bodies, {name}"] |= {"resident_mb": before, "peak_mb": peak}

    def deep(self) -> None:
        """Deep checks without a pause."""
        say(f"deep: {DEEP_CLIENTS} connections loop GET /health/deep")
        with self.server() as server:
            wires = [clients.request(server.url, "GET", "/health/deep")]
            seconds = self.sizes.seconds
            found = self._beside(server, seconds, clients.looping, server.url, wires, DEEP_CLIENTS)
        self._p99("deep", found, 2.0)

    def slow(self, folder: Path) -> None:
        """Everything slow together, over TLS."""
        sizes = self.sizes
        say(f"slow: heads, bodies, readers, handshakes, and {sizes.idle} idle connections")
        certificate = material.make_certificate(folder)
        more = ["--keep-alive-s", "3600"]
        with self.server(
            "--tls-cert", certificate[0], "--tls-key", certificate[1], *more
        ) as server:
            found = self._beside(
                server,
                sizes.slow_seconds,
                clients.slow_ones,
                server.url,
                sizes.slow,
                max(sizes.slow // 5, 1),
                2 * sizes.slow,
                sizes.idle,
            )
        self._p99("slow", found, 1.5)

    def _capacity(self, url: str, wires: list[bytes]) -> float:
        """Good answers a second of a closed loop."""
        for seconds in (self.sizes.seconds, self.sizes.seconds * AGAIN):
            with aside.aside(clients.looping, url, wires, CLOSED_CLIENTS) as ended:
                time.sleep(seconds)
            if ended.found[200]:
                return ended.found[200] / seconds
            say(f"nothing was answered in {seconds:g} s of a closed loop: {dict(ended.found)}")
        raise PackageError("a closed loop gets no answer")

    def _probe(self, server: servers.Server, seconds: float) -> list[Answer]:
        """Single texts in an open loop."""
        due = latency.poisson(self.sizes.rate, seconds, material.SEED)
        texts = [{"input": text} for text in self.texts]
        load = Load(server.url + DENSE, texts, due, tail_s=TAIL_S)
        return aside.run(open_loop.answers_of, load).found

    def _beside(
        self, server: servers.Server, seconds: float, work: aside.Work, *arguments: Any
    ) -> tuple[list[Answer], list[Answer], Ended]:
        """Single texts without the load, half before it and half behind it, and beside it."""
        undisturbed = self._probe(server, seconds / 2)
        with aside.aside(work, *arguments) as ended:
            beside = self._probe(server, seconds)
        undisturbed += self._probe(server, seconds / 2)
        return undisturbed, beside, ended

    def _p99(self, name: str, found: tuple[list[Answer], list[Answer], Ended], most: float) -> None:
        undisturbed, beside, ended = found
        quiet, loud = good_spread(undisturbed), good_spread(beside)
        answered = sum(one.status == 200 for one in beside)
        told = f"p99 {loud['p99']:.1f} ms, undisturbed {quiet['p99']:.1f} ms"
        self.figures += [
            at_most(f"{name}: {told}", ratio(loud["p99"], quiet["p99"]), most, times),
            at_least(f"{name}: single texts answered", answered / len(beside), 1.0, share),
        ]
        self.seen[name] = {
            "undisturbed_ms": quiet,
            "beside_ms": loud,
            "statuses": Counter(one.status for one in beside),
            "load": ended.found,
            "sender_cores": ended.cores,
        }


def ratio(part: float, whole: float) -> float:
    """Not a number when there is nothing to compare with."""
    return part / whole if whole else math.nan


def times(value: float) -> str:
    """2 -> `2.00 x`."""
    return f"{value:.2f} x"


def megabytes(value: float) -> str:
    """268.4 -> `268 MB`."""
    return f"{value:,.0f} MB"


def good_spread(answers: list[Answer]) -> dict[str, float]:
    """Latencies of good answers in milliseconds, from when they were due."""
    return latency.spread(one.latency for one in answers if one.status == 200)


def good_per_s(answers: list[Answer], deadline_s: float, seconds: float) -> float:
    """Answers in time, of those that ended while requests came."""
    good = [one for one in answers if one.in_time(deadline_s) and one.ended <= seconds]
    return len(good) / seconds
