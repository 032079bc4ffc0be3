"""Ranks every query's pool by every method and sums up by language, with intervals."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from sparse_training.collection import Collection, Query

from . import metrics, rankers
from .embedder import Embedder
from .metrics import Bootstrap
from .rankers import Embedded, RankFusion

METHODS = ("overlap", "bm25", "sparse", "dense", "hybrid_weighted", "hybrid_rank")
COMPARISONS = (
    ("sparse", "bm25"),
    ("sparse", "overlap"),
    ("hybrid_weighted", "dense"),
    ("hybrid_weighted", "sparse"),
    ("hybrid_rank", "dense"),
    ("hybrid_rank", "sparse"),
)
SHARES = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0)
"""Weights of the lexical score that validation chooses from."""
TOLERANCE = 0.002
"""Of nDCG, between machines: of weights that are as good, the largest is taken."""
HYBRID_SHARE = 0.1
"""What `choose` found on validation pages and guides, before the test texts were read."""
FUSIONS = tuple(
    RankFusion(offset, depth, share)
    for share in (1.0, 0.5, 0.3, 0.2)
    for offset in (2.0, 10.0, 20.0, 60.0)
    for depth in (10, 20, 50, 100)
)
PLAIN_FUSION = RankFusion(60.0, 100, 1.0)
"""What a vector store does where nothing is said."""
RANK_FUSION = RankFusion(10.0, 100, 0.3)
"""What `choose` found, as HYBRID_SHARE."""
SEED = 20_240_229


@dataclass(frozen=True)
class Part:
    """The queries from one language to another, embedded, and the pool they rank."""

    queries: list[Query]
    asked: list[Embedded]
    pool: list[Embedded]
    relevant: list[set[int]]
    """Positions in the pool."""


@dataclass(frozen=True)
class Outcome:
    """One value for each query, metric and method."""

    queries: list[Query]
    values: dict[str, np.ndarray]
    """Method -> f64 `[queries, metrics]`."""


def embed_parts(collection: Collection, split: str, embedder: Embedder) -> list[Part]:
    """Embeds one split, each text once."""
    kept = collection.part(split)
    queries = sorted(kept.queries, key=lambda query: (query.lang, query.target_lang))
    asked = embedder.embed([query.text for query in queries], "query")
    passages = embedder.embed([passage.text for passage in kept.passages], "passage")
    pairs: dict[tuple[str, str], list[int]] = defaultdict(list)
    for number, query in enumerate(queries):
        pairs[query.lang, query.target_lang].append(number)
    parts = []
    for (_, target), numbers in pairs.items():
        pool = kept.pool(split, target)
        place = {passage: at for at, passage in enumerate(pool)}
        parts.append(
            Part(
                [queries[i] for i in numbers],
                [asked[i] for i in numbers],
                [passages[i] for i in pool],
                [{place[i] for i in queries[number].relevant} for number in numbers],
            )
        )
    return parts


@dataclass(frozen=True)
class Choice:
    """The hybrids that validation prefers, and by domain nDCG@10 of all that were tried."""

    share: float
    fusion: RankFusion
    scores: dict[str, dict[str, float]]


def choose(domains: dict[str, list[Part]]) -> Choice:
    """The hybrids that gain most over the better of their parts, in the domain where they gain
    least."""
    scores: dict[str, dict[str, float]] = {}
    for domain, parts in domains.items():
        found: dict[str, list[float]] = defaultdict(list)
        for part in parts:
            dense = rankers.dense_scores(part.asked, part.pool)
            sparse = rankers.sparse_scores(part.asked, part.pool)
            tried = {f"{share:g}": rankers.weighted(dense, sparse, share) for share in SHARES}
            tried |= {str(fusion): fusion.scores(dense, sparse) for fusion in FUSIONS}
            tried |= {"sparse": sparse, "bm25": _bm25(part)}
            for name, values in tried.items():
                found[name] += judge(values, part.relevant)[:, 0].tolist()
        scores[domain] = {name: float(np.mean(values)) for name, values in found.items()}

    def gain(name: str) -> float:
        return min(one[name] - max(one["0"], one["sparse"]) for one in scores.values())

    best = max(gain(f"{share:g}") for share in SHARES)
    share = max(share for share in SHARES if gain(f"{share:g}") >= best - TOLERANCE)
    fusion = max(FUSIONS, key=lambda fusion: gain(str(fusion)))
    return Choice(share, fusion, scores)


def _bm25(part: Part) -> np.ndarray:
    asked, pool = ([text.tokens for text in texts] for texts in (part.asked, part.pool))
    return rankers.bm25_scores(asked, pool)


def judge(scores: np.ndarray, relevant: list[set[int]]) -> np.ndarray:
    """f64 `[queries, metrics]`."""
    rows = zip(scores, relevant, strict=True)
    return np.asarray([metrics.query_scores(metrics.ranking(row), right) for row, right in rows])


def evaluate(parts: list[Part], share: float) -> Outcome:
    """All methods on all parts."""
    values: dict[str, list[np.ndarray]] = defaultdict(list)
    for part in parts:
        dense = rankers.dense_scores(part.asked, part.pool)
        sparse = rankers.sparse_scores(part.asked, part.pool)
        scores = {
            "overlap": rankers.overlap_scores(part.asked, part.pool),
            "bm25": _bm25(part),
            "sparse": sparse,
            "dense": dense,
            "hybrid_weighted": rankers.weighted(dense, sparse, share),
            "hybrid_rank": RANK_FUSION.scores(dense, sparse),
        }
        for method in METHODS:
            values[method].append(judge(scores[method], part.relevant))
    queries = [query for part in parts for query in part.queries]
    return Outcome(queries, {method: np.concatenate(rows) for method, rows in values.items()})


def scopes(queries: list[Query]) -> dict[str, np.ndarray]:
    """Name -> bool `[queries]`: everything, own and other language, kinds, languages, pairs."""
    own = np.asarray([query.lang == query.target_lang for query in queries])
    found = {"all": np.ones(len(queries), bool), "own language": own, "across languages": ~own}
    for kind in sorted({query.kind for query in queries}):
        found[f"kind {kind}"] = np.asarray([query.kind == kind for query in queries])
    for lang in sorted({query.lang for query in queries}):
        found[lang] = own & np.asarray([query.lang == lang for query in queries])
    pairs = sorted({(q.lang, q.target_lang) for q in queries if q.lang != q.target_lang})
    for pair in pairs:
        found["→".join(pair)] = np.asarray([(q.lang, q.target_lang) == pair for q in queries])
    return {name: picked for name, picked in found.items() if picked.any()}


def summary(outcome: Outcome) -> dict[str, dict]:
    """Scope -> queries, and for each method and comparison the metrics with their intervals."""
    found = {}
    for name, picked in scopes(outcome.queries).items():
        groups = [query.group for query, one in zip(outcome.queries, picked, strict=True) if one]
        bootstrap = Bootstrap(groups, SEED)
        values = {method: rows[picked] for method, rows in outcome.values.items()}
        found[name] = {
            "queries": len(groups),
            "groups": len(set(groups)),
            "methods": {method: _intervals(rows, bootstrap) for method, rows in values.items()},
            "differences": {
                f"{better} - {worse}": _intervals(values[better] - values[worse], bootstrap)
                for better, worse in COMPARISONS
            },
        }
    return found


def _intervals(rows: np.ndarray, bootstrap: Bootstrap) -> dict[str, list[float]]:
    found = {}
    for at, metric in enumerate(metrics.METRICS):
        one = bootstrap.interval(rows[:, at])
        found[metric] = [round(value, 4) for value in (one.mean, one.low, one.high)]
    return found
