"""What train_sparse_head.py does: collects, embeds, fits with several settings, chooses."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from debian_texts import packages
from default_package.command import say
from retrieval import evaluation, rankers
from retrieval.embedder import DirectEmbedder

from . import contrast, fit, guide_collection, hidden_states, manual_collection, sources
from .collection import Collection
from .contrast import TextStore
from .fit import Domain, Settings
from .hidden_states import Package

BEST = Settings(
    steps=600,
    learning_rate=0.01,
    pull=0.05,
    norm_exponent=0.5,
    surprisal=True,
    repeats=True,
    hard=True,
    domains=("manuals", "office", "handbooks"),
    seed=1,
)
GRID = (
    BEST,
    replace(BEST, norm_exponent=0.0),
    replace(BEST, norm_exponent=0.25),
    replace(BEST, norm_exponent=0.75),
    replace(BEST, norm_exponent=1.0),
    replace(BEST, surprisal=False),
    replace(BEST, repeats=False),
    replace(BEST, hard=False),
    replace(BEST, domains=("manuals",)),
    replace(BEST, pull=0.0),
    replace(BEST, pull=0.2),
)
"""Validation texts choose among these: each way of training with one thing changed."""
TYPICAL_HEAVY, HEAVY_QUANTILE = 0.35, 0.95
"""The head is scaled so that this quantile of the positive weights is this large, the range of
published lexical weights; a positive factor changes no ranking."""
SCALED_TEXTS = 2000
"""Passages that this is measured on."""
DECIMALS = 6
"""Of the stored weights: below what f32 resolves in the sum, above the noise of a BLAS."""
METHOD = (
    "contrastive training on the last hidden state and the piece's surprisal, weights divided by a "
    "power of their norm: a query's lexical score with its own passage against other passages'; "
    "manual pages, office help and handbooks in 11 languages"
)


@dataclass(frozen=True)
class Texts:
    """What the head is trained and chosen on."""

    training: dict[str, Domain]
    validation: dict[str, Collection]
    fetched: list[packages.Unpacked]


def run(options: argparse.Namespace) -> None:
    """Collects, embeds, chooses among GRID, writes."""
    started, out = time.monotonic(), options.out.resolve()
    package = Package.load(options.package)
    precision = hidden_states.resolve_precision(options.precision)
    found = collect(package, precision, options)
    embedded = time.monotonic()
    embedder = DirectEmbedder(package, precision, options.cache)
    start, _ = contrast.stored_head(fit.START)
    settings, head, tried = choose(found, embedder, start)
    head = rescale(head, settings.norm_exponent, found.training["manuals"].passages)
    content = {
        "method": METHOD,
        "made_by": "scripts/research/train_sparse_head.py",
        "settings": settings.described(),
        "tried": tried,
        "data": describe(found),
        "precision": precision,
        "norm_exponent": settings.norm_exponent,
        "surprisal_weight": round(float(head[-3]), DECIMALS),
        "repeat_weight": round(float(head[-2]), DECIMALS),
        "bias": round(float(head[-1]), DECIMALS),
        "weights": [round(float(value), DECIMALS) for value in head[:-3]],
    }
    part = out.with_name(f".{out.name}.{os.getpid()}")
    part.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    os.replace(part, out)
    now = time.monotonic()
    say(f"data and hidden states {embedded - started:.0f} s, training {now - embedded:.0f} s")
    say(f"wrote {out}")


def collect(package: Package, precision: str, options: argparse.Namespace) -> Texts:
    """Fetches, reads and embeds all texts but the test's."""
    say("fetching and reading texts")
    fetched = {
        "manuals": packages.fetch_all((*sources.MANUALS, packages.RENDERER), options.cache),
        **{
            name: packages.fetch_all(domain.packages, options.cache)
            for name, domain in guide_collection.DOMAINS.items()
        },
    }
    manuals = manual_collection.make(fetched["manuals"])
    read = {
        name: guide_collection.make(domain, fetched[name])
        for name, domain in guide_collection.DOMAINS.items()
    }
    validation = {"manuals": manuals, "guides": read.pop("guides")}
    training = {
        name: embed(collection.part("train"), package, precision, options)
        for name, collection in {"manuals": manuals, **read}.items()
    }
    return Texts(training, validation, list(itertools.chain(*fetched.values())))


def embed(
    collection: Collection, package: Package, precision: str, options: argparse.Namespace
) -> Domain:
    """Hidden states of a collection's queries and passages."""
    surprisal = package.surprisal()
    stores, tokens = [], []
    for kind, texts in (
        ("query", [query.text for query in collection.queries]),
        ("passage", [passage.text for passage in collection.passages]),
    ):
        say(f"hidden states of {len(texts)} texts")
        states = hidden_states.cached(package, texts, kind, precision, options.cache)
        stores.append(TextStore(states, surprisal))
        tokens.append([states.tokens(i) for i in range(len(states))])
    return Domain(collection, *stores, *tokens)


def choose(
    found: Texts, embedder: DirectEmbedder, start: np.ndarray
) -> tuple[Settings, np.ndarray, list[dict[str, Any]]]:
    """Fits with every setting; the best mean of nDCG@10 over the validation domains wins."""
    outcomes = []
    for settings in GRID:
        say(f"training with {settings.described()}")
        domains = [found.training[name] for name in settings.domains]
        head = fit.Trainer(domains, hard=settings.hard).fit(start, settings)
        embedder.head, embedder.norm_exponent = head, settings.norm_exponent
        scores = {
            name: validate(collection, embedder) for name, collection in found.validation.items()
        }
        say(f"validation nDCG@10 {scores}")
        outcomes.append((settings, head, scores))
    best = max(outcomes, key=lambda one: np.mean(list(one[2].values())))
    tried = [{**one[0].described(), **one[2]} for one in outcomes]
    return best[0], best[1], tried


def validate(collection: Collection, embedder: DirectEmbedder) -> float:
    """nDCG@10 of lexical scores over the validation queries."""
    found: list[float] = []
    for part in evaluation.embed_parts(collection, "validation", embedder):
        scores = rankers.sparse_scores(part.asked, part.pool)
        found += evaluation.judge(scores, part.relevant)[:, 0].tolist()
    return round(float(np.mean(found)), 4)


def rescale(head: np.ndarray, exponent: float, passages: TextStore) -> np.ndarray:
    """The same ranking with weights of the usual size."""
    texts = np.arange(min(SCALED_TEXTS, passages.texts))
    weights = contrast.activate(passages.pick(texts), head, exponent).weight
    factor = TYPICAL_HEAVY / np.quantile(weights[weights > 0.0], HEAVY_QUANTILE)
    # Weights go with this power of the head: at exponent 1 their size is given.
    return head * factor ** (1.0 / (1.0 - exponent)) if exponent < 1.0 else head


def describe(found: Texts) -> dict[str, Any]:
    """What the head was trained on, so that another run can be compared."""
    return {
        **{
            name: {
                "sha256": domain.collection.digest(),
                "passages": len(domain.collection.passages),
                "queries": len(domain.collection.queries),
                "languages": sorted({one.lang for one in domain.collection.passages}),
            }
            for name, domain in found.training.items()
        },
        "packages": {one.name: one.version for one in found.fetched},
    }
