"""Hybrid search in PostgreSQL with pgvector 0.7 or later. Needs nothing but a driver.

A table for it, and an index for each kind:

    create table texts (id bigint primary key, body text,
                        dense vector(384), sparse sparsevec(250002));
    create index on texts using hnsw (dense vector_ip_ops);
    create index on texts using hnsw (sparse sparsevec_ip_ops);

The second index takes at most 1000 weights a text; models of more tokens need `sparse_top_k`.
An index gives no more than 40 rows by default: `set hnsw.ef_search = 100` in each connection, or
for the role, lets a search have 100 candidates.
"""

from __future__ import annotations

from duovec.vectors import Dense, Sparse

# Of the fusion by reciprocal rank that docs/retrieval.md recommends for the default model: the
# ranking by meaning is much better than the one by words.
RANK_OFFSET = 10
WEIGHT_OF_WORDS = 0.3


def vector(row: Dense) -> str:
    """One row of dense vectors as the text of a `vector`."""
    return "[" + ",".join(map(str, row.tolist())) + "]"


def sparsevec(sparse: Sparse, vocabulary_size: int) -> str:
    """Weights as the text of a `sparsevec(vocabulary_size)`, whose indices begin at 1."""
    if len(sparse) and int(sparse.indices.max()) >= vocabulary_size:
        raise ValueError(
            f"token id {sparse.indices.max()} is not in a vocabulary of {vocabulary_size}; give "
            "the size of the model's vocabulary"
        )
    weights = ",".join(f"{index + 1}:{value}" for index, value in sparse.to_dict().items())
    return f"{{{weights}}}/{vocabulary_size}"


def _quoted(name: str) -> str:
    return ".".join('"' + part.replace('"', '""') + '"' for part in name.split("."))


def fusion_statement(
    table: str, *, key: str = "id", dense: str = "dense", sparse: str = "sparse"
) -> str:
    """A statement that fuses both rankings by reciprocal rank: rows of key and score, best first.

    Its parameters, as psycopg writes them: `dense` and `sparse` (texts of `vector` and
    `sparsevec`), `candidates` (rows of each ranking, 100 are good) and `limit`. The condition
    `< 0` leaves out rows that share no token with the query; they would get a rank otherwise.
    """
    key, dense, sparse = _quoted(key), _quoted(dense), _quoted(sparse)
    by_meaning = f"{dense} <#> %(dense)s::vector"
    by_words = f"{sparse} <#> %(sparse)s::sparsevec"
    return f"""
with by_meaning as (
    select {key}, row_number() over (order by distance) as place from (
        select {key}, {by_meaning} as distance from {_quoted(table)}
        order by {by_meaning} limit %(candidates)s
    ) as nearest
), by_words as (
    select {key}, row_number() over (order by distance) as place from (
        select {key}, {by_words} as distance from {_quoted(table)}
        where {by_words} < 0
        order by {by_words} limit %(candidates)s
    ) as nearest
)
select {key}, coalesce(1.0 / ({RANK_OFFSET} + by_meaning.place), 0)
    + coalesce({WEIGHT_OF_WORDS} / ({RANK_OFFSET} + by_words.place), 0) as score
from by_meaning full outer join by_words using ({key})
order by score desc, {key} limit %(limit)s
"""
