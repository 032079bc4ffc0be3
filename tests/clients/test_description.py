"""`/openapi.json` says what the server does: requests made from it, answers held against it."""

from __future__ import annotations

import itertools
import os
import sys
from pathlib import Path

import pytest
import schemathesis

from server import Server, default_package, ran, running

HERE = Path(__file__).resolve().parent
# Requests for each route and phase; about half a minute on two cores.
EXAMPLES = 150

ROUTES = ["/v1/embeddings", "/v1/sparse-embeddings", "/v1/embeddings:both"]
INPUTS = ["The cat sleeps on the sofa.", ["", "Die Katze schläft."], [0, 5, 2], [[], [7, 8]]]
LONG = "word " * 600


@pytest.fixture(scope="module")
def description(server: Server) -> schemathesis.BaseSchema:
    """The description of the server with the real model."""
    return schemathesis.openapi.from_url(server.url + "/openapi.json")


@pytest.mark.parametrize("route", ROUTES)
def test_real_answers_are_of_the_described_forms(
    description: schemathesis.BaseSchema, route: str
) -> None:
    """Every combination of input and form, and an item that was cut."""
    dense, sparse = ["float", "base64", None], ["indices", "dict", "tokens", "pgvector", None]
    bodies = [
        {
            "input": value,
            "token_encoding": "model",
            "encoding_format": dense_format,
            "sparse_format": sparse_format,
        }
        for value, dense_format, sparse_format in itertools.product(INPUTS, dense, sparse)
    ]
    bodies += [
        {"input": LONG},
        {"input": LONG, "sparse_min_weight": 1e9},
        {"input": ["The cat sleeps.", ""], "offsets": True},
        {"input": "a", "user": 1},
    ]
    for body in bodies:
        case = description[route]["POST"].Case(body=body, media_type="application/json")
        assert case.call_and_validate().status_code == 200, body


def test_token_lists_are_of_the_described_form(description: schemathesis.BaseSchema) -> None:
    """Texts, token ids, and a text that is longer than the model takes."""
    for value in [*INPUTS, LONG]:
        body = {"input": value, "token_encoding": "model"}
        case = description["/v1/tokenize"]["POST"].Case(body=body, media_type="application/json")
        assert case.call_and_validate().status_code == 200, body


def test_refusals_are_of_the_described_forms(description: schemathesis.BaseSchema) -> None:
    """One request for each kind of mistake that a body can have."""
    bodies = [
        {},
        {"input": []},
        {"input": ["a", 1]},
        {"input": [2**32 - 1]},
        {"input": LONG, "truncate": False},
        {"input": "a", "dimensions": 5},
        {"input": "a", "model": "no-such-model"},
        {"input": "a", "sparse_format": "csv"},
    ]
    for body in bodies:
        case = description["/v1/embeddings"]["POST"].Case(body=body, media_type="application/json")
        checks = [schemathesis.checks.response_schema_conformance]
        answer = case.call()
        assert answer.status_code in (400, 404), body
        case.validate_response(answer, checks=checks)


def test_generated_requests_are_answered_as_described(tmp_path: Path) -> None:
    """Valid requests are taken and others refused, each with a described answer."""
    with running(
        "--engine", "fake", "--token-input", "model", "--package", default_package()
    ) as server:
        command = [sys.executable, str(HERE / "run_schemathesis.py")]
        command += ["--config-file", str(HERE / "schemathesis.toml"), "--no-color"]
        command += ["run", server.url + "/openapi.json", "--checks", "all"]
        command += ["--max-examples", str(EXAMPLES), "--continue-on-failure"]
        # It leaves a folder of its own where it runs.
        utf_8 = {**os.environ, "PYTHONUTF8": "1"}
        done = ran(*command, code=None, cwd=tmp_path, env=utf_8)
    lines = [line[:500] for line in (done.stdout + done.stderr).splitlines()]
    assert done.returncode == 0, "\n".join(lines[-150:])
    print(next((line.strip() for line in lines if "generated" in line), "no summary"))
