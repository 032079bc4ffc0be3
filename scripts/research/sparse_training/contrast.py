"""Lexical weights of texts, the contrastive loss over their scores, and its gradient.

A position's value is `head · features`; a token id weighs relu(max over its positions), divided by
the text's norm. The norm is the square root of the sum of the squares of relu(value) over all
positions of the text, its prompt's too, raised to the exponent: what the graph computes.
score(q, p) = Σ over shared token ids of the product of weights. The loss is InfoNCE: of all
candidate passages, the query's own should score highest.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from default_package import sparse_head
from default_package.sparse_head import NORM_FLOOR

from .hidden_states import States

PROMPT = -1
"""Stands for the ids of a prompt: they weigh in the norm and match nothing."""


def stored_head(path: Path = sparse_head.PATH) -> tuple[np.ndarray, float]:
    """A number for each feature, and the exponent of the norm, of a head's file."""
    stored = json.loads(path.read_text(encoding="utf-8"))
    more = [stored.get(name, 0.0) for name in ("surprisal_weight", "repeat_weight")]
    head = np.asarray([*stored["weights"], *more, stored["bias"]])
    return head, stored.get("norm_exponent", 0.0)


@dataclass(frozen=True)
class TextBatch:
    """Some texts with their positions sorted by text and then by token id."""

    features: np.ndarray
    """f32 `[positions, width]`: hidden state, surprisal of the piece, logarithm of how often the
    text has it, and one for the bias."""
    owner: np.ndarray
    """i64 `[positions]`: which text of the batch."""
    starts: np.ndarray
    """i64 `[entries]`: an entry is one token id of one text; its first position."""
    text: np.ndarray
    """i64 `[entries]`: which text of the batch."""
    token: np.ndarray
    """i64 `[entries]`: the token id, or PROMPT."""
    count: int
    """Texts, those without positions too."""


class TextStore:
    """All texts of one kind, ready to be picked from."""

    def __init__(self, states: States, surprisal: np.ndarray) -> None:
        """`surprisal`: f32 of each token id."""
        sizes = np.diff(states.offsets)
        owner = np.repeat(np.arange(len(states)), sizes)
        place = np.arange(int(states.offsets[-1])) - np.repeat(states.offsets[:-1], sizes)
        ids = np.where(place < states.prompt, PROMPT, np.asarray(states.ids, np.int64))
        # By text, then by id; lexsort is stable, so equal ids stay in order of position.
        order = np.lexsort((ids, owner))
        self._ids = ids[order]
        self._offsets = np.asarray(states.offsets)
        self._hidden = np.asarray(states.hidden)[order]
        real = np.asarray(states.ids)[order]
        self._surprisal = surprisal[real].astype(np.float32)
        pairs = owner[order] * len(surprisal) + real
        _, inverse, counts = np.unique(pairs, return_inverse=True, return_counts=True)
        self._repeats = np.log(counts[inverse]).astype(np.float32)

    def pick(self, texts: np.ndarray) -> TextBatch:
        """A batch of these texts."""
        low, high = self._offsets[texts], self._offsets[texts + 1]
        parts = [np.arange(a, b) for a, b in zip(low, high, strict=True)]
        places = np.concatenate([*parts, np.zeros(0, np.int64)]).astype(np.int64)
        owner, ids = np.repeat(np.arange(len(texts)), high - low), self._ids[places]
        first = np.ones(len(ids), bool)
        first[1:] = (ids[1:] != ids[:-1]) | (owner[1:] != owner[:-1])
        starts = np.flatnonzero(first)
        return TextBatch(self.features(places), owner, starts, owner[starts], ids[starts], len(low))

    def features(self, places: np.ndarray) -> np.ndarray:
        """f32 `[positions, width]` of these positions."""
        hidden = self._hidden[places]
        found = np.ones((len(places), hidden.shape[1] + 3), np.float32)
        found[:, :-3] = hidden
        found[:, -3], found[:, -2] = self._surprisal[places], self._repeats[places]
        return found

    def token_ids(self, texts: np.ndarray) -> np.ndarray:
        """The sorted distinct ids of some texts."""
        parts = [self._ids[self._offsets[i] : self._offsets[i + 1]] for i in texts]
        found = np.unique(np.concatenate(parts))
        return found[found != PROMPT]

    @property
    def texts(self) -> int:
        """How many."""
        return len(self._offsets) - 1

    @property
    def positions(self) -> int:
        """Of all texts."""
        return len(self._ids)


