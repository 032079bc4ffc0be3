#!/usr/bin/env python3
"""Search with Chroma in memory: sixty texts in twelve languages, five questions.

Chroma has an index for sparse vectors in its cloud only, so this is dense search. Needs
`pip install ./clients/python chromadb` and a server (`scripts/serve.sh`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import chromadb

import material
from duovec import Client
from material import HITS, Hit, Search


@contextmanager
def opened(client: Client, _folder: Path) -> Iterator[Search]:
    """The collection, filled."""
    entries = material.texts()
    texts = [entry["text"] for entry in entries]
    store = chromadb.EphemeralClient()
    collection = store.create_collection(
        "texts", configuration={"hnsw": {"space": "ip"}}, embedding_function=None
    )
    collection.add(
        ids=[str(number) for number in range(len(texts))],
        embeddings=client.dense(texts, input_type="passage"),
        documents=texts,
        metadatas=[{"lang": entry["lang"]} for entry in entries],
    )

    def search(question: str) -> list[Hit]:
        vectors = client.dense([question], input_type="query")
        found = collection.query(query_embeddings=vectors, n_results=HITS)
        (distances,), (metadatas,), (documents,) = (
            found[name] for name in ("distances", "metadatas", "documents")
        )
        rows = zip(distances, metadatas, documents, strict=True)
        return [Hit(1 - distance, metadata["lang"], text) for distance, metadata, text in rows]

    yield search


if __name__ == "__main__":
    material.run(__doc__, opened)
