"""Haystack with Qdrant in memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from haystack import Document, Pipeline
from haystack.utils import Secret
from haystack_integrations.components.retrievers.qdrant import QdrantHybridRetriever
from haystack_integrations.document_stores.qdrant import QdrantDocumentStore

from duovec.haystack import DuovecDocumentEmbedder, DuovecTextEmbedder

TEXTS = [f"the cat number {number} sleeps" for number in range(20)]


def test_a_hybrid_pipeline_runs_each_text_once(url: str, texts_run: Callable[[], int]) -> None:
    store = QdrantDocumentStore(
        ":memory:", index="texts", embedding_dim=8, use_sparse_embeddings=True
    )
    documents = [Document(content=text) for text in TEXTS]
    store.write_documents(DuovecDocumentEmbedder(servers=url).run(documents)["documents"])
    assert documents[0].embedding is None

    pipeline = Pipeline()
    pipeline.add_component("embedder", DuovecTextEmbedder(servers=url))
    pipeline.add_component("retriever", QdrantHybridRetriever(document_store=store, top_k=1))
    pipeline.connect("embedder.embedding", "retriever.query_embedding")
    pipeline.connect("embedder.sparse_embedding", "retriever.query_sparse_embedding")
    found = pipeline.run({"embedder": {"text": TEXTS[3]}})["retriever"]["documents"]
    assert [document.content for document in found] == [TEXTS[3]]
    assert texts_run() == len(TEXTS) + 1


def test_a_written_pipeline_is_read_again_without_its_key(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUOVEC_KEY", "very-secret")
    pipeline = Pipeline()
    key = Secret.from_env_var("DUOVEC_KEY")
    pipeline.add_component("embedder", DuovecTextEmbedder(servers=url, api_key=key))
    written = pipeline.dumps()
    assert "very-secret" not in written
    again = Pipeline.loads(written, allowed_modules=["duovec.haystack"])
    assert len(again.run({"embedder": {"text": "a cat"}})["embedder"]["embedding"]) == 8
