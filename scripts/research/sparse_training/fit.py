"""Fits the head: Adam over mini-batches, one pair of languages at a time, from a given start."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from default_package.command import say
from retrieval import metrics

from . import contrast
from .collection import Collection
from .contrast import Penalty, Problem, TextStore

QUERIES_PER_STEP = 64
CANDIDATES_MAX = 768
"""All passages of a language where there are no more: the hardest negatives are among them."""
START = Path(__file__).with_name("starting_head.json")
"""Made by fit_starting_head.py: how informative a token is in general."""
SAY_EVERY = 200
FIRST_DECAY, SECOND_DECAY, TINY = 0.9, 0.999, 1e-8
"""Adam's customary constants."""
STARTING_SCALES = (1.0, 2.0, 3.0, 4.0, 6.0, 8.0)
"""Tried on the starting head: it was fitted to another scale than the loss wants."""


@dataclass(frozen=True)
class Settings:
    """What validation chooses."""

    steps: int
    learning_rate: float
    penalty: float
    """Cost of a larger mean weight, of queries and of passages."""
    pull: float
    """Towards the starting head, in standardized coordinates."""
    seed: int

    def described(self) -> dict[str, float]:
        """For sparse_head.json."""
        return asdict(self)


class Trainer:
    """The training queries and passages by language."""

    def __init__(self, collection: Collection, queries: TextStore, passages: TextStore) -> None:
        self._collection, self._queries, self._passages = collection, queries, passages
        self._pairs: dict[tuple[str, str], list[int]] = defaultdict(list)
        for number, query in enumerate(collection.queries):
            if query.split == "train":
                self._pairs[query.lang, query.target_lang].append(number)
        self._pools = {
            lang: np.asarray(collection.pool("train", lang))
            for lang in sorted({target for _, target in self._pairs})
        }
        self._names = sorted(self._pairs)
        sizes = np.sqrt([len(self._pairs[name]) for name in self._names])
        self._odds = sizes / sizes.sum()

    def problem(self, chance: np.random.Generator) -> Problem:
        """A random mini-batch of one pair of languages."""
        name = self._names[chance.choice(len(self._names), p=self._odds)]
        own = np.asarray(self._pairs[name])
        numbers = chance.permutation(own)[:QUERIES_PER_STEP]
        queries = [self._collection.queries[i] for i in numbers]
        wanted = np.asarray([chance.choice(query.relevant) for query in queries])
        others = chance.permutation(np.setdiff1d(self._pools[name[1]], wanted))
        pool = np.unique(np.concatenate([wanted, others[:CANDIDATES_MAX]]))
        excused = np.zeros((len(queries), len(pool)), bool)
        for row, query in enumerate(queries):
            excused[row] = np.isin(pool, query.relevant) & (pool != wanted[row])
        ids = self._queries.token_ids(numbers)
        return Problem(
            self._queries.pick(numbers),
            self._passages.pick(pool, only=ids),
            ids,
            np.searchsorted(pool, wanted),
            excused,
        )

    def scale(self, head: np.ndarray, seed: int) -> float:
        """Which multiple of a head gives the smallest loss on a few batches."""
        chance = np.random.default_rng(seed)
        problems = [self.problem(chance) for _ in range(8)]
        free = Penalty(0.0, 0.0)

        def mean(scale: float) -> float:
            found = [contrast.loss_and_gradient(p, head * scale, free)[0] for p in problems]
            return float(np.mean(found))

        return min(STARTING_SCALES, key=mean)

    def fit(self, start: np.ndarray, settings: Settings) -> np.ndarray:
        """The head after the given number of steps; the same seed gives the same bits."""
        chance = np.random.default_rng(settings.seed)
        basis = Basis(self._passages.positions(), chance)
        point = origin = basis.inward(start * self.scale(start, settings.seed))
        first, second = np.zeros_like(point), np.zeros_like(point)
        penalty = Penalty(settings.penalty, settings.penalty)
        losses = []
        for step in range(1, settings.steps + 1):
            problem = self.problem(chance)
            loss, slope = contrast.loss_and_gradient(problem, basis.outward(point), penalty)
            slope = basis.slope_inward(slope)
            slope += settings.pull * (point - origin)
            first += (1 - FIRST_DECAY) * (slope - first)
            second += (1 - SECOND_DECAY) * (slope**2 - second)
            rate = settings.learning_rate * 0.5 * (1 + np.cos(np.pi * step / settings.steps))
            step_first = first / (1 - FIRST_DECAY**step)
            step_second = second / (1 - SECOND_DECAY**step)
            point = point - rate * step_first / (np.sqrt(step_second) + TINY)
            losses.append(loss)
            if step % SAY_EVERY == 0:
                say(f"step {step}: loss {np.mean(losses[-SAY_EVERY:]):.4f}")
        return basis.outward(point)


