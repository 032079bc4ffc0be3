"""Scores of a pool of passages for queries: dense, lexical, BM25, overlap, and combinations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import bm25s
import numpy as np

Tokens = Sequence[tuple[int, ...]]
"""Token ids of each text, in order."""


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


def bm25_scores(queries: Tokens, pool: Tokens) -> np.ndarray:
    """BM25 with bm25s' defaults (Lucene's form, k1 1.5, b 0.75) on the same token ids."""
    index = bm25s.BM25()
    index.index([[str(i) for i in tokens] for tokens in pool], show_progress=False)
    rows = [index.get_scores([str(i) for i in tokens]) for tokens in queries]
    return np.stack(rows).astype(np.float32)


def weighted(dense: np.ndarray, sparse: np.ndarray, share: float) -> np.ndarray:
    """dense + share · sparse, as BGE-M3's own hybrid score is a weighted sum."""
    return dense + np.float32(share) * sparse


@dataclass(frozen=True)
class RankFusion:
    """Reciprocal rank fusion as vector stores offer it."""

    offset: float
    """The constant k; 60 as it was published."""
    depth: int
    """Hits that are asked of each ranking; a passage behind them gets nothing from it."""
    share: float
    """What a rank in the lexical ranking counts, beside one in the dense ranking."""

    def scores(self, dense: np.ndarray, sparse: np.ndarray) -> np.ndarray:
        """f32 `[queries, pool]`: sum of share / (offset + rank); equal scores share the better
        rank, and a lexical score of zero is no hit."""
        found = self._part(dense, np.ones(dense.shape, bool))
        return found + np.float32(self.share) * self._part(sparse, sparse > 0.0)

    def _part(self, scores: np.ndarray, hits: np.ndarray) -> np.ndarray:
        ordered = np.sort(-scores, axis=1)
        rows = zip(ordered, scores, strict=True)
        ranks = 1 + np.stack([np.searchsorted(row, -values) for row, values in rows])
        found = np.where(hits & (ranks <= self.depth), 1.0 / (self.offset + ranks), 0.0)
        return found.astype(np.float32)


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
