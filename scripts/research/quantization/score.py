"""nDCG@10 of two graphs of one package, and whether the second is good enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from default_package.errors import PackageError
from default_package.reference import select_sparse
from default_package.runtime import Runtime
from retrieval import evaluation, rankers
from retrieval.evaluation import Part
from retrieval.rankers import Embedded
from sparse_training.collection import Collection
from sparse_training.hidden_states import Package

LOSS_MAX = 0.01
"""Of nDCG@10, relative."""
DECIMALS = 4
Scores = dict[str, float]
"""Kind of vector -> nDCG@10."""


class GraphEmbedder:
    """The vectors of one graph, in f32 but for what the graph rounds itself."""

    def __init__(self, package: Package, runtime: Runtime) -> None:
        self._package, self._runtime = package, runtime

    def embed(self, texts: Sequence[str], kind: str) -> list[Embedded]:
        """In order; `kind` is `query` or `passage`. Equal texts run once."""
        distinct = sorted(set(texts))
        rows, first = self._package.encode(distinct, kind)
        found = {}
        dropped = set(self._package.dropped)
        ran = self._runtime.run(rows, self._package.pad, self._package.pooling)
        for text, row, vectors in zip(distinct, rows, ran, strict=True):
            ids, weights = select_sparse(row, vectors.token_weights, dropped, first)
            found[text] = Embedded(
                vectors.dense,
                np.asarray(ids, np.int64),
                np.asarray(weights, np.float32),
                tuple(i for i in row[first:-1] if i not in dropped),
            )
        return [found[text] for text in texts]


def in_languages(collection: Collection, languages: Sequence[str]) -> Collection:
    """Only passages of these languages, and queries from and to them."""
    kept = [i for i, passage in enumerate(collection.passages) if passage.lang in languages]
    new = {old: i for i, old in enumerate(kept)}
    queries = [
        replace(query, relevant=tuple(new[i] for i in query.relevant))
        for query in collection.queries
        if query.lang in languages and query.target_lang in languages
    ]
    return Collection([collection.passages[i] for i in kept], queries)


def ndcg(parts: list[Part]) -> Scores:
    """Over all queries, by kind of vector; without the sparse kind where no text has a weight."""
    methods = {"dense": rankers.dense_scores}
    if any(passage.ids.size for part in parts for passage in part.pool):
        methods["sparse"] = rankers.sparse_scores
    found = {}
    for name, method in methods.items():
        each = [evaluation.judge(method(p.asked, p.pool), p.relevant)[:, 0] for p in parts]
        found[name] = round(float(np.concatenate(each).mean()), DECIMALS)
    return found


def compare(collection: Collection, graphs: dict[str, GraphEmbedder]) -> dict[str, Scores]:
    """Of each graph, under its name."""
    return {
        name: ndcg(evaluation.embed_parts(collection, "test", graph))
        for name, graph in graphs.items()
    }


def demand_little_loss(entry: dict[str, Any], precision: str) -> None:
    """Raises PackageError when the graph in 8 bits loses more than LOSS_MAX."""
    for kind, before in entry["f32"].items():
        after = entry[precision][kind]
        if after < before * (1 - LOSS_MAX):
            raise PackageError(
                f"the graph in 8 bits is not kept: nDCG@10 of {kind} vectors on "
                f"{entry['collection']} is {after}, in f32 it is {before}"
            )
