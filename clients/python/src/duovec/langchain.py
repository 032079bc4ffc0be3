"""LangChain's `Embeddings`. Needs langchain-core."""

from __future__ import annotations

from langchain_core.embeddings import Embeddings

from duovec.memo import Embedder


class DuovecEmbeddings(Embeddings):
    """Dense vectors; documents are passages, queries are queries.

    For a hybrid store give the same `Memo` to this and to its sparse object. The asynchronous
    methods are LangChain's own: they run these in a thread.
    """

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """A vector for each text."""
        rows: list[list[float]] = self._embedder.dense(texts, input_type="passage").tolist()
        return rows

    def embed_query(self, text: str) -> list[float]:
        """The vector of one query."""
        row: list[float] = self._embedder.dense([text], input_type="query")[0].tolist()
        return row
