"""The server for arm64, under an emulator, answers as the server for this machine's processor."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from server import BINARY, FAKE, Server, ran, running, texts

ARM64 = os.environ["DUOVEC_TEST_ARM64"]
"""A program that starts the server for arm64."""
TEXTS = [entry["text"] for entry in texts()]
"""The project's own, in many scripts."""


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[Server, Server]]:
    """One of each processor, with vectors that depend on nothing but the texts."""
    with running(*FAKE) as here, Server(FAKE, binary=ARM64) as there:
        yield here, there


def asked(server: Server, path: str, body: Any = None) -> Any:
    """What an answer holds, however it is written."""
    method = "GET" if body is None else "POST"
    answer = httpx.request(method, server.url + path, json=body, timeout=120).raise_for_status()
    return answer.json() if "json" in answer.headers["content-type"] else answer.text


def examples(server: Server) -> dict[str, Any]:
    """Of each route that takes a body, the example of its description."""
    paths = asked(server, "/openapi.json")["paths"]
    posts = {path: methods["post"] for path, methods in paths.items() if "post" in methods}
    return {
        path: post["requestBody"]["content"]["application/json"]["example"]
        for path, post in posts.items()
    }


def test_every_route_answers_as_on_this_processor(servers: tuple[Server, Server]) -> None:
    here, there = servers
    bodies = examples(here)
    assert {"/v1/embeddings:both", "/v1/rerank", "/embed_sparse"} <= bodies.keys()
    for path, body in bodies.items():
        assert asked(there, path, body) == asked(here, path, body), path
    for path in ("/health", "/metrics", "/v1/models", "/docs"):
        assert asked(there, path), path


@pytest.mark.parametrize("form", ["base64", "float16"])
def test_vectors_of_every_script_are_those_of_this_processor(
    servers: tuple[Server, Server], form: str
) -> None:
    body = {"input": TEXTS, "offsets": True, "output_type": form}
    here, there = (asked(server, "/v1/embeddings:both", body) for server in servers)
    assert there == here


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_a_corpus_has_the_rows_that_this_processor_writes(tmp_path: Path, ending: str) -> None:
    every = tmp_path / "texts.jsonl"
    every.write_text("\n".join(json.dumps({"text": text}) for text in TEXTS))
    written = []
    for program in (BINARY, ARM64):
        out = tmp_path / f"{Path(program).name}.{ending}"
        ran(program, "embed", *FAKE, every, "--out", out)
        written.append(out.read_bytes())
    assert written[0] == written[1]
