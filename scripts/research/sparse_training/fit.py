"""Fits the head: Adam over mini-batches, one pair of languages at a time, from a given start."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from default_package.command import say
from retrieval import rankers

from . import contrast
from .collection import Collection
from .contrast import Problem, TextStore

QUERIES_PER_STEP = 48
CANDIDATES_MAX = 384
HARD_PER_QUERY = 4
"""Wrong passages that BM25 ranks highest; they are among the candidates whenever their query is."""
START = Path(__file__).with_name("starting_head.json")
"""Made by fit_starting_head.py: how informative a token is in general."""
SAY_EVERY = 200
FIRST_DECAY, SECOND_DECAY, TINY = 0.9, 0.999, 1e-8
"""Adam's customary constants."""
FACTORS = (1.0, 3.0, 10.0, 30.0, 100.0)
"""Of the scores, tried on the starting head; training goes on from the best."""


@dataclass(frozen=True)
class Settings:
    """What validation chooses."""

    steps: int
    learning_rate: float
    pull: float
    """Towards the starting head, in standardized coordinates of its size."""
    norm_exponent: float
    """Of the norm that a text's weights are divided by."""
    surprisal: bool
    """Whether the head reads how rare the piece is, beside its hidden state."""
    repeats: bool
    """Whether it reads how often the text has the piece."""
    hard: bool
    """Whether wrong passages are mined by BM25, or all drawn by chance."""
    domains: tuple[str, ...]
    seed: int

    def described(self) -> dict[str, Any]:
        """For sparse_head.json."""
        return asdict(self)


@dataclass(frozen=True)
class Domain:
    """The training texts of one kind."""

    collection: Collection
    queries: TextStore
    passages: TextStore
    query_tokens: list[tuple[int, ...]]
    passage_tokens: list[tuple[int, ...]]


class Pair:
    """The training queries of one domain from one language to another, and the pool they rank."""

    def __init__(self, domain: Domain, numbers: list[int], *, hard: bool) -> None:
        self._domain, self._numbers = domain, np.asarray(numbers)
        queries = [domain.collection.queries[i] for i in numbers]
        self._relevant = [np.asarray(query.relevant) for query in queries]
        self._pool = np.asarray(domain.collection.pool("train", queries[0].target_lang))
        self._hard = self._mine() if hard else None

    def __len__(self) -> int:
        """How many queries."""
        return len(self._numbers)

    def _mine(self) -> np.ndarray:
        """i64 `[queries, HARD_PER_QUERY]`: positions in the collection's passages."""
        asked = [self._domain.query_tokens[i] for i in self._numbers]
        scores = rankers.bm25_scores(asked, [self._domain.passage_tokens[i] for i in self._pool])
        for row, relevant in zip(scores, self._relevant, strict=True):
            row[np.isin(self._pool, relevant)] = -1.0
        count = min(HARD_PER_QUERY, scores.shape[1])
        return self._pool[np.argpartition(-scores, count - 1, axis=1)[:, :count]]

    def problem(self, chance: np.random.Generator) -> Problem:
        """A random mini-batch."""
        picked = chance.permutation(len(self))[:QUERIES_PER_STEP]
        wanted = np.asarray([chance.choice(self._relevant[i]) for i in picked])
        must = wanted if self._hard is None else np.append(wanted, self._hard[picked])
        others = chance.permutation(np.setdiff1d(self._pool, must))
        room = max(CANDIDATES_MAX - len(np.unique(must)), 0)
        pool = np.unique(np.append(must, others[:room]))
        excused = np.stack([np.isin(pool, self._relevant[i]) for i in picked])
        places = np.searchsorted(pool, wanted)
        excused[np.arange(len(picked)), places] = False
        numbers = self._numbers[picked]
        return Problem(
            self._domain.queries.pick(numbers),
            self._domain.passages.pick(pool),
            self._domain.queries.token_ids(numbers),
            places,
            excused,
        )


class Trainer:
    """The training queries and passages by domain and language."""

    def __init__(self, domains: list[Domain], *, hard: bool) -> None:
        self._domains = domains
        self._pairs = []
        for domain in domains:
            numbers: dict[tuple[str, str], list[int]] = defaultdict(list)
            for number, query in enumerate(domain.collection.queries):
                if query.split == "train":
                    numbers[query.lang, query.target_lang].append(number)
            self._pairs += [Pair(domain, numbers[name], hard=hard) for name in sorted(numbers)]
        sizes = np.sqrt([len(pair) for pair in self._pairs])
        self._odds = sizes / sizes.sum()

    def problem(self, chance: np.random.Generator) -> Problem:
        """A random mini-batch of one pair of languages."""
        return self._pairs[chance.choice(len(self._pairs), p=self._odds)].problem(chance)

    def factor(self, head: np.ndarray, settings: Settings) -> float:
        """Which factor of the scores gives a head the smallest loss on a few batches."""
        chance = np.random.default_rng(settings.seed)
        problems = [self.problem(chance) for _ in range(6)]

        def mean(factor: float) -> float:
            point = np.append(head, np.log(factor))
            found = [
                contrast.loss_and_gradient(p, point, settings.norm_exponent)[0] for p in problems
            ]
            return float(np.mean(found))

        return min(FACTORS, key=mean)

    def fit(self, start: np.ndarray, settings: Settings) -> np.ndarray:
        """The head after the given number of steps; the same seed gives the same bits."""
        chance = np.random.default_rng(settings.seed)
        basis = Basis(self._domains[0].passages, chance, settings)
        factor = self.factor(start, settings)
        inward = basis.inward(start)
        # Steps are as large as the head is: its size says nothing, the factor stands apart.
        size = float(np.sqrt((inward**2).mean()))
        point = origin = np.append(inward / size, np.log(factor))
        first, second = np.zeros_like(point), np.zeros_like(point)
        losses = []
        for step in range(1, settings.steps + 1):
            outward = np.append(basis.outward(size * point[:-1]), point[-1])
            loss, found = contrast.loss_and_gradient(
                self.problem(chance), outward, settings.norm_exponent
            )
            slope = np.append(size * basis.slope_inward(found[:-1]), found[-1])
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
        return basis.outward(size * point[:-1])


class Basis:
    """Standardized coordinates, in which all features are on one scale. The last is the bias."""

    SAMPLE = 50_000

    def __init__(
        self, passages: TextStore, chance: np.random.Generator, settings: Settings
    ) -> None:
        count = min(self.SAMPLE, passages.positions)
        rows = np.sort(chance.choice(passages.positions, count, replace=False))
        sample = passages.features(rows)[:, :-1].astype(np.float64)
        self._mean, self._spread = sample.mean(axis=0), sample.std(axis=0) + 1e-6
        # Without a slope a weight stays where it starts, at zero.
        for place, wanted in ((-2, settings.surprisal), (-1, settings.repeats)):
            if not wanted:
                self._spread[place] = np.inf

    def inward(self, head: np.ndarray) -> np.ndarray:
        """Head -> standardized coordinates."""
        spread = np.where(np.isfinite(self._spread), self._spread, 0.0)
        return np.append(head[:-1] * spread, head[-1] + self._mean @ head[:-1])

    def outward(self, point: np.ndarray) -> np.ndarray:
        """Standardized coordinates -> head."""
        weights = point[:-1] / self._spread
        return np.append(weights, point[-1] - self._mean @ weights)

    def slope_inward(self, slope: np.ndarray) -> np.ndarray:
        """A gradient for the head -> one for the standardized coordinates."""
        return np.append((slope[:-1] - slope[-1] * self._mean) / self._spread, slope[-1])
