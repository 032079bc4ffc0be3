"""nDCG@10, recall@10 and MRR, and paired bootstrap intervals over groups of queries."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

CUT = 10
METRICS = ("ndcg", "recall", "mrr")
RESAMPLES = 2000
LEVEL = 0.95


def ranking(scores: np.ndarray) -> np.ndarray:
    """Positions by falling score; equal scores in the order of the pool."""
    return np.argsort(-scores, kind="stable")


def query_scores(ranked: np.ndarray, relevant: set[int]) -> tuple[float, float, float]:
    """nDCG@10, recall@10 and reciprocal rank of one ranking, where an answer is right or not."""
    hits = np.isin(ranked, list(relevant))
    top = hits[:CUT]
    discount = 1.0 / np.log2(np.arange(2, CUT + 2))
    ideal = discount[: min(len(relevant), CUT)].sum()
    places = np.flatnonzero(hits)
    return (
        float((top * discount[: len(top)]).sum() / ideal),
        float(top.sum() / len(relevant)),
        float(1.0 / (places[0] + 1)) if len(places) else 0.0,
    )


@dataclass(frozen=True)
class Interval:
    """A mean and where it lies with LEVEL confidence."""

    mean: float
    low: float
    high: float


class Bootstrap:
    """Resamples whole groups, because queries about one page are not independent.

    The same resamples are used for every method, so differences are paired.
    """

    def __init__(self, groups: list[str], seed: int) -> None:
        names, member = np.unique(groups, return_inverse=True)
        self._member, self._count = member, len(names)
        chance = np.random.default_rng(seed)
        draws = chance.integers(0, len(names), (RESAMPLES, len(names)))
        self._times = np.stack([np.bincount(row, minlength=len(names)) for row in draws])

    def interval(self, values: np.ndarray) -> Interval:
        """Of the mean of one value for each query; a difference of two methods is one too."""
        total = np.bincount(self._member, values, self._count)
        size = np.bincount(self._member, minlength=self._count)
        means = (self._times @ total) / (self._times @ size)
        low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        return Interval(float(values.mean()), float(low), float(high))