class Basis:
    """Standardized coordinates, in which all hidden units are on one scale."""

    SAMPLE = 50_000

    def __init__(self, positions: np.ndarray, chance: np.random.Generator) -> None:
        count = min(self.SAMPLE, len(positions))
        rows = np.sort(chance.choice(len(positions), count, replace=False))
        sample = positions[rows].astype(np.float64)
        self._mean, self._spread = sample.mean(axis=0), sample.std(axis=0) + 1e-6

    def inward(self, head: np.ndarray) -> np.ndarray:
        """Head -> standardized coordinates."""
        return np.append(head[:-1] * self._spread, head[-1] + self._mean @ head[:-1])

    def outward(self, point: np.ndarray) -> np.ndarray:
        """Standardized coordinates -> head."""
        weights = point[:-1] / self._spread
        return np.append(weights, point[-1] - self._mean @ weights)

    def slope_inward(self, slope: np.ndarray) -> np.ndarray:
        """A gradient for the head -> one for the standardized coordinates."""
        return np.append((slope[:-1] - slope[-1] * self._mean) / self._spread, slope[-1])


def validate(
    collection: Collection,
    queries: TextStore,
    passages: TextStore,
    head: np.ndarray,
    split: str = "validation",
) -> dict[str, float]:
    """nDCG@10 of lexical scores by scope and kind of query, and what the weights look like."""
    found: dict[str, list[float]] = defaultdict(list)
    sizes: list[np.ndarray] = []
    for lang in sorted({query.target_lang for query in collection.queries}):
        pool = np.asarray(collection.pool(split, lang))
        asked = [
            i
            for i, query in enumerate(collection.queries)
            if query.split == split and query.target_lang == lang
        ]
        if not asked:
            continue
        numbers = np.asarray(asked)
        ids = queries.token_ids(numbers)
        query_batch, pool_batch = queries.pick(numbers), passages.pick(pool)
        query_weight = contrast.activate(query_batch, head).weight
        pool_weight = contrast.activate(pool_batch, head).weight
        sizes.append(pool_weight)
        known = np.isin(pool_batch.token, ids)
        rows = np.zeros((len(pool), len(ids)), np.float32)
        places = np.searchsorted(ids, pool_batch.token[known])
        rows[pool_batch.text[known], places] = pool_weight[known]
        scores = contrast.matrix(query_batch, query_weight, ids) @ rows.T
        for row, i in zip(scores, asked, strict=True):
            query = collection.queries[i]
            relevant = set(np.searchsorted(pool, query.relevant).tolist())
            value = metrics.query_scores(metrics.ranking(row), relevant)[0]
            scope = "own_language" if query.lang == lang else "other_language"
            for name in ("all", scope, query.kind):
                found[name].append(value)
    weights = np.concatenate(sizes)
    scores = {f"ndcg_{name}": float(np.mean(values)) for name, values in found.items()}
    return {
        **scores,
        "zero_share": float((weights == 0).mean()),
        "mean_where_positive": float(weights[weights > 0].mean()),
    }
