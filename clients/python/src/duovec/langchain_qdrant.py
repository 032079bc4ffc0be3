"""The sparse half of langchain-qdrant's hybrid store. Needs langchain-qdrant."""

from __future__ import annotations

from langchain_qdrant.sparse_embeddings import SparseEmbeddings, SparseVector

from duovec.memo import Embedder
from duovec.vectors import Sparse


class DuovecSparse(SparseEmbeddings):
    """Lexical weights; documents are passages, queries are queries."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder

    def embed_documents(self, texts: list[str]) -> list[SparseVector]:
        """Weights of each text."""
        return [_written(one) for one in self._embedder.sparse(texts, input_type="passage")]

    def embed_query(self, text: str) -> SparseVector:
        """Weights of one query."""
        (one,) = self._embedder.sparse([text], input_type="query")
        return _written(one)


def _written(sparse: Sparse) -> SparseVector:
    return SparseVector(indices=sparse.indices.tolist(), values=sparse.values.tolist())
