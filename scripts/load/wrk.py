"""Closed loops: fetches wrk when it is not installed, runs it, reads what it says."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from debian_texts import packages
from default_package.errors import PackageError

from . import latency
from .aside import Signals

SCRIPT = Path(__file__).with_name("post.lua")
PACKAGES = ("wrk", "libluajit-5.1-2", "libluajit-5.1-common")
LIBRARY = "libluajit-5.1.so.2"
THREADS = 2
ANSWER_TIMEOUT_S = 60
"""After that an answer counts as broken."""
END_TIMEOUT_S = 120
"""How much longer than asked for a run may take."""
LONGEST_S = 3600
MARK = "wrk: "


@dataclass(frozen=True)
class Found:
    """What one run found, or several together."""

    requests: int
    """Answers of any status."""
    seconds: float
    refused: int
    """Answers with a status above 399."""
    broken: int
    """Requests without an answer."""
    counts: dict[int, int]
    """How often each latency in microseconds was seen, answers of any status."""

    @property
    def spread(self) -> dict[str, float]:
        """Percentiles of the latencies in milliseconds."""
        return latency.spread_of_counts(self.counts)


def together(found: list[Found]) -> Found:
    """All runs as one. Runs of the same length give the mean of their rates, and the percentiles
    are those of all requests."""
    counts: Counter[int] = Counter()
    for one in found:
        counts.update(one.counts)
    return Found(
        sum(one.requests for one in found),
        sum(one.seconds for one in found),
        sum(one.refused for one in found),
        sum(one.broken for one in found),
        dict(counts),
    )


class Wrk:
    """The program and where its libraries are."""

    def __init__(self, program: Path, libraries: Path | None) -> None:
        self.program = program
        self.environment = dict(os.environ)
        if libraries is not None:
            self.environment["LD_LIBRARY_PATH"] = str(libraries)

    @classmethod
    def found(cls) -> Wrk:
        """The first one in PATH, or Debian's, unpacked in the cache folder."""
        if there := shutil.which("wrk"):
            beside = Path(there).parent
            return cls(Path(there), beside if (beside / LIBRARY).exists() else None)
        try:
            program, library, _ = packages.fetch(*PACKAGES)
        except PackageError as error:
            raise PackageError(f"wrk is not installed, and {error}, or install wrk") from error
        folder = next((library / "usr/lib").glob(f"*/{LIBRARY}"), None)
        if folder is None:
            raise PackageError(f"{library} holds no LuaJIT: install wrk and try again")
        return cls(program / "usr/bin/wrk", folder.parent)

    def start(self, url: str, clients: int, seconds: float, bodies: Path | None) -> Running:
        """Begins a run in which each client sends its next request when it has an answer."""
        whole = max(1, math.ceil(seconds))
        threads = min(THREADS, clients)
        command = [str(self.program), "-s", str(SCRIPT), f"-c{clients}", f"-t{threads}"]
        command += [f"-d{whole}s", "--timeout", f"{ANSWER_TIMEOUT_S}s", url]
        if bodies is not None:
            command += ["--", str(bodies), str(threads)]
        process = subprocess.Popen(
            command,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        return Running(process, clients, whole + END_TIMEOUT_S)

    def run(self, url: str, clients: int, seconds: float, bodies: Path | None) -> Found:
        """The same to its end."""
        with closing(self.start(url, clients, seconds, bodies)) as running:
            return running.result()


class Running:
    """One run; `close` ends it in any case."""

    def __init__(self, process: subprocess.Popen[str], clients: int, timeout_s: float) -> None:
        self._process, self._clients, self._timeout_s = process, clients, timeout_s

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()

    def stop(self) -> Found:
        """Ends it before its time; what it found until now."""
        self._process.send_signal(signal.SIGINT)
        return self.result()

    def result(self) -> Found:
        try:
            printed, _ = self._process.communicate(timeout=self._timeout_s)
        except subprocess.TimeoutExpired:
            raise PackageError(f"wrk did not end within {self._timeout_s:.0f} s") from None
        return parse(printed, self._clients)


async def looping(signals: Signals, wrk: Wrk, url: str, clients: int) -> dict[str, int]:
    """A load beside others: gets the URL until it is stopped. What became of the requests."""
    with closing(wrk.start(url, clients, LONGEST_S, None)) as running:
        signals.up()
        await signals.wait()
        found = running.stop()
    good = found.requests - found.refused
    return {"good": good, "refused": found.refused, "broken": found.broken}


def parse(printed: str, clients: int) -> Found:
    """The line that post.lua writes at the end."""
    lines = printed.strip().splitlines() or ["nothing was printed"]
    told = [line.removeprefix(MARK) for line in lines if line.startswith(MARK)]
    if not told:
        raise PackageError(f"wrk gave no result: {lines[-1]}")
    said = json.loads(told[0])
    counts, requests = dict(said["latencies"]), said["requests"]
    if requests >= clients:
        # wrk's own whole numbers: other rounding would give another interval.
        interval = said["microseconds"] // (requests // clients)
        own = latency.without_correction(counts, interval)
        # A wrk that adds nothing, or by another rule, is taken as it is.
        if sum(counts.values()) > requests >= sum(own.values()) and min(own.values()) > 0:
            counts = own
    return Found(requests, said["microseconds"] / 1e6, said["refused"], said["broken"], counts)
