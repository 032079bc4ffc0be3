"""Chroma's embedding functions. Needs chromadb."""

from __future__ import annotations

import os
from typing import Any, Self

from chromadb.api.types import (
    Documents,
    EmbeddingFunction,
    Embeddings,
    Space,
    SparseEmbeddingFunction,
    SparseVector,
    SparseVectors,
)
from chromadb.utils.embedding_functions import (
    register_embedding_function,
    register_sparse_embedding_function,
)

from duovec.client import Client
from duovec.question import InputType


class _Settings:
    """What Chroma keeps with a collection: never the key, but the name of its variable."""

    def __init__(
        self,
        servers: str | list[str] = "http://127.0.0.1:8080",
        api_key_env_var: str | None = None,
    ) -> None:
        self.servers = servers
        self.api_key_env_var = api_key_env_var
        key = os.environ[api_key_env_var] if api_key_env_var else None
        self._client = Client(servers, api_key=key)

    def get_config(self) -> dict[str, Any]:
        return {"servers": self.servers, "api_key_env_var": self.api_key_env_var}

    @classmethod
    def build_from_config(cls, config: dict[str, Any]) -> Self:
        """The function of a collection that is opened again."""
        return cls(**config)


@register_embedding_function
class DuovecEmbeddingFunction(_Settings, EmbeddingFunction[Documents]):
    """Dense vectors; documents are passages, queries are queries."""

    def __call__(self, input: Documents) -> Embeddings:
        """Vectors of documents."""
        return list(self._client.dense(input, input_type="passage"))

    def embed_query(self, input: Documents) -> Embeddings:
        """Vectors of queries."""
        return list(self._client.dense(input, input_type="query"))

    def default_space(self) -> Space:
        """The vectors have length one."""
        return "cosine"

    @staticmethod
    def name() -> str:
        """The name that Chroma keeps with a collection."""
        return "duovec"


@register_sparse_embedding_function
class DuovecSparseEmbeddingFunction(_Settings, SparseEmbeddingFunction[Documents]):
    """Lexical weights, for Chroma's cloud: the local Chroma has no index for them."""

    def __call__(self, input: Documents) -> SparseVectors:
        """Weights of documents."""
        return self._weights(input, "passage")

    def embed_query(self, input: Documents) -> SparseVectors:
        """Weights of queries."""
        return self._weights(input, "query")

    def _weights(self, texts: Documents, input_type: InputType) -> SparseVectors:
        found = self._client.sparse(texts, input_type=input_type)
        return [SparseVector(one.indices.tolist(), one.values.tolist()) for one in found]

    @staticmethod
    def name() -> str:
        """The name that Chroma keeps with a collection."""
        return "duovec_sparse"
