"""The parts of scripts/bench_http.sh that touch no server."""

import math
import random
from pathlib import Path

import pytest

from http_bench import figures, scenarios, tables, texts
from http_bench.rows import Row, overload_row, single_row, unexpected
from http_bench.vectors import BASE64, FLOATS, ROUTE, Target
from load import latency, report, wrk
from load.open_loop import Asked


def row(server: str, load: str, clients: int = 1, each: int = 1, requests: int = 1000) -> Row:
    spread = dict.fromkeys(latency.PARTS, 1.0)
    return Row(server, load, clients, each, requests, 10.0, spread)


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
    targets = {"ours": Target("http://a"), "other": Target("http://b")}
    stand_in = StandIn()
    driver = scenarios.Driver(stand_in, ["a", "b"], tmp_path, 0.5)  # type: ignore[arg-type]
    rows = driver.in_turn(targets, 4, 32, 2)
    assert stand_in.urls == ["http://a", "http://b", "http://b", "http://a"]
    assert [(row.server, row.load) for row in rows] == [(name, "closed 4 x 32") for name in targets]
    # A drift that is steady, as here, is not in the means.
    assert [row.texts_per_s for row in rows] == [2.5 * 32, 2.5 * 32]
    rounds = [row.more["rounds_texts_per_s"] for row in rows]
    assert rounds == [[1 * 32, 4 * 32], [2 * 32, 3 * 32]]
    assert rows[0].spread == {"p50": 4.0, "p90": 4.0, "p99": 4.0, "max": 4.0}

    once = driver.in_turn(targets, 16, 1, 1)
    assert stand_in.urls[4:] == [target.url for target in targets.values()]
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
    def bench(factor: float) -> dict:
        shapes = [(1, 16, 2.0), (1, 32, 3.0), (4, 16, 9.0), (64, 32, 99.0)]
        return {
            "shapes": [
                {"rows": rows, "length": length, "median_ms": ms * factor}
                for rows, length, ms in shapes
            ]
        }

    times = figures.shape_times([bench(1), bench(2)])
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
