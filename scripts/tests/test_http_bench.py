"""The parts of scripts/bench_http.sh that touch no server: loads, figures, tables, latencies."""

import argparse
import base64
import json
import math
import random
from array import array
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from default_package.errors import PackageError
from http_bench import against, figures, scenarios, tables, texts, vectors
from http_bench.__main__ import address
from http_bench.rows import Row, overload_row, single_row, unexpected
from http_bench.vectors import BASE64, FLOATS, ROUTE, Target
from load import latency, report, wrk
from load.connection import header
from load.open_loop import Asked, Load


def row(
    server: str, load: str, clients: int = 1, each: int = 1, requests: int = 1000, ms: float = 1.0
) -> Row:
    spread = {"p50": ms, "p90": 2 * ms, "p99": 3 * ms, "max": 4 * ms}
    found = Row(server, load, clients, each, requests, 10.0, spread)
    found.more["rounds_texts_per_s"] = [requests * each / 10.0 * part for part in (0.9, 1.1)]
    return found


def answer(due: float, ended: float, status: int, retry_after: float | None = None) -> Asked:
    return Asked(due, due, ended, status, retry_after)


class StandIn:
    """In place of wrk: the next run finds one request more."""

    def __init__(self) -> None:
        self.urls: list[str] = []

    def run(self, url: str, clients: int, seconds: float, bodies: Path) -> wrk.Found:
        self.urls.append(url.removesuffix(ROUTE))
        requests = len(self.urls)
        return wrk.Found(requests, seconds, 0, 0, {1000 * requests: requests})


def test_servers_are_measured_in_turn_and_averaged(tmp_path: Path) -> None:
    targets = [Target("http://a", name="ours"), Target("http://b", name="other")]
    stand_in = StandIn()
    driver = scenarios.Driver(stand_in, ["a", "b"], tmp_path, 0.5)  # type: ignore[arg-type]
    rows = driver.in_turn(targets, 4, 32, 2)
    assert stand_in.urls == ["http://a", "http://b", "http://b", "http://a"]
    assert [(row.server, row.load) for row in rows] == [
        (name, "closed 4 x 32") for name in ("ours", "other")
    ]
    # A drift that is steady, as here, is not in the means.
    assert [row.texts_per_s for row in rows] == [2.5 * 32, 2.5 * 32]
    rounds = [row.more["rounds_texts_per_s"] for row in rows]
    assert rounds == [[1 * 32, 4 * 32], [2 * 32, 3 * 32]]
    assert rows[0].spread == {"p50": 4.0, "p90": 4.0, "p99": 4.0, "max": 4.0}

    once = driver.in_turn(targets, 16, 1, 1)
    assert stand_in.urls[4:] == [target.url for target in targets]
    assert [len(row.more["rounds_texts_per_s"]) for row in once] == [1, 1]


def test_heading_says_what_the_server_chose() -> None:
    tuning = {"threads_per_worker": 2, "max_batch_tokens": 512, "precision": "bf16"}
    health = {"workers": {"total": 1, "live": 1}, "tuning": tuning}
    assert tables.chosen(health) == "1 worker x 2 threads, batches of 512 tokens, bf16"


def test_added_time_is_the_spread_of_each_requests_own() -> None:
    # Differences of the percentiles would be 0.010 - 0.004.
    pairs = [(0.005, 0.004), (0.010, 0.002), (0.015, 0.012)]
    found = single_row(pairs, "duovec", "one client")
    assert found.more["added_ms"] == pytest.approx({"p50": 3.0, "p90": 8.0, "p99": 8.0, "max": 8.0})
    assert (found.requests, found.spread["p50"]) == (3, 10.0)
    silent = single_row([(0.005, None)], "another", "one client")
    assert "added_ms" not in silent.more


def test_overload_counts_goodput_refusals_and_second_tries() -> None:
    back = answer(3.0, 3.5, 200)
    too_late = answer(9.9, 10.4, 200)
    answers = [
        answer(0.0, 0.5, 200),
        answer(1.0, 2.5, 200),  # behind its deadline
        answer(1.0, 2.0, 504),
        Asked(1.0, 1.0, 1.0, 429, 2.0, back),
        Asked(2.0, 2.0, 2.0, 429, 7.9, too_late),
        Asked(2.0, 2.0, 2.0, 429, 1.0, answer(3.0, 3.0, 429)),
        answer(2.0, 2.0, 429),
    ]
    found = overload_row(answers, "duovec", 10.0, 1.0)
    assert found.more["goodput_per_s"] == pytest.approx(0.2)
    assert found.more["admitted_in_time"] == pytest.approx(1 / 3)
    assert (found.more["refused"], found.more["with_retry_after"]) == (4, 3)
    assert found.more["came_back_and_succeeded"] == pytest.approx(2 / 3)
    assert (found.errors, found.refused) == (5, 5)


