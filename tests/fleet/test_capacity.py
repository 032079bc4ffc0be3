"""`duovec plan-capacity` beside three real servers behind HAProxy that get the same requests."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import httpx
import pytest

import programs
import proxies
from load import BODY, Answer, Load, quantile
from server import ROOT
from three import HOSTS, RUN_MS, Fleet

TINY = ROOT / "tests/fixtures/tiny"
SPAN_S = 8.0
RATE = 48.0
"""Requests a second: half of what three servers can, 72 % of what two can."""
# What is simulated has no other programs beside it. The machine of the test has: two cores, the
# servers, the proxy and the clients.
P50_TOLERANCE = 0.2
P99_TOLERANCE = 0.4
IN_TIME_TOLERANCE = 0.01
PROGRAMS = 3
"""The client, the proxy and the server of a request: each is held up as the client is."""
TRIES = 4
TIMEOUT_MS = 2000
"""HAProxy's recipe gives short requests as much."""


@dataclass(frozen=True)
class Seen:
    """What clients saw."""

    p50_ms: float
    p99_ms: float
    in_time: float
    stall_ms: float
    """How late the client itself was, at p99."""

    @staticmethod
    def of(answers: list[Answer]) -> Seen:
        good = [answer for answer in answers if not answer.failure]
        p50, p99 = (1000 * quantile([one.seconds for one in good], part) for part in (0.5, 0.99))
        in_time = sum(1000 * answer.seconds <= TIMEOUT_MS for answer in good)
        stall = 1000 * quantile([one.late for one in answers], 0.99)
        return Seen(p50, p99, in_time / len(answers), stall)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `duovec bench` says of a server of the fleet."""
    command: list[str | Path] = [programs.BINARY, "bench", TINY, "--engine", "fake", "--json"]
    command += ["--fake-run-ms", str(RUN_MS), "--max-batch-tokens", "8", "--log-level", "error"]
    text = programs.run(*command, "--shapes", "1x8,1x64", "--ms-per-shape", "300")
    path = tmp_path_factory.mktemp("measured") / "bench.json"
    path.write_text(text)
    return path


def arrivals() -> list[float]:
    """The same random times in each run."""
    chance = random.Random(15)
    gaps = (chance.expovariate(RATE) for _ in range(int(SPAN_S * RATE)))
    return list(accumulate(gaps))


def plan(measured: Path, trace: Path, overhead_ms: float) -> dict[str, Any]:
    """The prediction for three servers."""
    command: list[str | Path] = [programs.BINARY, "plan-capacity", "--server", measured]
    command += ["--workers", "1", "--max-batch-tokens", "8"]
    command += ["--request-timeout-ms", str(TIMEOUT_MS), "--overhead-ms", f"{overhead_ms:.3f}"]
    return json.loads(
        programs.run(*command, "--trace", trace, "--servers", str(len(HOSTS)), "--json")
    )


def overhead_ms(url: str, fleet: Fleet) -> float:
    """What one request takes besides the run: the proxy, two connections, the client."""
    with httpx.Client(base_url=url, verify=fleet.trusted()) as http:
        taken = []
        for _ in range(21):
            start = time.monotonic()
            assert http.post("/v1/embeddings", json=BODY).status_code == 200
            taken.append(1000 * (time.monotonic() - start))
    return max(0.0, sorted(taken)[10] - RUN_MS)


def agree(seen: Seen, predicted: dict[str, Any]) -> bool:
    """Whether what clients saw is what was predicted."""
    held_up = PROGRAMS * seen.stall_ms
    p50, p99 = predicted["p50_ms"], predicted["p99_ms"]
    return (
        seen.p50_ms == pytest.approx(p50, abs=P50_TOLERANCE * p50 + held_up)
        and seen.p99_ms == pytest.approx(p99, abs=P99_TOLERANCE * p99 + held_up)
        and seen.in_time == pytest.approx(predicted["in_time"], abs=IN_TIME_TOLERANCE)
    )


def check(name: str, measure: Callable[[], Seen], predicted: dict[str, Any]) -> None:
    """Measures until clients see what was predicted: other programs disturb some of the tries."""
    expected = [predicted["p50_ms"], predicted["p99_ms"], predicted["in_time"]]
    for _ in range(TRIES):
        seen = measure()
        print(f"{name}: {seen}; predicted {expected}")
        if agree(seen, predicted):
            return
    pytest.fail(f"{name}: no measurement of {TRIES} was near {expected}")


def test_three_servers_show_what_was_predicted(
    fleet: Fleet, measured: Path, tmp_path: Path
) -> None:
    due = arrivals()
    trace = tmp_path / "trace.jsonl"
    trace.write_text("".join(f'{{"time": {at}, "tokens": 5}}\n' for at in due))

    def steady() -> Seen:
        with Load(proxy.url, fleet.trusted(), due=due) as load:
            load.wait()
        return Seen.of(load.answers)

    def one_is_killed() -> Seen:
        with Load(proxy.url, fleet.trusted(), due=due) as load:
            time.sleep(due[-1] / 2)
            killed = time.monotonic()
            fleet.kill(0)
            load.wait()
        fleet.mend()
        return Seen.of([one for one in load.answers if one.due + one.seconds >= killed])

    with proxies.running("haproxy", fleet) as proxy:
        overhead = overhead_ms(proxy.url, fleet)
        print(f"one request takes {overhead:.1f} ms besides its run")
        predicted = plan(measured, trace, overhead)
        check("three servers", steady, predicted["steady"])
        check("one is killed", one_is_killed, predicted["one_server_fails"])
