#!/usr/bin/env python3
"""First figures of the real binary with the default package: bulk throughput, latency, memory.

    scripts/bench_throughput.py [--seconds 10] [-- ARGUMENTS OF duovec serve]

Prints texts/s of 4 clients with 32 texts each, p50 and p99 of one client with one text, and
resident memory. The load generator shares the cores with the server.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import threading
import time
from pathlib import Path

import httpx

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/clients"))
from server import Server, default_package, running, texts  # noqa: E402

BULK_CLIENTS = 4
BULK_TEXTS = 32


def closed_loop(
    url: str, clients: int, per_request: int, seconds: float
) -> tuple[list[float], int]:
    """Latency in seconds of every request that ended within `seconds`, and their tokens."""
    every = [entry["text"] for entry in texts()]
    latencies: list[float] = []
    tokens: list[int] = []
    end = time.perf_counter() + seconds

    def run(number: int) -> None:
        chance = random.Random(number)
        with httpx.Client(base_url=url, timeout=60) as client:
            while True:
                inputs = chance.choices(every, k=per_request)
                body = {"input": inputs, "encoding_format": "base64"}
                start = time.perf_counter()
                answer = client.post("/v1/embeddings", json=body).raise_for_status()
                now = time.perf_counter()
                if now > end:
                    return
                latencies.append(now - start)
                tokens.append(answer.json()["usage"]["total_tokens"])

    threads = [threading.Thread(target=run, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return latencies, sum(tokens)


def report(server: Server, seconds: float) -> None:
    """Measure and print."""
    tuning = httpx.get(server.url + "/health").json()["tuning"]
    print(f"device    {tuning['device']}, {tuning['precision']}")
    print(f"memory    {server.resident_megabytes():.0f} MB resident after load")
    closed_loop(server.url, BULK_CLIENTS, BULK_TEXTS, 2)
    bulk, tokens = closed_loop(server.url, BULK_CLIENTS, BULK_TEXTS, seconds)
    count = len(bulk) * BULK_TEXTS
    print(
        f"bulk      {BULK_CLIENTS} clients x {BULK_TEXTS} texts: {count / seconds:.0f} texts/s, "
        f"{tokens / seconds:.0f} tokens/s, {tokens / count:.0f} tokens a text"
    )
    single = sorted(closed_loop(server.url, 1, 1, seconds)[0])
    p99 = single[int(len(single) * 0.99)]
    p50 = statistics.median(single)
    print(f"latency   1 client x 1 text: p50 {p50 * 1e3:.2f} ms, p99 {p99 * 1e3:.2f} ms")
    tuning = httpx.get(server.url + "/health").json()["tuning"]
    print(f"padding   {tuning['real_per_padded_token']:.3f} real tokens for each padded one")
    print(f"memory    {server.resident_megabytes():.0f} MB resident after the load")


def main() -> None:
    """Start the binary, measure, end it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("arguments", nargs="*", help="arguments of duovec serve")
    typed = parser.parse_args()
    with running("--package", default_package(), *typed.arguments) as server:
        report(server, typed.seconds)


if __name__ == "__main__":
    main()
