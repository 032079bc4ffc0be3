"""The sparse half of langchain-milvus' hybrid store. Needs langchain-milvus.

The store's own index drops a fifth of the weights, which changes results and which Milvus Lite
refuses: give it `SPARSE_INDEX` and `SPARSE_SEARCH`.
"""

from __future__ import annotations

from typing import Any

from langchain_milvus.utils.sparse import BaseSparseEmbedding

from duovec.memo import Embedder

SPARSE_INDEX: dict[str, Any] = {
    "index_type": "SPARSE_INVERTED_INDEX",
    "metric_type": "IP",
    "params": {"drop_ratio_build": 0.0},
}
SPARSE_SEARCH: dict[str, Any] = {"metric_type": "IP", "params": {"drop_ratio_search": 0.0}}


class DuovecSparse(BaseSparseEmbedding):
    """Lexical weights; documents are passages, queries are queries."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder

    def embed_documents(self, texts: list[str]) -> list[dict[int, float]]:
        """Weights of each text."""
        return [one.to_dict() for one in self._embedder.sparse(texts, input_type="passage")]

    def embed_query(self, query: str) -> dict[int, float]:
        """Weights of one query."""
        (one,) = self._embedder.sparse([query], input_type="query")
        return one.to_dict()
