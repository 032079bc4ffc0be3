"""Clients of Node against the real binary. scripts/lib/setup.sh installs them where npm is."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from server import FAKE, Server, running, texts

SCRIPT = Path(__file__).with_name("node_clients.cjs")
TIMEOUT_S = 60
MODEL = "tiny"
TEXTS = [entry["text"] for entry in texts() if entry["text"].strip()]


@pytest.fixture(scope="module")
def fake() -> Iterator[Server]:
    """A server whose vectors depend on nothing but the texts."""
    with running(*FAKE) as server:
        yield server


def run(client: str, server: Server, inputs: list[str]) -> Any:
    """What a client gives."""
    modules = os.environ.get("DUOVEC_NODE_CLIENTS")
    if modules is None or shutil.which("node") is None:
        pytest.skip("the clients of Node are not installed: scripts/test.sh does it where npm is")
    done = subprocess.run(
        ["node", str(SCRIPT), modules, client, server.url, MODEL],
        input=json.dumps(inputs),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def vectors(server: Server, inputs: list[str]) -> list[list[float]]:
    """What the server gives without a client."""
    answer = httpx.post(server.url + "/v1/embeddings", json={"input": inputs}).raise_for_status()
    return [item["embedding"] for item in answer.json()["data"]]


@pytest.mark.parametrize("client", ["openai", "ai_sdk"])
def test_a_client_gives_the_vectors_of_the_server(client: str, fake: Server) -> None:
    for given, expected in zip(run(client, fake, TEXTS), vectors(fake, TEXTS), strict=True):
        assert given == pytest.approx(expected, abs=1e-6)


def test_langchain_sends_texts_with_spaces_for_line_breaks(fake: Server) -> None:
    lines = [text.replace(". ", ".\n") for text in TEXTS]
    sent = [text.replace("\n", " ") for text in lines]
    for given, expected in zip(run("langchain", fake, lines), vectors(fake, sent), strict=True):
        assert given == pytest.approx(expected, abs=1e-6)


def test_both_vectors_can_be_asked_for_with_openais_own_post(fake: Server) -> None:
    body = {"input": TEXTS, "sparse_format": "dict"}
    answer = httpx.post(fake.url + "/v1/embeddings:both", json=body).raise_for_status()
    assert run("openai_both", fake, TEXTS) == answer.json()["data"]


def test_more_texts_than_a_request_takes_are_cut_by_the_ai_sdk(fake: Server) -> None:
    many = [f"the cat number {number} sleeps" for number in range(2500)]
    assert len(run("ai_sdk", fake, many)) == len(many)
