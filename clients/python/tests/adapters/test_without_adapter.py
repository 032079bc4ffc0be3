"""Frameworks' own classes for other servers: they need no adapter, and give our vectors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chromadb.utils import embedding_functions
from haystack import Document
from haystack.components.embedders import OpenAIDocumentEmbedder, OpenAITextEmbedder
from haystack.utils import Secret
from haystack_integrations.components.embedders.huggingface_api import (
    HuggingFaceAPIDocumentEmbedder,
    HuggingFaceAPITextEmbedder,
)
from lancedb.embeddings import get_registry
from llama_index.embeddings.openai import OpenAIEmbedding
from llama_index.embeddings.openai_like import OpenAILikeEmbedding

from duovec import Client
from server import FAKE, running

TEXTS = [f"the cat number {number} sleeps" for number in range(5)]
# Names that some clients insist on.
ALIASES = ["text-embedding-3-small", "text-embedding-ada-002"]
MODEL = "tiny"
DIMENSIONS = 8


@pytest.fixture(scope="module")
def aliased_url() -> Iterator[str]:
    """The address of a server that answers to the names of OpenAI's models, too."""
    with running(*FAKE, "--model-aliases", ",".join(ALIASES)) as server:
        yield server.url


def assert_same(found: list[Any], client: Client, texts: list[str]) -> None:
    np.testing.assert_allclose(np.array(found), client.dense(texts), atol=1e-6)


def test_llama_index_for_servers_like_openais(url: str, client: Client) -> None:
    embedding = OpenAILikeEmbedding(model_name=MODEL, api_base=url + "/v1", api_key="x")
    assert_same(embedding.get_text_embedding_batch(TEXTS), client, TEXTS)
    assert_same([embedding.get_query_embedding(TEXTS[0])], client, TEXTS[:1])


def test_llama_index_for_openai_with_its_own_name_of_the_model(
    aliased_url: str, client: Client
) -> None:
    embedding = OpenAIEmbedding(api_base=aliased_url + "/v1", api_key="x")
    assert embedding.model_name in ALIASES
    assert_same(embedding.get_text_embedding_batch(TEXTS), client, TEXTS)


def test_haystack_for_openai(url: str, client: Client) -> None:
    key = Secret.from_token("x")
    embedder = OpenAITextEmbedder(key, model=MODEL, api_base_url=url + "/v1")
    assert_same([embedder.run(TEXTS[0])["embedding"]], client, TEXTS[:1])
    documents = OpenAIDocumentEmbedder(key, model=MODEL, api_base_url=url + "/v1")
    found = documents.run([Document(content=text) for text in TEXTS])["documents"]
    assert_same([document.embedding for document in found], client, TEXTS)


def test_haystack_for_text_embeddings_inference(url: str, client: Client) -> None:
    server: Any = {"api_type": "text_embeddings_inference", "api_params": {"url": url}}
    found = HuggingFaceAPITextEmbedder(**server).run(TEXTS[0])["embedding"]
    assert_same([found], client, TEXTS[:1])
    documents = HuggingFaceAPIDocumentEmbedder(**server)
    embedded = documents.run([Document(content=text) for text in TEXTS])["documents"]
    assert_same([document.embedding for document in embedded], client, TEXTS)


def test_chroma_for_openai(url: str, client: Client) -> None:
    function = embedding_functions.OpenAIEmbeddingFunction(
        api_key="x", model_name=MODEL, api_base=url + "/v1"
    )
    assert_same(list(function(TEXTS)), client, TEXTS)


def test_chroma_for_text_embeddings_inference(url: str, client: Client) -> None:
    function = embedding_functions.HuggingFaceEmbeddingServer(url=url + "/embed")
    assert_same(list(function(TEXTS)), client, TEXTS)


def test_lancedb_with_a_name_of_openais(
    aliased_url: str, client: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    registered: Any = get_registry().get("openai")
    function = registered.create(
        name=ALIASES[0], dim=DIMENSIONS, base_url=aliased_url + "/v1", max_retries=0
    )
    assert function.ndims() == DIMENSIONS
    assert_same(function.compute_source_embeddings(TEXTS), client, TEXTS)
