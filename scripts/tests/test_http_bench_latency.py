"""Latencies of scripts/bench_http.sh: when they begin, how they are read, counted and summed up."""

import itertools
import json
import math
import random
import socket
import threading
import time
from collections import Counter

import pytest

from default_package.errors import PackageError
from http_bench import single
from load import latency, wrk
from load.connection import header
from load.open_loop import Asked, Load


def test_percentiles_are_the_least_values_that_enough_values_do_not_exceed() -> None:
    found = latency.spread(value / 1e3 for value in range(1, 101))
    assert found == pytest.approx({"p50": 50, "p90": 90, "p99": 99, "max": 100})
    assert set(latency.spread([3.0]).values()) == {3000}
    assert all(math.isnan(value) for value in latency.spread([]).values())


def corrected(counts: Counter[int], interval: int) -> Counter[int]:
    """What wrk 4 does to the latencies before it tells them."""
    data = Counter(counts)
    for value in range(2 * interval, max(counts) + 1):
        count, less = data[value], value - interval
        while count and less > interval:
            data[less] += count
            less -= interval
    return Counter({value: count for value, count in data.items() if count})


def test_what_wrk_adds_to_latencies_is_taken_away_exactly() -> None:
    for seed in range(20):
        chance = random.Random(seed)
        seen = Counter(round(chance.lognormvariate(4, 1)) + 1 for _ in range(300))
        interval = chance.randrange(20, 200)
        told = corrected(seen, interval)
        assert latency.without_correction(told, interval) == dict(seen), f"seed {seed}"


def test_wrk_line_is_read_with_and_without_its_correction() -> None:
    seen = Counter({100: 7, 250: 2, 1000: 1})
    for told in (seen, corrected(seen, 150)):
        said = {"requests": 10, "microseconds": 1500, "refused": 2, "broken": 0}
        said["latencies"] = list(told.items())
        found = wrk.parse(f"Running 1s test\nwrk: {json.dumps(said)}\n", 1)
        assert (found.requests, found.refused, found.seconds) == (10, 2, 0.0015)
        assert found.spread == {"p50": 0.1, "p90": 0.25, "p99": 1.0, "max": 1.0}
    with pytest.raises(PackageError, match="unable to connect"):
        wrk.parse("unable to connect to 127.0.0.1\n", 1)


def test_runs_together_have_the_mean_rate_and_the_percentiles_of_all_requests() -> None:
    slow = wrk.Found(2, 10.0, 1, 0, {4000: 2})
    fast = wrk.Found(6, 10.0, 0, 2, {1000: 5, 4000: 1})
    found = wrk.together([slow, fast])
    assert found == wrk.Found(8, 20.0, 1, 2, {1000: 5, 4000: 3})
    assert found.spread == {"p50": 1.0, "p90": 4.0, "p99": 4.0, "max": 4.0}
    assert wrk.together([fast]) == fast


def test_arrivals_are_fixed_before_and_come_at_the_rate() -> None:
    due = latency.poisson(200, 20, 7)
    assert due == latency.poisson(200, 20, 7) == sorted(due)
    assert len(due) == pytest.approx(4000, rel=0.05)
    assert due[0] > 0 and due[-1] < 20
    gaps = [later - earlier for earlier, later in zip(due, due[1:], strict=False)]
    # A Poisson process' gaps spread as much as their mean; those of a regular one do not spread.
    mean = sum(gaps) / len(gaps)
    spread = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps))
    assert spread == pytest.approx(mean, rel=0.1)


def test_latency_begins_when_the_request_was_due() -> None:
    late = Asked(due=1.0, sent=1.8, ended=2.0, status=200)
    assert late.latency == 1.0
    assert late.in_time(1.0) and not late.in_time(0.9)
    assert not Asked(1.0, 1.0, 1.1, 504).in_time(1.0)


def test_request_is_whole_http_and_headers_are_found_in_any_case() -> None:
    load = Load("http://127.0.0.1:1/v1/embeddings", [], [], deadline_ms=300)
    head, _, content = load.wire({"input": "é"}).partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/embeddings HTTP/1.1\r\nhost: 127.0.0.1:1\r\n")
    assert b"x-request-timeout-ms: 300" in head
    assert f"content-length: {len(content)}".encode() in head
    answered = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 3\r\n\r\nretry-after: 9"
    assert header(answered, "retry-after") == "3"
    assert header(answered, "content-length") is None


def answered(timing: str, content: bytes = b"{}") -> bytes:
    head = f"HTTP/1.1 200 OK\r\ncontent-length: {len(content)}\r\n{timing}date: now\r\n\r\n"
    return head.encode() + content


def test_the_stage_compute_is_read_from_the_head_only() -> None:
    timing = "server-timing: parse;dur=0.036, compute;dur=7.020, select;dur=0.003\r\n"
    assert single.compute_seconds(answered(timing)) == pytest.approx(0.00702)
    last = "Server-Timing: recompute;dur=9, compute;dur=12345.678\r\n"
    assert single.compute_seconds(answered(last)) == pytest.approx(12.345678)
    assert single.compute_seconds(answered("", b"compute;dur=1.000\r\n\r\n")) is None
    assert single.compute_seconds(b"compute;dur=1.000") is None


def test_one_client_pairs_each_latency_with_compute_of_the_same_answer() -> None:
    def serve(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            # Every other request takes ten times as long.
            for milliseconds in itertools.cycle((2, 20)):
                if not connection.recv(1 << 16):
                    return
                time.sleep(milliseconds / 1e3)
                timing = f"server-timing: queue;dur=9.000, compute;dur={milliseconds}.000\r\n"
                connection.sendall(answered(timing))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=serve, args=(listener,), daemon=True)
        server.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        found = single.run(url, [b"a", b"b", b"c"], 1)
    told = [compute for _, compute in found]
    assert told == list(itertools.islice(itertools.cycle((0.002, 0.02)), len(found)))
    assert len(found) > 3 and all(took > compute for took, compute in found)
    server.join(10)
    assert not server.is_alive()
