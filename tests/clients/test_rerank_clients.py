"""Clients of Cohere and Voyage AI, and requests of Jina AI, against the real binary."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cohere
import httpx
import numpy as np
import pytest
import voyageai

from server import ROOT, TINY, Server, running

MODEL = "multilingual-e5-small"
QUERY = "Who sleeps?"
DOCUMENTS = ["The dog barks.", "Die Katze schläft auf dem Sofa.", "Interest rates rose."]
TOP = 2
# Half precision rounds differently in batches of another shape.
TOLERANCE = 5e-3
LEAST_COSINE = 0.998

Ranks = list[tuple[int, float]]
"""Places of documents with their scores, the best first."""


def of_cohere(answer: Any) -> Ranks:
    return [(one.index, one.relevance_score) for one in answer.results]


def cohere_client(url: str) -> Ranks:
    client = cohere.Client("unused", base_url=url)
    answer = client.rerank(
        model=MODEL, query=QUERY, documents=DOCUMENTS, top_n=TOP, return_documents=True
    )
    assert [one.document.text for one in answer.results] == [
        DOCUMENTS[one.index] for one in answer.results
    ]
    return of_cohere(answer)


def cohere_client_v2(url: str) -> Ranks:
    client = cohere.ClientV2("unused", base_url=url)
    return of_cohere(client.rerank(model=MODEL, query=QUERY, documents=DOCUMENTS, top_n=TOP))


def voyageai_client(url: str) -> Ranks:
    client = voyageai.Client("unused", base_url=url + "/v1")
    answer = client.rerank(QUERY, DOCUMENTS, model=MODEL, top_k=TOP)
    assert answer.total_tokens > 0
    assert [one.document for one in answer.results] == [
        DOCUMENTS[one.index] for one in answer.results
    ]
    return of_cohere(answer)


def jina(url: str, documents: list[Any]) -> Ranks:
    """As https://api.jina.ai/v1/rerank is asked."""
    body = {
        "model": MODEL,
        "query": QUERY,
        "top_n": TOP,
        "documents": documents,
        "return_documents": True,
    }
    headers = {"authorization": "Bearer unused", "accept": "application/json"}
    answer = httpx.post(url + "/v1/rerank", json=body, headers=headers, timeout=60)
    said = answer.raise_for_status().json()
    assert said["model"] == MODEL and said["usage"]["total_tokens"] > 0
    for one in said["results"]:
        assert one["document"] == {"text": DOCUMENTS[one["index"]]}
    return [(one["index"], one["relevance_score"]) for one in said["results"]]


CLIENTS: dict[str, Callable[[str], Ranks]] = {
    "cohere Client": cohere_client,
    "cohere ClientV2": cohere_client_v2,
    "voyageai": voyageai_client,
    "Jina AI, texts": lambda url: jina(url, DOCUMENTS),
    "Jina AI, objects": lambda url: jina(url, [{"text": text} for text in DOCUMENTS]),
}


@pytest.fixture(scope="module")
def expected(server: Server) -> Ranks:
    """What the route answers, whose scores are those of docs/api.md by tests/api/rerank.rs."""
    body = {"query": QUERY, "documents": DOCUMENTS, "top_n": TOP}
    said = httpx.post(server.url + "/v1/rerank", json=body, timeout=60).raise_for_status().json()
    return [(one["index"], one["relevance_score"]) for one in said["results"]]


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_gets_the_best_documents_with_their_scores(
    client: str, server: Server, expected: Ranks
) -> None:
    """All of them read the order, the scores, and the documents that they asked for."""
    found = CLIENTS[client](server.url)
    assert [place for place, _ in found] == [place for place, _ in expected]
    scores = [score for _, score in expected]
    assert [score for _, score in found] == pytest.approx(scores, abs=TOLERANCE)


def test_a_cross_encoders_scores_are_those_of_transformers(tmp_path: Path) -> None:
    """Of a tiny random model, made a package and served in f32."""
    folder = shutil.copytree(ROOT / "tests/fixtures/families/xlm-roberta-pairs", tmp_path / "model")
    shutil.copy(Path(TINY, "tokenizer.json"), folder)
    package = tmp_path / "package"
    export = [ROOT / "scripts/export_onnx.py", "--model", folder, "--precision", "fp32"]
    subprocess.run([sys.executable, *export, "--out", package], check=True)
    pairs = json.loads((folder / "expected.json").read_text(encoding="utf-8"))["texts"]
    with running("--package", str(package), "--precision", "f32") as server:
        client = cohere.ClientV2("unused", base_url=server.url)
        for query in {pair["query"] for pair in pairs}:
            of_query = [pair for pair in pairs if pair["query"] == query]
            documents = [pair["document"] for pair in of_query]
            found = of_cohere(client.rerank(model="package", query=query, documents=documents))
            scores = [1 / (1 + math.exp(-pair["logit"])) for pair in of_query]
            expected = sorted(enumerate(scores), key=lambda one: -one[1])
            assert [place for place, _ in found] == [place for place, _ in expected]
            assert found == [(place, pytest.approx(score, abs=1e-4)) for place, score in expected]
        refused = httpx.post(server.url + "/v1/embeddings", json={"input": "a"}, timeout=60)
        assert refused.status_code == 400 and "POST /v1/rerank" in refused.text


def test_a_refusal_is_the_clients_own_exception_with_the_cure(server: Server) -> None:
    """The message of the body is part of the exception."""
    with pytest.raises(cohere.NotFoundError, match=f'send "{MODEL}"'):
        cohere.ClientV2("unused", base_url=server.url).rerank(
            model="rerank-v3.5", query=QUERY, documents=DOCUMENTS
        )
    client = voyageai.Client("unused", base_url=server.url + "/v1")
    with pytest.raises(voyageai.error.APIError, match="use 384"):
        client.embed(DOCUMENTS, model=MODEL, output_dimension=5)


@pytest.mark.parametrize("input_type", ["query", "document"])
def test_voyageai_reads_vectors_of_every_type(input_type: str, server: Server) -> None:
    """It asks for base64, and decodes the bytes by the type that it asked for."""
    client = voyageai.Client("unused", base_url=server.url + "/v1")

    def embed(kind: str | None) -> Any:
        answer = client.embed(DOCUMENTS, model=MODEL, input_type=input_type, output_dtype=kind)
        assert answer.total_tokens > 0
        return np.array(answer.embeddings)

    def said(kind: str) -> Any:
        items = server.items(input=DOCUMENTS, input_type=input_type, output_dtype=kind)
        return np.array([one["embedding"] for one in items])

    floats = said("float")
    for kind in (None, "float"):
        assert ((embed(kind) * floats).sum(axis=1) > LEAST_COSINE).all()
    for kind in ("int8", "uint8"):
        assert np.abs(embed(kind) - said(kind)).max() < 4, kind
    for kind, middle in (("binary", 128), ("ubinary", 0)):
        found, bits = (
            np.unpackbits((numbers + middle).astype(np.uint8), axis=1)
            for numbers in (embed(kind), said(kind))
        )
        assert (found == bits).mean() > 0.97, kind
