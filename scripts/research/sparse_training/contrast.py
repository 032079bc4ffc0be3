"""The contrastive loss over lexical scores, and its gradient for the head's weights and bias.

score(q, p) = Σ over shared token ids of w_q(t) · w_p(t), w(t) = relu(max over the positions of t of
head · hidden + bias). The loss is InfoNCE: of all candidate passages, the query's own should score
highest. relu and max commute, so the maximum is taken first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .hidden_states import States


@dataclass(frozen=True)
class TextBatch:
    """Some texts with their positions sorted by text and then by token id."""

    hidden: np.ndarray
    """f32 `[positions, width]`."""
    starts: np.ndarray
    """i64 `[entries]`: an entry is one token id of one text; its first position."""
    text: np.ndarray
    """i64 `[entries]`: which text of the batch."""
    token: np.ndarray
    """i64 `[entries]`: the token id."""
    count: int
    """Texts, those without positions too."""


class TextStore:
    """All texts of one kind, ready to be picked from."""

    def __init__(self, states: States) -> None:
        owner = np.repeat(np.arange(len(states)), np.diff(states.offsets))
        ids = np.asarray(states.ids, np.int64)
        # By text, then by id; lexsort is stable, so equal ids stay in order of position.
        self._order = np.lexsort((ids, owner))
        self._ids = ids[self._order]
        self._offsets = np.asarray(states.offsets)
        self._hidden = np.asarray(states.hidden)[self._order]
        self.width = self._hidden.shape[1]

    def pick(self, texts: np.ndarray, only: np.ndarray | None = None) -> TextBatch:
        """A batch; with `only` (sorted ids), positions of other ids are left out."""
        low, high = self._offsets[texts], self._offsets[texts + 1]
        places = np.concatenate([np.arange(a, b) for a, b in zip(low, high, strict=True)])
        places = places.astype(np.int64)
        text = np.repeat(np.arange(len(texts)), high - low)
        ids = self._ids[places]
        if only is not None:
            at = np.minimum(np.searchsorted(only, ids), len(only) - 1)
            kept = only[at] == ids
            places, text, ids = places[kept], text[kept], ids[kept]
        first = np.ones(len(ids), bool)
        first[1:] = (ids[1:] != ids[:-1]) | (text[1:] != text[:-1])
        starts = np.flatnonzero(first)
        hidden = self._hidden[places].astype(np.float32)
        return TextBatch(hidden, starts, text[starts], ids[starts], len(texts))

    def token_ids(self, texts: np.ndarray) -> np.ndarray:
        """The sorted distinct ids of some texts."""
        parts = [self._ids[self._offsets[i] : self._offsets[i + 1]] for i in texts]
        return np.unique(np.concatenate(parts))

    def positions(self) -> np.ndarray:
        """f16 `[positions, width]` of all texts."""
        return self._hidden


@dataclass(frozen=True)
class Activation:
    """The weights of a batch's entries and how they came to be."""

    weight: np.ndarray
    """f32 `[entries]`, not below zero."""
    winner: np.ndarray
    """i64 `[entries]`: the position that gave the maximum."""


def activate(batch: TextBatch, head: np.ndarray) -> Activation:
    """`head`: the weights and, last, the bias."""
    if len(batch.starts) == 0:
        return Activation(np.zeros(0, np.float32), np.zeros(0, np.int64))
    value = batch.hidden @ head[:-1].astype(np.float32) + np.float32(head[-1])
    top = np.maximum.reduceat(value, batch.starts)
    sizes = np.diff(np.append(batch.starts, len(value)))
    is_top = value == np.repeat(top, sizes)
    places = np.where(is_top, np.arange(len(value)), len(value))
    return Activation(np.maximum(top, 0.0), np.minimum.reduceat(places, batch.starts))


def matrix(batch: TextBatch, weight: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """f32 `[texts, len(ids)]`: the weights of the given sorted ids; every entry must be in it."""
    found = np.zeros((batch.count, len(ids)), np.float32)
    found[batch.text, np.searchsorted(ids, batch.token)] = weight
    return found


def head_gradient(batch: TextBatch, active: Activation, slope: np.ndarray) -> np.ndarray:
    """Gradient for the weights and the bias from the gradient for each entry's weight."""
    live = active.weight > 0.0
    slope = np.where(live, slope, 0.0).astype(np.float32)
    rows = batch.hidden[active.winner[live]]
    return np.append(slope[live] @ rows, slope.sum()).astype(np.float64)


@dataclass(frozen=True)
class Problem:
    """Queries, candidates, and which candidate each query asks for."""

    queries: TextBatch
    candidates: TextBatch
    """Only positions whose ids occur in the queries."""
    ids: np.ndarray
    """i64: the sorted distinct ids of the queries."""
    wanted: np.ndarray
    """i64 `[queries]`: the candidate to be found."""
    excused: np.ndarray
    """bool `[queries, candidates]`: other right answers, which do not compete."""


@dataclass(frozen=True)
class Penalty:
    """How much a larger mean weight costs, apart from the loss; keeps weights small and sparse."""

    query: float
    passage: float


def loss_and_gradient(
    problem: Problem, head: np.ndarray, penalty: Penalty
) -> tuple[float, np.ndarray]:
    """Mean InfoNCE of the queries plus the penalty."""
    query = activate(problem.queries, head)
    passage = activate(problem.candidates, head)
    query_matrix = matrix(problem.queries, query.weight, problem.ids)
    passage_matrix = matrix(problem.candidates, passage.weight, problem.ids)
    scores = (query_matrix @ passage_matrix.T).astype(np.float64)
    scores[problem.excused] = -np.inf
    scores -= scores.max(axis=1, keepdims=True)
    share = np.exp(scores)
    share /= share.sum(axis=1, keepdims=True)
    rows = np.arange(len(problem.wanted))
    loss = -np.log(share[rows, problem.wanted] + 1e-30).mean()
    share[rows, problem.wanted] -= 1.0
    share = (share / len(rows)).astype(np.float32)
    query_slope = (share @ passage_matrix)[
        problem.queries.text, np.searchsorted(problem.ids, problem.queries.token)
    ]
    passage_slope = (share.T @ query_matrix)[
        problem.candidates.text, np.searchsorted(problem.ids, problem.candidates.token)
    ]
    query_cost = penalty.query / max(len(query.weight), 1)
    passage_cost = penalty.passage / max(len(passage.weight), 1)
    gradient = head_gradient(problem.queries, query, query_slope + query_cost)
    gradient += head_gradient(problem.candidates, passage, passage_slope + passage_cost)
    loss += query_cost * query.weight.sum() + passage_cost * passage.weight.sum()
    return float(loss), gradient
