"""Scores of a pool of passages for queries: dense, lexical, BM25, overlap, and combinations."""

from __future__ import annotations

from dataclasses import dataclass

import bm25s
import numpy as np

RECIPROCAL_RANK_OFFSET = 60.0
"""The constant of reciprocal rank fusion as it was published, and as vector stores use it."""


@dataclass(frozen=True)
class Embedded:
    """One text as the server answers it, and its token ids."""

    dense: np.ndarray
    """f32 `[width]`, L2-normalized."""
    ids: np.ndarray
    """i64: the token ids that have a lexical weight, ascending."""
    weights: np.ndarray
    """f32: their weights."""
    tokens: tuple[int, ...]
    """All token ids of the text in order, without dropped ones and without the prompt."""


def dense_scores(queries: list[Embedded], pool: list[Embedded]) -> np.ndarray:
    """Cosine: f32 `[queries, pool]`."""
    return np.stack([q.dense for q in queries]) @ np.stack([p.dense for p in pool]).T


def sparse_scores(queries: list[Embedded], pool: list[Embedded]) -> np.ndarray:
    """Sum over shared ids of the product of weights."""
    return _dot([(q.ids, q.weights) for q in queries], [(p.ids, p.weights) for p in pool])


def overlap_scores(queries: list[Embedded], pool: list[Embedded]) -> np.ndarray:
    """How many distinct ids are shared."""

    def ones(text: Embedded) -> tuple[np.ndarray, np.ndarray]:
        ids = np.unique(np.asarray(text.tokens, np.int64))
        return ids, np.ones(len(ids), np.float32)

    return _dot([ones(q) for q in queries], [ones(p) for p in pool])


def bm25_scores(queries: list[Embedded], pool: list[Embedded]) -> np.ndarray:
    """BM25 with bm25s' defaults (Lucene's form, k1 1.5, b 0.75) on the same token ids."""
    index = bm25s.BM25()
    index.index([[str(i) for i in p.tokens] for p in pool], show_progress=False)
    rows = [index.get_scores([str(i) for i in q.tokens]) for q in queries]
    return np.stack(rows).astype(np.float32)


def weighted(dense: np.ndarray, sparse: np.ndarray, share: float) -> np.ndarray:
    """dense + share · sparse, as BGE-M3's own hybrid score is a weighted sum."""
    return dense + np.float32(share) * sparse


def reciprocal_rank(*scores: np.ndarray) -> np.ndarray:
    """Sum of 1 / (60 + rank) over the rankings; equal scores share the better rank."""
    total = np.zeros(scores[0].shape, np.float32)
    for one in scores:
        ordered = np.sort(-one, axis=1)
        ranks = [np.searchsorted(row, -values) for row, values in zip(ordered, one, strict=True)]
        total += 1.0 / (RECIPROCAL_RANK_OFFSET + 1.0 + np.stack(ranks)).astype(np.float32)
    return total


Weighted = tuple[np.ndarray, np.ndarray]


def _dot(queries: list[Weighted], pool: list[Weighted]) -> np.ndarray:
    """f32 `[queries, pool]` over the ids that the queries hold."""
    ids = np.unique(np.concatenate([one[0] for one in queries] + [np.zeros(1, np.int64)]))

    def rows(texts: list[Weighted]) -> np.ndarray:
        found = np.zeros((len(texts), len(ids)), np.float32)
        for row, (own, weights) in zip(found, texts, strict=True):
            at = np.minimum(np.searchsorted(ids, own), len(ids) - 1)
            known = ids[at] == own
            row[at[known]] = weights[known]
        return found

    return rows(queries) @ rows(pool).T
