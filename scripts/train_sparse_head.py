#!/usr/bin/env python3
"""Trains the default package's sparse head and writes default_package/sparse_head.json.

    sudo apt-get update
    python scripts/train_sparse_head.py

weight of a position = relu(w . hidden + b), the encoder frozen. The pairs come from manual pages
in eleven languages: a page's summary or a heading and the paragraphs it stands for; a page's title
or an option and the same page in another language. Debian packages are fetched and unpacked into a
cache folder, hidden states are computed once and kept there; nothing is installed. The same
packages give the same file. Afterwards: make_default_package.py and make_golden.py.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from default_package import command, sparse_head
from default_package.command import say
from default_package.manifest import DEFAULT_PACKAGE
from sparse_training import contrast, fit, hidden_states, manual_collection, packages
from sparse_training.collection import Collection
from sparse_training.contrast import TextStore
from sparse_training.fit import Settings
from sparse_training.hidden_states import Package

ROOT = Path(__file__).resolve().parent.parent
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


def main() -> int:
    """Exit status: 0 done, 1 failed with one sentence on stderr, 130 interrupted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=sparse_head.PATH, help="file to write")
    parser.add_argument(
        "--package",
        type=Path,
        default=ROOT / "engines" / DEFAULT_PACKAGE.model_id,
        help="the default package; its own sparse head plays no part",
    )
    parser.add_argument("--precision", default="auto", choices=("auto", "f32", "bf16"))
    parser.add_argument("--cache", type=Path, default=packages.default_cache())
    options = parser.parse_args()
    return command.guarded(lambda: make(options.out.resolve(), options))


def make(out: Path, options: argparse.Namespace) -> None:
    """Collects, embeds, chooses among GRID, writes."""
    started = time.monotonic()
    package = Package.load(options.package)
    precision = hidden_states.resolve_precision(options.precision)
    say("fetching and reading manual pages")
    fetched = packages.fetch_all((*packages.MANUALS, packages.RENDERER), options.cache)
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
        "made_by": "scripts/train_sparse_head.py",
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


if __name__ == "__main__":
    sys.exit(main())