def test_failed_loads_are_named() -> None:
    rows = _, refused, broken, silent = [row("duovec", f"load {at}") for at in range(4)]
    refused.errors = refused.refused = 3
    broken.errors, silent.requests = 1, 0
    assert len(unexpected(rows, small=False)) == 3
    assert len(unexpected(rows, small=True)) == 2
    refused.more["deadline_ms"] = 300
    assert len(unexpected(rows, small=False)) == 2
    refused.requests = 3
    assert len(unexpected(rows, small=True)) == 2
    assert math.isnan(silent.texts_per_s)


def judged(bulk_requests: int) -> dict[str, report.Figure]:
    overload = row("duovec", "open 300%")
    overload.more = {"refused": 9, "with_retry_after": 9, "goodput_per_s": 280.0}
    overload.more |= {"admitted_in_time": 1.0, "came_back_and_succeeded": None}
    one = row("duovec", "one client")
    one.more["added_ms"] = {"p50": 0.25}
    rows = [
        one,
        row("duovec", "closed 16 x 1", 16, requests=2000),
        row("duovec", "closed 4 x 32", 4, 32, bulk_requests),
        row("duovec", "mixed, interactive"),
        overload,
        row("duovec, fake", "GET /health/live", each=0),
        row("duovec, fake", "one client"),
        row("duovec, fake", "closed 64 x 1", 64, requests=140_000),
    ]
    # What the other engine can do is nothing that the model's loads are measured by.
    assert figures.capacity_of(rows) == 200
    seen = {"ceiling": 350.0, "capacity": 300.0, "real_per_padded": 0.95}
    seen |= {"largest_batch_ms": 60.0, "own_ms": 5.0}
    return {figure.what: figure for figure in figures.judge(rows, seen)}


def test_figures_pass_miss_or_were_not_seen() -> None:
    found = judged(100)
    assert found["bulk 4 x 32 of the ceiling"].reached == "91.4 %"
    assert found["bulk 4 x 32 of the ceiling"].verdict == report.PASS
    assert found["16 x 1 of the ceiling"].verdict == report.MISS
    added = found["one client: p50 over the engine's own time for the same request"]
    assert (added.reached, added.verdict) == ("0.25 ms", report.PASS)
    assert found["fake engine, 64 x 1"].reached == "14,000 requests/s"
    assert found["fake engine, 64 x 1"].verdict == report.MISS
    assert found["overload: goodput of capacity"].verdict == report.PASS
    assert found["overload: come back when told, and succeed"].verdict == report.UNSEEN
    assert judged(0)["bulk 4 x 32 of the ceiling"].verdict == report.UNSEEN


def test_engine_time_is_the_mean_of_the_smallest_shape_that_holds_the_text() -> None:
    shapes = [(1, 16, 2.0), (1, 32, 3.0), (4, 16, 9.0), (64, 32, 99.0)]
    names = ("rows", "length", "median_ms")
    benches = [
        {"shapes": [dict(zip(names, (*shape, ms * factor), strict=True)) for *shape, ms in shapes]}
        for factor in (1, 2)
    ]
    times = figures.shape_times(benches)
    assert [figures.engine_time(times, tokens) for tokens in (16, 17)] == [3.0, 4.5]
    assert math.isnan(figures.engine_time(times, 33))
    assert figures.largest_batch(times, 64) == 13.5


def test_table_is_aligned_and_dashes_what_was_not_seen() -> None:
    silent = row("duovec", "closed 4 x 32", requests=0)
    refused = row("another", "open 300%")
    refused.errors, refused.refused = 12, 10
    lines = tables.loads([silent, refused]).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert "|          - |" in lines[2]
    assert "12 (2 silent)" in lines[3]
    head = report.figures(list(judged(100).values())).splitlines()[0]
    names = [cell.strip() for cell in head.strip("|").split("|")]
    assert names == ["figure", "reached", "wanted", "PASS or MISS"]
    assert [report.number(value) for value in (0.123, 12.34, 1234.5)] == ["0.12", "12.3", "1,234"]


def test_bodies_hold_every_text_and_fill_the_last_one_up() -> None:
    made = texts.bodies(["a", "b", "c"], 2, BASE64)
    assert [body["input"] for body in made] == [["a", "b"], ["c", "a"]]
    assert texts.bodies(["a"], 1, FLOATS) == [{"input": "a", "encoding_format": "float"}]


