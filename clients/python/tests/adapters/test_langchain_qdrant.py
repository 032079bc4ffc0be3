"""LangChain with Qdrant in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from langchain_qdrant import QdrantVectorStore, RetrievalMode

from conftest import texts_taken
from duovec import Client, Memo
from duovec.langchain import DuovecEmbeddings
from duovec.langchain_qdrant import DuovecSparse
from server import texts

TEXTS = [f"the cat number {number} sleeps" for number in range(20)]

# Of which group the best hit is; each group has one text in thirteen languages.
QUERIES = {
    "When does the train to the coast leave?": "t-train",
    "Wie lange muss das Brot backen?": "t-bread",
    "バッテリーを交換するには": "t-battery",
}


def store(embedder: Client | Memo, documents: list[str]) -> QdrantVectorStore:
    return QdrantVectorStore.from_texts(
        documents,
        embedding=DuovecEmbeddings(embedder),
        sparse_embedding=DuovecSparse(embedder),
        retrieval_mode=RetrievalMode.HYBRID,
        location=":memory:",
        collection_name="texts",
    )


def test_a_hybrid_store_runs_each_text_once(client: Client, texts_run: Callable[[], int]) -> None:
    found = store(Memo(client), TEXTS).similarity_search(TEXTS[3], k=1)
    assert [document.page_content for document in found] == [TEXTS[3]]
    # One text beside them: LangChain looks at the length of its vector.
    assert texts_run() == len(TEXTS) + 1 + 1


def test_without_a_memo_each_text_runs_twice(client: Client, texts_run: Callable[[], int]) -> None:
    store(client, TEXTS).similarity_search(TEXTS[3], k=1)
    assert texts_run() > 2 * len(TEXTS)


def test_the_asynchronous_methods_give_the_same(client: Client) -> None:
    embeddings, weights = DuovecEmbeddings(client), DuovecSparse(client)
    assert asyncio.run(embeddings.aembed_documents(TEXTS)) == embeddings.embed_documents(TEXTS)
    assert asyncio.run(embeddings.aembed_query("a cat")) == embeddings.embed_query("a cat")
    assert asyncio.run(weights.aembed_query("a cat")) == weights.embed_query("a cat")
    assert weights.embed_documents([""])[0].indices == []


def test_the_default_model_finds_translations_and_runs_each_text_once(real_url: str) -> None:
    groups = {entry["text"]: entry["group"] for entry in texts()}
    before = texts_taken(real_url)
    with Client(real_url) as client:
        hybrid = store(Memo(client), list(groups))
        found = [
            [groups[document.page_content] for document in hybrid.similarity_search(query, k=3)]
            for query in QUERIES
        ]
    print(found)
    assert [hits[0] for hits in found] == list(QUERIES.values())
    # One text beside them: LangChain looks at the length of its vector.
    assert texts_taken(real_url) - before == len(groups) + len(QUERIES) + 1
