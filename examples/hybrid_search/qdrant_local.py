#!/usr/bin/env python3
"""Hybrid search with Qdrant in memory: sixty texts in twelve languages, five questions.

Needs `pip install ./clients/python qdrant-client` and a server (`scripts/serve.sh`).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from qdrant_client import QdrantClient, models

from duovec import Client, Sparse

TEXTS = Path(__file__).resolve().parents[2] / "scripts/default_package/texts.jsonl"
QUESTIONS = [
    "When does the train to the coast leave?",
    "Wie lange muss das Brot backen?",
    "¿Cuándo hay que pagar la factura?",
    "バッテリーはどのくらい持ちますか。",
    "Почему пчёлы важны?",
]
HITS = 3
# Each ranking gives so many to the fusion.
CANDIDATES = 10


def texts() -> list[dict[str, str]]:
    """The same five texts in each of twelve languages, with `lang` and `text`."""
    lines = TEXTS.read_text(encoding="utf-8").splitlines()
    entries = [json.loads(line) for line in lines if line]
    return [one for one in entries if one["group"].startswith("t-") and one["lang"] != "th"]


def weights(sparse: Sparse) -> models.SparseVector:
    """Lexical weights as Qdrant takes them."""
    return models.SparseVector(indices=sparse.indices.tolist(), values=sparse.values.tolist())


def filled(client: Client, entries: list[dict[str, str]]) -> QdrantClient:
    """A collection with both vectors of each text."""
    dense, sparse = client.both([entry["text"] for entry in entries], input_type="passage")
    store = QdrantClient(":memory:")
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
    return store


def search(client: Client, store: QdrantClient, question: str) -> list[models.ScoredPoint]:
    """The best texts for a question, by both rankings."""
    dense, sparse = client.both([question], input_type="query")
    return store.query_points(
        "texts",
        prefetch=[
            models.Prefetch(query=dense[0].tolist(), using="dense", limit=CANDIDATES),
            models.Prefetch(query=weights(sparse[0]), using="words", limit=CANDIDATES),
        ],
        query=models.FusionQuery(fusion=models.Fusion.RRF),
        limit=HITS,
    ).points


def main() -> None:
    """Print the best hits of each question."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", default="http://127.0.0.1:8080")
    with Client(parser.parse_args().server) as client:
        store = filled(client, texts())
        for question in QUESTIONS:
            print(question)
            for point in search(client, store, question):
                payload = point.payload or {}
                print(f"  {point.score:.3f} {payload['lang']} {payload['text']}")


if __name__ == "__main__":
    main()
