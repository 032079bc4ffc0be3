#!/usr/bin/env python3
"""Hybrid search with Milvus Lite in a file: sixty texts in twelve languages, five questions.

Needs `pip install ./clients/python pymilvus milvus-lite` and a server (`scripts/serve.sh`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from pymilvus import AnnSearchRequest, DataType, MilvusClient, WeightedRanker

import material
from duovec import Client
from material import CANDIDATES, HITS, Hit, Search

METRIC = {"metric_type": "IP"}
TEXT_BYTES = 1000
# Without it, Milvus leaves out the lightest fifth of the weights.
ALL_WEIGHTS = {"drop_ratio_build": 0.0}
# `dense + 0.1 * lexical`, as docs/retrieval.md recommends; the default bends both scores first.
SUM_OF_SCORES = WeightedRanker(1.0, 0.1, norm_score=False)


def fill(store: MilvusClient, client: Client) -> None:
    """A collection with both vectors of each text."""
    entries = material.texts()
    dense, sparse = client.both([entry["text"] for entry in entries], input_type="passage")
    schema = store.create_schema()
    schema.add_field("id", DataType.INT64, is_primary=True)
    schema.add_field("lang", DataType.VARCHAR, max_length=TEXT_BYTES)
    schema.add_field("text", DataType.VARCHAR, max_length=TEXT_BYTES)
    schema.add_field("dense", DataType.FLOAT_VECTOR, dim=dense.shape[1])
    schema.add_field("words", DataType.SPARSE_FLOAT_VECTOR)
    index = store.prepare_index_params()
    index.add_index("dense", index_type="FLAT", **METRIC)
    index.add_index("words", index_type="SPARSE_INVERTED_INDEX", params=ALL_WEIGHTS, **METRIC)
    store.create_collection("texts", schema=schema, index_params=index)
    rows = [
        {"id": number, "dense": dense[number], "words": sparse[number].to_dict(), **entry}
        for number, entry in enumerate(entries)
    ]
    store.insert("texts", rows)


@contextmanager
def opened(client: Client, folder: Path) -> Iterator[Search]:
    """The store, filled; its search adds both scores."""
    with closing(MilvusClient(str(folder / "texts.db"))) as store:
        fill(store, client)

        def search(question: str) -> list[Hit]:
            dense, sparse = client.both([question], input_type="query")
            requests = [
                AnnSearchRequest([dense[0]], "dense", METRIC, limit=CANDIDATES),
                AnnSearchRequest([sparse[0].to_dict()], "words", METRIC, limit=CANDIDATES),
            ]
            fields = ["lang", "text"]
            (found,) = store.hybrid_search(
                "texts", requests, SUM_OF_SCORES, limit=HITS, output_fields=fields
            )
            return [Hit(hit["distance"], **hit["entity"]) for hit in found]

        yield search


if __name__ == "__main__":
    material.run(__doc__, opened)
