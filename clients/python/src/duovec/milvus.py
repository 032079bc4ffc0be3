"""Milvus' embedding function, as pymilvus.model has for BGE-M3. Needs pymilvus-model and scipy.

Milvus refuses a row without weights, and its whole insert: leave empty texts out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from pymilvus.model.base import BaseEmbeddingFunction
from scipy.sparse import csr_array

from duovec.memo import Embedder
from duovec.question import InputType
from duovec.vectors import Sparse


class DuovecEmbeddingFunction(BaseEmbeddingFunction):
    """Both kinds: `dense` is a list of vectors, `sparse` a CSR array with a row for each text."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder

    @property
    def dim(self) -> dict[str, int]:
        """The length of dense vectors, as the server has it."""
        return {"dense": self._embedder.dense([""]).shape[1]}

    def __call__(self, texts: list[str]) -> dict[str, Any]:
        """Both kinds of documents."""
        return self.encode_documents(texts)

    def encode_documents(self, documents: list[str]) -> dict[str, Any]:
        """Both kinds of documents."""
        return self._encode(documents, "passage")

    def encode_queries(self, queries: list[str]) -> dict[str, Any]:
        """Both kinds of queries."""
        return self._encode(queries, "query")

    def _encode(self, texts: list[str], input_type: InputType) -> dict[str, Any]:
        dense, sparse = self._embedder.both(texts, input_type=input_type)
        return {"dense": list(dense), "sparse": _rows(sparse)}


def _rows(found: list[Sparse]) -> Any:
    """As wide as the largest id among them needs."""
    starts = np.cumsum([0, *(len(one) for one in found)])
    indices = np.concatenate([np.zeros(0, np.int32), *(one.indices for one in found)])
    values = np.concatenate([np.zeros(0, np.float32), *(one.values for one in found)])
    width = int(indices.max(initial=0)) + 1
    return csr_array((values, indices, starts), shape=(len(found), width))
