"""LlamaIndex' embedding, and the functions that its Qdrant store takes. Needs llama-index-core."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from llama_index.core.base.embeddings.base import BaseEmbedding
from pydantic import PrivateAttr

from duovec.memo import Embedder
from duovec.question import InputType

SparseFunction = Callable[[list[str]], tuple[list[list[int]], list[list[float]]]]


class DuovecEmbedding(BaseEmbedding):
    """Dense vectors; texts are passages, queries are queries."""

    _embedder: Embedder = PrivateAttr()

    def __init__(self, embedder: Embedder, **settings: Any) -> None:
        """Take LlamaIndex' own settings, too, such as `embed_batch_size`."""
        super().__init__(**{"model_name": "duovec"} | settings)
        self._embedder = embedder

    @classmethod
    def class_name(cls) -> str:
        """The name in LlamaIndex' serialized form."""
        return "DuovecEmbedding"

    def _rows(self, texts: list[str], input_type: InputType) -> list[list[float]]:
        rows: list[list[float]] = self._embedder.dense(texts, input_type=input_type).tolist()
        return rows

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._rows([query], "query")[0]

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._rows([text], "passage")[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return self._rows(texts, "passage")

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return await asyncio.to_thread(self._get_query_embedding, query)

    async def _aget_text_embedding(self, text: str) -> list[float]:
        return await asyncio.to_thread(self._get_text_embedding, text)

    async def _aget_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return await asyncio.to_thread(self._get_text_embeddings, texts)


def _function(embedder: Embedder, input_type: InputType) -> SparseFunction:
    def encode(texts: list[str]) -> tuple[list[list[int]], list[list[float]]]:
        found = embedder.sparse(texts, input_type=input_type)
        return [one.indices.tolist() for one in found], [one.values.tolist() for one in found]

    return encode


def sparse_doc_fn(embedder: Embedder) -> SparseFunction:
    """For the store's argument of that name."""
    return _function(embedder, "passage")


def sparse_query_fn(embedder: Embedder) -> SparseFunction:
    """For the store's argument of that name."""
    return _function(embedder, "query")
