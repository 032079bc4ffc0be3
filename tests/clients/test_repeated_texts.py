"""Many clients ask for the same text at the same moment."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

import httpx

from server import default_package, running

CLIENTS = 8
RUN_MS = 2000
"""Long enough for all requests to come within the first run."""


def test_a_text_that_many_ask_for_at_once_runs_once() -> None:
    arguments = ["--package", default_package(), "--engine", "fake", "--fake-run-ms", str(RUN_MS)]
    with (
        running(*arguments) as server,
        httpx.Client(base_url=server.url, timeout=60) as http,
        ThreadPoolExecutor(CLIENTS) as pool,
    ):

        def ask(_: int) -> httpx.Response:
            return http.post("/v1/embeddings", json={"input": "the weather in Lisbon"})

        answers = list(pool.map(ask, range(CLIENTS)))
        metrics = http.get("/metrics").text
    assert len({answer.text for answer in answers}) == 1
    ran = re.search(r'duovec_tokens_total\{kind="real"\} (\d+)', metrics)
    assert ran is not None
    assert int(ran[1]) == answers[0].json()["usage"]["total_tokens"]
