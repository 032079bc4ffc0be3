"""The harness of the measurements: texts, servers, single texts beside a load, figures."""

import argparse
import contextlib
import math
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from default_package.command import say
from default_package.errors import PackageError
from load import aside, latency, servers
from load.open_loop import Asked, Load, answers_of, good_spread
from load.report import Figure, at_least, at_most, share
from load.wrk import Wrk

SEED = 11
DOCUMENTS = 400
"""More than a server holds at once: equal texts that wait share a run."""
ORDERS = 24
DOCUMENT_BYTES = 200_000
DENSE = "/v1/embeddings"
CLOSED_CLIENTS = 4
AGAIN = 8
"""So many times longer a closed loop runs once more on a machine too busy to answer at all."""
TAIL_S = 40.0
"""Longer than a request may take."""
times, megabytes = "{:.2f} x".format, "{:,.0f} MB".format
"""2 -> `2.00 x`, 268.4 -> `268 MB`."""
LONG_RATE = 2.0
"""Texts a second of as many tokens as the model takes, which a small machine can run."""


def documents(texts: list[str]) -> list[str]:
    """Long texts that differ from their first word on, since the server reads only so far."""
    long = [long_text(texts, DOCUMENT_BYTES - 8, number) for number in range(ORDERS)]
    return [f"{number} {long[number % ORDERS]}" for number in range(DOCUMENTS)]


def long_text(texts: list[str], size: int, number: int) -> str:
    """Sentences in an order of their own, of at most so many bytes."""
    chance, parts, left = random.Random(SEED + number), [], size
    while left > 0:
        part = chance.choice(texts) + " "
        parts.append(part)
        left -= len(part.encode())
    return "".join(parts).encode()[:size].decode(errors="ignore")


@dataclass
class Measured:
    """Figures for people, and everything that was seen for JSON."""

    typed: argparse.Namespace
    """How long and how many, and the arguments of the server."""
    texts: list[str]
    folder: Path
    """For certificates and bodies."""
    wrk: Wrk
    figures: list[Figure] = field(default_factory=list)
    seen: dict[str, Any] = field(default_factory=dict)

    @contextlib.contextmanager
    def server(self, *more: str, tls: bool = False) -> Iterator[servers.Server]:
        """A fresh server, warmed up a little."""
        secure: list[str] = []
        if tls:
            made, key = servers.certificate(self.folder, "DNS:localhost", "IP:127.0.0.1")
            secure = ["--tls-cert", str(made), "--tls-key", str(key)]
        with servers.duovec([*self.typed.arguments, *secure, *more]) as server:
            self.probe(server, min(self.typed.seconds, 2.0))
            yield server

    def capacity(self, url: str, bodies: Path) -> float:
        """Good answers a second of a closed loop."""
        for seconds in (self.typed.seconds, self.typed.seconds * AGAIN):
            found = self.wrk.run(url, CLOSED_CLIENTS, seconds, bodies)
            if found.requests > found.refused:
                return (found.requests - found.refused) / found.seconds
            say(f"nothing was answered in {seconds:g} s of a closed loop")
        raise PackageError("a closed loop gets no answer")

    def probe(
        self,
        server: servers.Server,
        seconds: float,
        text_bytes: int = 0,
        part: tuple[float, float] = (0.0, 1.0),
    ) -> list[Asked]:
        """Single texts in an open loop: the project's, or some of so many bytes.

        `part` is the part of the time whose texts are sent: what is compared with each other must
        have the same bursts of the same texts.
        """
        rate = min(self.typed.rate, LONG_RATE) if text_bytes else self.typed.rate
        start, end = (at * seconds for at in part)
        due = list(enumerate(latency.poisson(rate, seconds, SEED)))
        chosen = [(number, at - start) for number, at in due if start <= at < end]
        texts = [self.texts[number % len(self.texts)] for number, _ in chosen]
        if text_bytes:
            texts = [long_text(self.texts, text_bytes, number) for number, _ in chosen]
        bodies, times = [{"input": text} for text in texts], [at for _, at in chosen]
        load = Load(server.url + DENSE, bodies, times, tail_s=TAIL_S)
        return aside.run(answers_of, load).found

    def beside(
        self,
        name: str,
        most: float,
        server: servers.Server,
        work: aside.Work,
        *arguments: Any,
        seconds: float | None = None,
        text_bytes: int = 0,
    ) -> None:
        """Single texts without the load, half before it and half behind it, and beside it, where
        their 99th percentile may be at most so many times as long."""
        seconds = seconds or self.typed.seconds
        undisturbed = self.probe(server, seconds, text_bytes, (0.0, 0.5))
        with aside.aside(work, *arguments) as ended:
            beside = self.probe(server, seconds, text_bytes)
        undisturbed += self.probe(server, seconds, text_bytes, (0.5, 1.0))
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

    @contextlib.contextmanager
    def growth(self, name: str, server: servers.Server, most: float) -> Iterator[list[float]]:
        """Samples of the server's own memory, which may grow by so many MB in the block, in which
        `beside` measures what has this name."""
        with servers.own_memory(server) as memory:
            yield memory
        before, peak = memory[0], max(memory)
        self.figures.append(at_most(f"{name}: memory grows", peak - before, most, megabytes))
        self.seen[name] |= {"own_mb": before, "peak_mb": peak}


def ratio(part: float, whole: float) -> float:
    """Not a number when there is nothing to compare with."""
    return part / whole if whole else math.nan
