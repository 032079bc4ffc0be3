"""Clients of NVIDIA NIM, unchanged, with the default model: each text gets its prompt."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
from haystack import Document
from haystack.utils import Secret
from haystack_integrations.components.embedders.nvidia import (
    NvidiaDocumentEmbedder,
    NvidiaTextEmbedder,
)
from langchain_nvidia_ai_endpoints import NVIDIAEmbeddings
from llama_index.embeddings.nvidia import NVIDIAEmbedding

from duovec import Client

MODEL = "multilingual-e5-small"
KEY = "nvapi-unused"
TEXTS = ["Die Katze schläft auf dem Sofa.", "The train leaves at half past six."]
# Half precision rounds differently in batches of another shape.
LEAST_COSINE = 0.998


def assert_prompt(found: list[Any], url: str, input_type: str) -> None:
    """The vectors are those of the texts with this prompt, and not with the other one."""
    texts = TEXTS[: len(found)]
    with Client(url) as client:
        for kind in ("query", "passage"):
            expected = client.dense(texts, input_type=kind)
            cosines = (np.array(found) * expected).sum(axis=1)
            assert bool((cosines > LEAST_COSINE).all()) == (kind == input_type), (kind, cosines)


def test_langchain(real_url: str) -> None:
    for truncate in ("NONE", "END"):
        embeddings = NVIDIAEmbeddings(
            model=MODEL, base_url=real_url + "/v1", nvidia_api_key=KEY, truncate=truncate
        )
        assert_prompt(embeddings.embed_documents(TEXTS), real_url, "passage")
        assert_prompt([embeddings.embed_query(TEXTS[0])], real_url, "query")


def test_llama_index(real_url: str) -> None:
    embedding = NVIDIAEmbedding(model=MODEL, base_url=real_url + "/v1", nvidia_api_key=KEY)
    assert_prompt(embedding.get_text_embedding_batch(TEXTS), real_url, "passage")
    found = asyncio.run(embedding.aget_query_embedding(TEXTS[0]))
    assert_prompt([found], real_url, "query")
    # This version sends the wrong word here; docs/clients.md warns of it.
    assert_prompt([embedding.get_query_embedding(TEXTS[0])], real_url, "passage")


def test_haystack(real_url: str) -> None:
    key, url = Secret.from_token(KEY), real_url + "/v1"
    query = NvidiaTextEmbedder(model=MODEL, api_key=key, api_url=url)
    query.warm_up()
    assert_prompt([query.run(TEXTS[0])["embedding"]], real_url, "query")
    passage = NvidiaDocumentEmbedder(model=MODEL, api_key=key, api_url=url)
    passage.warm_up()
    documents: Any = passage.run([Document(content=text) for text in TEXTS])["documents"]
    assert_prompt([document.embedding for document in documents], real_url, "passage")
