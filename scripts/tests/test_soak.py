"""How scripts/soak.sh judges memory, and what it tells of wrong answers."""

import random

from load.connection import Answer
from soak.tally import Tally, growth, series, spread, thirds

ALLOWED = 0.03
"""The default of --growth."""
MINUTE_S = 60


def settled(leak_mb_per_minute: float, scatter: float = 0.2) -> list[float]:
    """Samples of 45 minutes, a second each, of a server that has settled at 100 MB."""
    chance = random.Random(1)
    return [
        (100 + leak_mb_per_minute * second / MINUTE_S) * chance.uniform(1 - scatter, 1 + scatter)
        for second in range(45 * MINUTE_S)
    ]


def seen(samples: list[float]) -> float:
    """The growth from the first quarter of an hour to the last."""
    return growth(*thirds(samples))


def test_a_slow_leak_is_seen_through_the_scatter() -> None:
    assert seen(settled(0.15)) > ALLOWED


def test_scatter_alone_is_no_growth() -> None:
    assert abs(seen(settled(0.0))) < ALLOWED / 3


def test_a_step_that_stays_is_growth() -> None:
    samples = settled(0.0)
    higher = [megabytes + 5 for megabytes in samples[16 * MINUTE_S :]]
    assert seen(samples[: 16 * MINUTE_S] + higher) > ALLOWED


def test_a_peak_that_passes_is_no_growth() -> None:
    samples = settled(0.0)
    samples[-MINUTE_S:] = [400.0] * MINUTE_S
    assert seen(samples) < ALLOWED


def test_the_series_has_a_figure_for_each_20_seconds() -> None:
    samples = [80.0 + second // 300 for second in range(601)]
    assert series(samples) == [
        "  MB from minute  0: " + " ".join(["80"] * 15),
        "  MB from minute  5: " + " ".join(["81"] * 15),
        "  MB from minute 10: 82",
    ]
    before, after = thirds(samples)
    assert spread(before) == "80.0 MB (80.0 to 80.0)"
    assert spread(after) == "81.0 MB (81.0 to 82.0)"


def test_a_wrong_answer_is_told_with_its_moment_its_time_and_the_load() -> None:
    seconds = iter([100.0, 173.25, 180.0])
    tally = Tally(clock=lambda: next(seconds), load=lambda: "3.10, 5 threads")
    tally.problem("ask: 503 no_worker", began=172.0)
    tally.problem("ask: 503 no_worker", began=179.5)
    assert tally.ended["wrong"] == 2
    assert tally.lines() == [
        "wrong, 2 times: ask: 503 no_worker",
        "wrong at 73.2 s, took 1.250 s, load 3.10, 5 threads: ask: 503 no_worker",
        "wrong at 80.0 s, took 0.500 s, load 3.10, 5 threads: ask: 503 no_worker",
    ]
    assert Tally().load().endswith(" threads"), "it is that of this machine where nobody says"


def test_what_an_answer_tells_is_its_code_or_its_beginning() -> None:
    refused = b'{"error":{"message":"wait","code":"no_worker"}}'
    assert Answer(503, b"", refused).told == "no_worker"
    assert Answer(200, b"", b'{"data":[]}').told == '{"data":[]}'
    assert Answer(502, b"", b"<html>\xff").told == "<html>\ufffd"