def test_sample_has_the_lengths_of_all_texts() -> None:
    every = ["word " * count for count in range(1, 101)]
    random.Random(3).shuffle(every)
    assert [len(text) // 5 for text in texts.sample(every, 4)] == [13, 38, 63, 88]
    assert sorted(texts.sample(every, 1000)) == sorted(every)


def test_pieces_are_joined_and_cut_to_drawn_lengths() -> None:
    found = list(texts.pieces(["One sentence stands here. " * 4] * 200, random.Random(5)))
    lengths = {len(piece) for piece in found}
    assert len(found) > 50 and len(lengths) > 20
    assert all(texts.passages.token_estimate(piece) <= texts.TOKENS_MAX * 1.1 for piece in found)


def test_only_servers_of_this_machine_are_measured() -> None:
    assert address("http://127.0.0.1:8081/") == "http://127.0.0.1:8081"
    assert address("http://localhost:8081/v1") == "http://localhost:8081"
    assert address("http://[::1]:8081") == "http://[::1]:8081"
    for url in ["http://192.0.2.7:80", "http://example.org", "https://127.0.0.1", "127.0.0.1:80"]:
        with pytest.raises(argparse.ArgumentTypeError, match="must be on this machine"):
            address(url)


def test_both_servers_are_asked_for_the_same_form_of_vectors() -> None:
    other, own = against.dialects("tei", None)
    assert texts.bodies(["a", "b"], 2, other) == [{"inputs": ["a", "b"], "truncate": True}]
    assert texts.bodies(["a"], 1, other) == [{"inputs": "a", "truncate": True}]
    assert texts.bodies(["a"], 1, own) == [{"input": "a", "encoding_format": "float"}]
    assert Target("http://a", other).address == "http://a/embed"
    other, own = against.dialects("openai", "m")
    assert other.body("a") == {"input": "a", "encoding_format": "base64", "model": "m"}
    assert own.body("a") == {"input": "a", "encoding_format": "base64"}
    # Bodies are kept in files by this name.
    assert other.name != own.name


def test_ratios_above_one_are_in_our_favour() -> None:
    one = (row("duovec", "", 1, 1, 240, 10.0), row("other", "", 1, 1, 50, 80.0))
    many = (row("duovec", "", 4, 32, 300, 10.0), row("other", "", 4, 32, 100, 40.0))
    loads, names, _, _, ratios, rounds = zip(*tables.lines([one, many]), strict=True)
    assert loads == ("1 client x 1 text", "", "", "4 clients x 32 texts", "", "")
    assert names == ("texts/s", "p50 ms", "p99 ms") * 2
    assert ratios == ("4.80", "8.00", "8.00", "3.00", "4.00", "4.00")
    assert rounds[3] == "3.00 to 3.00"


def test_failures_are_a_line_and_what_cannot_be_told_a_dash() -> None:
    silent = row("other", "", 1, 1, 0)
    silent.spread = dict.fromkeys(silent.spread, math.nan)
    silent.more["rounds_texts_per_s"] = [math.nan, math.nan]
    found = tables.lines([(row("duovec", "", 1, 1, 10), silent)])
    assert [line[3:] for line in found] == [["-", "-", ""]] * 3
    assert found[0][0] == "1 client x 1 text"
    refused = row("other", "", 64, 1, 100)
    refused.errors = refused.refused = 40
    found = tables.lines([(row("duovec", "", 64, 1, 100), refused)])
    assert found[-1] == ["", "failed", "0", "40", "", ""]
    assert found[0][4] == "1.67", "only good answers count"


def test_vectors_are_read_in_every_form() -> None:
    written = base64.b64encode(array("f", [1.0, 0.5]).tobytes()).decode()
    as_openai = {"data": [{"index": 0, "embedding": written}, {"index": 1, "embedding": [2, 3]}]}
    assert [list(vector) for vector in vectors._read(as_openai)] == [[1.0, 0.5], [2.0, 3.0]]
    assert [list(one) for one in vectors._read([[1, 2], [3, 4]])] == [[1.0, 2.0], [3.0, 4.0]]


def test_another_model_is_told_from_ours() -> None:
    own = np.asarray([[1.0, 0.0], [0.6, 0.8]])
    for other, told in [
        ([[2.0, 0.0], [0.6, 0.8]], "the same vectors"),
        ([[1.0, 0.0], [0.8, -0.6]], "OTHER VECTORS"),
        ([[1.0, 0.0], [0.0, 0.0]], "OTHER VECTORS"),
        ([[1.0], [1.0]], "ANOTHER MODEL"),
    ]:
        assert vectors.likeness(list(own), list(np.asarray(other))).startswith(told)


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
