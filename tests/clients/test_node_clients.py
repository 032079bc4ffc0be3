"""Clients of Node against the real binary. scripts/lib/setup.sh installs them where npm is."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from server import Server, ran, texts

SCRIPT = Path(__file__).with_name("node_clients.cjs")
MODEL = "tiny"
TEXTS = [entry["text"] for entry in texts() if entry["text"].strip()]


def run(client: str, server: Server, inputs: list[str]) -> Any:
    """What a client gives."""
    modules = os.environ.get("DUOVEC_NODE_CLIENTS")
    if modules is None or shutil.which("node") is None:
        pytest.skip("the clients of Node are not installed: scripts/test.sh does it where npm is")
    words = ["node", SCRIPT, modules, client, server.url, MODEL]
    return json.loads(ran(*words, input=json.dumps(inputs)).stdout)


@pytest.mark.parametrize("client", ["openai", "ai_sdk"])
def test_a_client_gives_the_vectors_of_the_server(client: str, fake: Server) -> None:
    for given, item in zip(run(client, fake, TEXTS), fake.items(input=TEXTS), strict=True):
        assert given == pytest.approx(item["embedding"], abs=1e-6)


def test_langchain_sends_texts_with_spaces_for_line_breaks(fake: Server) -> None:
    lines = [text.replace(". ", ".\n") for text in TEXTS]
    sent = [text.replace("\n", " ") for text in lines]
    for given, item in zip(run("langchain", fake, lines), fake.items(input=sent), strict=True):
        assert given == pytest.approx(item["embedding"], abs=1e-6)


def test_both_vectors_can_be_asked_for_with_openais_own_post(fake: Server) -> None:
    expected = fake.items("/v1/embeddings:both", input=TEXTS, sparse_format="dict")
    assert run("openai_both", fake, TEXTS) == expected


def test_more_texts_than_a_request_takes_are_cut_by_the_ai_sdk(fake: Server) -> None:
    many = [f"the cat number {number} sleeps" for number in range(2500)]
    assert len(run("ai_sdk", fake, many)) == len(many)
