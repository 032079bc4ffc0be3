"""What train_sparse_head.py does: collects, embeds, fits with several settings, chooses."""

from __future__ import annotations

import argparse
import json
import os
import time
from typing import Any

import numpy as np

from debian_texts import packages
from default_package import sparse_head
from default_package.command import say

from . import contrast, fit, hidden_states, manual_collection, sources
from .collection import Collection
from .contrast import TextStore
from .fit import Settings
from .hidden_states import Package

GRID = tuple(
    Settings(steps=1000, learning_rate=0.005, penalty=penalty, pull=pull, seed=1)
    for penalty, pull in ((0.0, 0.0), (0.0, 0.05), (0.0, 0.2), (0.5, 0.05))
)
"""The validation pages choose among these."""
TYPICAL_HEAVY, HEAVY_QUANTILE = 0.35, 0.95
"""The head is scaled so that this quantile of the positive weights is this large, the range of
published lexical weights; a positive factor changes no ranking."""
DECIMALS = 6
"""Of the stored weights: below what f32 resolves in the sum, above the noise of a BLAS."""
METHOD = (
    "contrastive training on the last hidden state: a query's lexical score with its own passage "
    "against those of other passages; manual pages in 11 languages"
)


def run(options: argparse.Namespace) -> None:
    """Collects, embeds, chooses among GRID, writes."""
    started, out = time.monotonic(), options.out.resolve()
    package = Package.load(options.package)
    precision = hidden_states.resolve_precision(options.precision)
    say("fetching and reading manual pages")
    fetched = packages.fetch_all((*sources.MANUALS, packages.RENDERER), options.cache)
    collection = manual_collection.make(fetched).part("train", "validation")
    stores = []
    for kind, texts in (
        ("query", [query.text for query in collection.queries]),
        ("passage", [passage.text for passage in collection.passages]),
    ):
        say(f"hidden states of {len(texts)} texts")
        states = hidden_states.cached(package, texts, kind, precision, options.cache)
        stores.append(TextStore(states))
    queries, passages = stores
    embedded = time.monotonic()
    start = np.append(*_starting_head())
    settings, head, tried = choose(collection, queries, passages, start)
    head = rescale(head, collection, passages)
    content = {
        "method": METHOD,
        "made_by": "scripts/research/train_sparse_head.py",
        "settings": settings.described(),
        "tried": tried,
        "scores_validation": _rounded(fit.validate(collection, queries, passages, head)),
        "scores_validation_before": _rounded(fit.validate(collection, queries, passages, start)),
        "data": describe(collection, fetched, stores),
        "precision": precision,
        "bias": round(float(head[-1]), DECIMALS),
        "weights": [round(float(value), DECIMALS) for value in head[:-1]],
    }
    part = out.with_name(f".{out.name}.{os.getpid()}")
    part.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    os.replace(part, out)
    now = time.monotonic()
    say(f"data and hidden states {embedded - started:.0f} s, training {now - embedded:.0f} s")
    say(f"wrote {out}")


def _starting_head() -> tuple[np.ndarray, float]:
    stored = sparse_head.load(fit.START)
    return np.asarray(stored.weights), stored.bias


def choose(
    collection: Collection, queries: TextStore, passages: TextStore, start: np.ndarray
) -> tuple[Settings, np.ndarray, list[dict[str, Any]]]:
    """Fits with every setting; the best nDCG@10 on the validation pages wins."""
    trainer = fit.Trainer(collection, queries, passages)
    found = []
    for settings in GRID:
        say(f"training with {settings.described()}")
        head = trainer.fit(start, settings)
        scores = fit.validate(collection, queries, passages, head)
        say(f"validation nDCG@10 {scores['ndcg_all']:.4f}")
        found.append((settings, head, scores))
    best = max(found, key=lambda one: one[2]["ndcg_all"])
    tried = [{**one[0].described(), **_rounded(one[2])} for one in found]
    return best[0], best[1], tried


def rescale(head: np.ndarray, collection: Collection, passages: TextStore) -> np.ndarray:
    """The same ranking with weights of the usual size."""
    numbers = [i for i, one in enumerate(collection.passages) if one.split == "validation"]
    weights = contrast.activate(passages.pick(np.asarray(numbers)), head).weight
    return head * (TYPICAL_HEAVY / np.quantile(weights[weights > 0.0], HEAVY_QUANTILE))


def describe(
    collection: Collection, fetched: list[packages.Unpacked], stores: list[TextStore]
) -> dict[str, Any]:
    """What the head was trained on, so that another run can be compared."""
    return {
        "sha256": collection.digest(),
        "passages": len(collection.passages),
        "queries": len(collection.queries),
        "tokens": sum(len(store.positions()) for store in stores),
        "languages": sorted({passage.lang for passage in collection.passages}),
        "packages": {one.name: one.version for one in fetched},
    }


def _rounded(scores: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in scores.items()}
