#!/usr/bin/env python3
"""Hybrid search with Qdrant in memory: sixty texts in twelve languages, five questions.

Needs `pip install ./clients/python qdrant-client` and a server (`scripts/serve.sh`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from qdrant_client import QdrantClient, models

import material
from duovec import Client, Sparse
from material import CANDIDATES, HITS, Hit, Search

# `dense + 0.1 * lexical`, as docs/retrieval.md recommends. A text that only one of the rankings
# has gets nothing from the other.
SUM_OF_SCORES = models.FormulaQuery(
    formula=models.SumExpression(sum=["$score[0]", models.MultExpression(mult=[0.1, "$score[1]"])]),
    defaults={"$score[0]": 0.0, "$score[1]": 0.0},
)


def weights(sparse: Sparse) -> models.SparseVector:
    """Lexical weights as Qdrant takes them."""
    return models.SparseVector(indices=sparse.indices.tolist(), values=sparse.values.tolist())


def fill(store: QdrantClient, client: Client) -> None:
    """A collection with both vectors of each text."""
    entries = material.texts()
    dense, sparse = client.both([entry["text"] for entry in entries], input_type="passage")
    size = dense.shape[1]
    store.create_collection(
        "texts",
        vectors_config={"dense": models.VectorParams(size=size, distance=models.Distance.DOT)},
        sparse_vectors_config={"words": models.SparseVectorParams()},
    )
    points = [
        models.PointStruct(
            id=number,
            vector={"dense": dense[number].tolist(), "words": weights(sparse[number])},
            payload=dict(entry),
        )
        for number, entry in enumerate(entries)
    ]
    store.upsert("texts", points)


@contextmanager
def opened(client: Client, _folder: Path) -> Iterator[Search]:
    """The store, filled; its search adds both scores."""
    with closing(QdrantClient(":memory:")) as store:
        fill(store, client)

        def search(question: str) -> list[Hit]:
            dense, sparse = client.both([question], input_type="query")
            found = store.query_points(
                "texts",
                prefetch=[
                    models.Prefetch(query=dense[0].tolist(), using="dense", limit=CANDIDATES),
                    models.Prefetch(query=weights(sparse[0]), using="words", limit=CANDIDATES),
                ],
                query=SUM_OF_SCORES,
                limit=HITS,
            )
            return [Hit(point.score, **(point.payload or {})) for point in found.points]

        yield search


if __name__ == "__main__":
    material.run(__doc__, opened)