@dataclass(frozen=True)
class Activation:
    """The weights of a batch's entries and how they came to be."""

    weight: np.ndarray
    """f32 `[entries]`, not below zero."""
    winner: np.ndarray
    """i64 `[entries]`: the position that gave the maximum."""
    positive: np.ndarray
    """f32 `[positions]`: relu of the value."""
    squares: np.ndarray
    """f64 `[texts]`: the sum of the squares of `positive`."""
    divisor: np.ndarray
    """f32 `[texts]`: what the text's weights were divided by."""


def activate(batch: TextBatch, head: np.ndarray, exponent: float) -> Activation:
    """`head`: a number for each feature; `exponent` 0 leaves weights as they are."""
    value = batch.features @ head.astype(np.float32)
    positive = np.maximum(value, 0.0)
    squares = np.bincount(batch.owner, positive.astype(np.float64) ** 2, batch.count)
    squares = np.maximum(squares, NORM_FLOOR**2)
    divisor = (squares ** (exponent / 2)).astype(np.float32)
    if len(batch.starts) == 0:
        none = np.zeros(0, np.int64)
        return Activation(none.astype(np.float32), none, positive, squares, divisor)
    top = np.maximum.reduceat(value, batch.starts)
    sizes = np.diff(np.append(batch.starts, len(value)))
    is_top = value == np.repeat(top, sizes)
    places = np.where(is_top, np.arange(len(value)), len(value))
    weight = np.maximum(top, 0.0) / divisor[batch.text]
    return Activation(weight, np.minimum.reduceat(places, batch.starts), positive, squares, divisor)


def head_gradient(
    batch: TextBatch, active: Activation, slope: np.ndarray, exponent: float
) -> np.ndarray:
    """f64: gradient for the head from the gradient for each entry's weight."""
    turned = np.bincount(batch.text, slope * active.weight, batch.count)
    falling = exponent * turned / active.squares
    at = -(falling[batch.owner] * active.positive)
    at[active.winner] += slope / active.divisor[batch.text]
    at[active.positive == 0.0] = 0.0
    return (at.astype(np.float32) @ batch.features).astype(np.float64)


@dataclass(frozen=True)
class Problem:
    """Queries, candidates, and which candidate each query asks for."""

    queries: TextBatch
    candidates: TextBatch
    ids: np.ndarray
    """i64: the sorted distinct ids of the queries."""
    wanted: np.ndarray
    """i64 `[queries]`: the candidate to be found."""
    excused: np.ndarray
    """bool `[queries, candidates]`: other right answers, which do not compete."""


@dataclass(frozen=True)
class Side:
    """The texts of one side of the scores, with the ids that they are compared by."""

    batch: TextBatch
    active: Activation
    matrix: np.ndarray
    """f32 `[texts, ids]`."""
    _known: np.ndarray
    _column: np.ndarray

    @classmethod
    def of(cls, batch: TextBatch, head: np.ndarray, exponent: float, ids: np.ndarray) -> Side:
        """`ids`: sorted; entries of other ids are in no column."""
        active = activate(batch, head, exponent)
        column = np.minimum(np.searchsorted(ids, batch.token), len(ids) - 1)
        known = ids[column] == batch.token
        matrix = np.zeros((batch.count, len(ids)), np.float32)
        matrix[batch.text[known], column[known]] = active.weight[known]
        return cls(batch, active, matrix, known, column)

    def gradient(self, slope: np.ndarray, exponent: float) -> np.ndarray:
        """For the head, from the gradient `[texts, ids]` for the matrix."""
        by_entry = np.where(self._known, slope[self.batch.text, self._column], 0.0)
        return head_gradient(self.batch, self.active, by_entry.astype(np.float32), exponent)


def loss_and_gradient(
    problem: Problem, point: np.ndarray, exponent: float
) -> tuple[float, np.ndarray]:
    """Mean InfoNCE of the queries; `point` is the head and, last, the logarithm of the factor by
    which scores are multiplied before they are compared."""
    head, factor = point[:-1], float(np.exp(point[-1]))
    query = Side.of(problem.queries, head, exponent, problem.ids)
    passage = Side.of(problem.candidates, head, exponent, problem.ids)
    plain = (query.matrix @ passage.matrix.T).astype(np.float64)
    scores = factor * plain
    scores[problem.excused] = -np.inf
    scores -= scores.max(axis=1, keepdims=True)
    share = np.exp(scores)
    share /= share.sum(axis=1, keepdims=True)
    rows = np.arange(len(problem.wanted))
    loss = -np.log(share[rows, problem.wanted] + 1e-30).mean()
    share[rows, problem.wanted] -= 1.0
    share *= factor / len(rows)
    factor_slope = float((share * plain).sum())
    slope = share.astype(np.float32)
    gradient = query.gradient(slope @ passage.matrix, exponent)
    gradient += passage.gradient(slope.T @ query.matrix, exponent)
    return float(loss), np.append(gradient, factor_slope)
