"""Passages, and queries that say which passages answer them. nDCG@10 of two graphs of one package
on such a collection, and whether the second is good enough."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from default_package import manifest
from default_package.checks import Runtime
from default_package.errors import PackageError
from default_package.reference import select_sparse

LOSS_MAX = 0.01
"""Of nDCG@10, relative."""
DECIMALS = 4
CUT = 10
"""Ranks that count."""


@dataclass(frozen=True)
class Passage:
    """One text of a pool."""

    lang: str
    text: str


@dataclass(frozen=True)
class Query:
    """One question to the passages of `target_lang`."""

    target_lang: str
    text: str
    relevant: tuple[int, ...]
    """Positions in the collection's passages."""


@dataclass
class Collection:
    """All passages and queries of one domain."""

    passages: list[Passage] = field(default_factory=list)
    queries: list[Query] = field(default_factory=list)


@dataclass(frozen=True)
class Package:
    """What is read of a model package."""

    root: Path
    prompts: dict[str, str]
    dropped: frozenset[int]
    tokens_max: int
    pooling: str

    @classmethod
    def load(cls, root: Path) -> Package:
        stored = manifest.read(root)
        if kind := stored.get("kind"):
            raise PackageError(f"{root} is a {kind} model: only graphs of vectors are measured")
        # A package without a head has none.
        dropped = frozenset((stored["sparse"] or {}).get("dropped_token_ids", ()))
        names = ("max_input_tokens", "pooling")
        return cls(root, stored["prompts"], dropped, *(stored[name] for name in names))

    def encode(self, texts: list[str], kind: str) -> tuple[list[list[int]], int]:
        """Token ids behind the prompt, cut as the server cuts; and the text's first position."""
        tokenizer = Tokenizer.from_file(str(self.root / "tokenizer.json"))
        prompt = self.prompts.get(kind, "")
        first = len(tokenizer.encode(prompt).ids) - 1
        encoded = tokenizer.encode_batch([prompt + text for text in texts])
        rows = [list(one.ids) for one in encoded]
        limit = self.tokens_max
        return [row if len(row) <= limit else [*row[: limit - 1], row[-1]] for row in rows], first


@dataclass(frozen=True)
class Embedded:
    """One text."""

    dense: np.ndarray
    """f32 `[width]`, L2-normalized."""
    sparse: dict[int, float]
    """Lexical weight by token id."""


Embed = Callable[[list[str], str], list[Embedded]]
"""Vectors of texts, in order, which are all `query` or all `passage`."""


def embedder(package: Package, runtime: Runtime) -> Embed:
    """The vectors of one graph, in f32 but for what it rounds itself. Equal texts run once."""

    def embed(texts: list[str], kind: str) -> list[Embedded]:
        distinct = sorted(set(texts))
        rows, first = package.encode(distinct, kind)
        found, dropped = {}, set(package.dropped)
        ran = runtime.run(rows, package.pooling)
        for text, row, vectors in zip(distinct, rows, ran, strict=True):
            weights = select_sparse(row, vectors.token_weights, dropped, first)
            found[text] = Embedded(vectors.dense, weights)
        return [found[text] for text in texts]

    return embed


def dense_scores(query: Embedded, pool: Sequence[Embedded]) -> np.ndarray:
    """Cosine: f32 `[pool]`."""
    return np.stack([one.dense for one in pool]) @ query.dense


def sparse_scores(query: Embedded, pool: Sequence[Embedded]) -> np.ndarray:
    """Sum over shared ids of the product of weights: f64 `[pool]`."""
    weights = query.sparse.items()
    return np.asarray([sum(w * one.sparse.get(i, 0.0) for i, w in weights) for one in pool])


def query_ndcg(scores: np.ndarray, relevant: set[int]) -> float:
    """nDCG@10 of the pool by falling score, where an answer is right or not. Equal scores rank in
    the order of the pool."""
    ranked = np.argsort(-scores, kind="stable")[:CUT]
    discount = 1.0 / np.log2(np.arange(2, CUT + 2))
    hits = np.isin(ranked, list(relevant))
    return float((hits * discount[: len(hits)]).sum() / discount[: len(relevant)].sum())


def ndcg(collection: Collection, embed: Embed) -> dict[str, float]:
    """Over all queries, by kind of vector; without the sparse kind where no text has a weight. A
    query ranks the passages of its target language."""
    asked = embed([query.text for query in collection.queries], "query")
    passages = embed([passage.text for passage in collection.passages], "passage")
    pools: dict[str, list[int]] = defaultdict(list)
    for at, passage in enumerate(collection.passages):
        pools[passage.lang].append(at)
    methods = {"dense": dense_scores}
    if any(passage.sparse for passage in passages):
        methods["sparse"] = sparse_scores
    found: dict[str, list[float]] = {name: [] for name in methods}
    for query, vectors in zip(collection.queries, asked, strict=True):
        pool = pools[query.target_lang]
        relevant = {place for place, at in enumerate(pool) if at in query.relevant}
        for name, method in methods.items():
            scores = method(vectors, [passages[at] for at in pool])
            found[name].append(query_ndcg(scores, relevant))
    return {name: round(float(np.mean(each)), DECIMALS) for name, each in found.items()}


def demand_little_loss(entry: dict[str, Any], precision: str) -> None:
    """Raises PackageError when the graph in 8 bits loses more than LOSS_MAX."""
    for kind, before in entry["f32"].items():
        after = entry[precision][kind]
        if after < before * (1 - LOSS_MAX):
            raise PackageError(
                f"the graph in 8 bits is not kept: nDCG@10 of {kind} vectors on "
                f"{entry['collection']} is {after}, in f32 it is {before}"
            )
