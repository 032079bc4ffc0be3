"""LlamaIndex with Qdrant in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from llama_index.core import StorageContext, VectorStoreIndex
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import VectorStoreQueryMode
from llama_index.vector_stores.qdrant import QdrantVectorStore
from qdrant_client import QdrantClient

from duovec import Client, Memo
from duovec.llama_index import DuovecEmbedding, sparse_doc_fn, sparse_query_fn

TEXTS = [f"the cat number {number} sleeps" for number in range(20)]


def test_a_hybrid_index_runs_each_text_once(client: Client, texts_run: Callable[[], int]) -> None:
    memo = Memo(client)
    store = QdrantVectorStore(
        "texts",
        client=QdrantClient(":memory:"),
        enable_hybrid=True,
        sparse_doc_fn=sparse_doc_fn(memo),
        sparse_query_fn=sparse_query_fn(memo),
    )
    index = VectorStoreIndex(
        [TextNode(text=text) for text in TEXTS],
        storage_context=StorageContext.from_defaults(vector_store=store),
        embed_model=DuovecEmbedding(memo),
    )
    retriever = index.as_retriever(
        vector_store_query_mode=VectorStoreQueryMode.HYBRID, similarity_top_k=1
    )
    assert [hit.text for hit in retriever.retrieve(TEXTS[3])] == [TEXTS[3]]
    assert texts_run() == len(TEXTS) + 1


def test_the_asynchronous_methods_give_the_same(client: Client) -> None:
    embedding = DuovecEmbedding(client, embed_batch_size=7)

    async def ask() -> tuple[list[list[float]], list[float]]:
        batch = await embedding.aget_text_embedding_batch(TEXTS)
        return batch, await embedding.aget_query_embedding("a cat")

    assert asyncio.run(ask()) == (
        embedding.get_text_embedding_batch(TEXTS),
        embedding.get_query_embedding("a cat"),
    )
