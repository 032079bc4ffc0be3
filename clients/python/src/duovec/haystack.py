"""Haystack's embedders, with both kinds from one run. Needs haystack-ai.

Haystack refuses modules that it does not know: a pipeline that was written is read with
`Pipeline.loads(text, allowed_modules=["duovec.haystack"])`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from haystack import Document, component, default_from_dict, default_to_dict
from haystack.dataclasses import SparseEmbedding
from haystack.utils import Secret, deserialize_secrets_inplace

from duovec.client import Client
from duovec.vectors import Sparse


def _written(sparse: Sparse) -> SparseEmbedding:
    return SparseEmbedding(indices=sparse.indices.tolist(), values=sparse.values.tolist())


class _Settings:
    """What both embedders are told, and how a pipeline keeps it."""

    def __init__(
        self,
        servers: str | list[str] = "http://127.0.0.1:8080",
        api_key: Secret | None = None,
    ) -> None:
        self.servers = servers
        self.api_key = api_key
        self._client = Client(servers, api_key=api_key.resolve_value() if api_key else None)

    def to_dict(self) -> dict[str, Any]:
        """The settings; a key only as the name of its variable."""
        key = self.api_key.to_dict() if self.api_key else None
        written: dict[str, Any] = default_to_dict(self, servers=self.servers, api_key=key)
        return written

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Any:
        """An embedder of the settings."""
        if data["init_parameters"].get("api_key"):
            deserialize_secrets_inplace(data["init_parameters"], ["api_key"])
        return default_from_dict(cls, data)


@component
class DuovecTextEmbedder(_Settings):
    """Embeds a query."""

    @component.output_types(embedding=list[float], sparse_embedding=SparseEmbedding)
    def run(self, text: str) -> dict[str, Any]:
        """`embedding` and `sparse_embedding` of the query."""
        dense, sparse = self._client.both([text], input_type="query")
        return {"embedding": dense[0].tolist(), "sparse_embedding": _written(sparse[0])}


@component
class DuovecDocumentEmbedder(_Settings):
    """Embeds documents by their content."""

    @component.output_types(documents=list[Document])
    def run(self, documents: list[Document]) -> dict[str, Any]:
        """Copies of the documents with `embedding` and `sparse_embedding`."""
        texts = [document.content or "" for document in documents]
        dense, sparse = self._client.both(texts, input_type="passage")
        found = zip(documents, dense.tolist(), sparse, strict=True)
        return {
            "documents": [
                replace(document, embedding=row, sparse_embedding=_written(weights))
                for document, row, weights in found
            ]
        }
