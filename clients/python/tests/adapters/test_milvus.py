"""Milvus Lite with the shape of pymilvus.model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from pymilvus import AnnSearchRequest, DataType, MilvusClient, MilvusException, RRFRanker

from duovec import Client
from duovec.milvus import DuovecEmbeddingFunction

TEXTS = [f"the cat number {number} sleeps" for number in range(20)]


def collection(path: Path) -> MilvusClient:
    database = MilvusClient(str(path / "texts.db"))
    schema = database.create_schema()
    schema.add_field("id", DataType.INT64, is_primary=True)
    schema.add_field("dense", DataType.FLOAT_VECTOR, dim=8)
    schema.add_field("sparse", DataType.SPARSE_FLOAT_VECTOR)
    index = database.prepare_index_params()
    index.add_index("dense", index_type="FLAT", metric_type="IP")
    index.add_index("sparse", index_type="SPARSE_INVERTED_INDEX", metric_type="IP")
    database.create_collection("texts", schema=schema, index_params=index)
    return database


def test_both_kinds_are_stored_and_found(
    client: Client, tmp_path: Path, texts_run: Callable[[], int]
) -> None:
    embed = DuovecEmbeddingFunction(client)
    database = collection(tmp_path)
    found = embed.encode_documents(TEXTS)
    database.insert(
        "texts",
        [
            {"id": number, "dense": found["dense"][number], "sparse": found["sparse"][[number]]}
            for number in range(len(TEXTS))
        ],
    )
    query = embed.encode_queries([TEXTS[3]])
    requests = [
        AnnSearchRequest([query["dense"][0]], "dense", {"metric_type": "IP"}, limit=10),
        AnnSearchRequest([query["sparse"][[0]]], "sparse", {"metric_type": "IP"}, limit=10),
    ]
    ((hit,),) = database.hybrid_search("texts", requests, RRFRanker(), limit=1)
    assert hit["id"] == 3
    assert texts_run() == len(TEXTS) + 1
    database.close()


def test_weights_in_the_servers_own_form_are_stored_as_they_are(url: str, tmp_path: Path) -> None:
    request = {"input": TEXTS, "sparse_format": "dict"}
    data = httpx.post(url + "/v1/embeddings:both", json=request).json()["data"]
    database = collection(tmp_path)
    database.insert(
        "texts",
        [
            {"id": number, "dense": item["embedding"], "sparse": item["sparse_values"]}
            for number, item in enumerate(data)
        ],
    )
    for number, item in enumerate(data):
        best = max(shared(item["sparse_values"], other["sparse_values"]) for other in data)
        ((hit,),) = database.search(
            "texts",
            [item["sparse_values"]],
            anns_field="sparse",
            search_params={"metric_type": "IP"},
            limit=1,
        )
        assert hit["distance"] == pytest.approx(best, rel=1e-3), number
    database.close()


def shared(one: dict[str, float], other: dict[str, float]) -> float:
    """The sum of products over shared tokens."""
    return sum(weight * other.get(token, 0) for token, weight in one.items())


def test_milvus_takes_no_text_without_weights(client: Client, tmp_path: Path) -> None:
    found = DuovecEmbeddingFunction(client).encode_documents([""])
    database = collection(tmp_path)
    row = {"id": 1, "dense": found["dense"][0], "sparse": found["sparse"][[0]]}
    with pytest.raises(MilvusException, match="at least one nonzero"):
        database.insert("texts", [row])
    database.close()


def test_the_sparse_array_has_the_weights_of_the_client(client: Client) -> None:
    embed = DuovecEmbeddingFunction(client)
    texts = [*TEXTS, "", "a sofa"]
    rows = embed(texts)["sparse"]
    assert embed.dim == {"dense": 8}
    assert rows.shape[0] == len(texts)
    for number, sparse in enumerate(client.sparse(texts)):
        row = rows[[number]].tocoo()
        assert dict(zip(row.col.tolist(), row.data.tolist(), strict=True)) == sparse.to_dict()
