"""The parts of scripts/bench_http.sh --against that touch no server."""

import argparse
import base64
import math
from array import array

import numpy as np
import pytest

from http_bench import against, tables, texts, vectors
from http_bench.__main__ import address
from http_bench.rows import Row
from http_bench.tables import Pair
from http_bench.vectors import Target


def row(server: str, clients: int, each: int, requests: int, ms: float = 10.0) -> Row:
    spread = {"p50": ms, "p90": 2 * ms, "p99": 3 * ms, "max": 4 * ms}
    found = Row(server, f"closed {clients} x {each}", clients, each, requests, 10.0, spread)
    found.more["rounds_texts_per_s"] = [requests * each / 10.0 * part for part in (0.9, 1.1)]
    return found


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
    one = Pair(row("duovec", 1, 1, 240), row("other", 1, 1, 50, ms=80.0))
    many = Pair(row("duovec", 4, 32, 300), row("other", 4, 32, 100, ms=40.0))
    found = tables.lines([one, many])
    assert [line[:2] for line in found] == [
        ["1 client x 1 text", "texts/s"],
        ["", "p50 ms"],
        ["", "p99 ms"],
        ["4 clients x 32 texts", "texts/s"],
        ["", "p50 ms"],
        ["", "p99 ms"],
    ]
    assert [line[4] for line in found] == ["4.80", "8.00", "8.00", "3.00", "4.00", "4.00"]
    assert found[3][5] == "3.00 to 3.00"


def test_failures_are_a_line_and_what_cannot_be_told_a_dash() -> None:
    silent = row("other", 1, 1, 0)
    silent.spread = dict.fromkeys(silent.spread, math.nan)
    silent.more["rounds_texts_per_s"] = [math.nan, math.nan]
    found = tables.lines([Pair(row("duovec", 1, 1, 10), silent)])
    assert [line[3:] for line in found] == [["-", "-", ""]] * 3
    assert found[0][0] == "1 client x 1 text"
    refused = row("other", 64, 1, 100)
    refused.errors = refused.refused = 40
    found = tables.lines([Pair(row("duovec", 64, 1, 100), refused)])
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
