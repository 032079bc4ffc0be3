"""What evaluate_retrieval.py does: collects, asks the server, ranks, draws."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from debian_texts import packages
from default_package import texts
from default_package.command import say
from sparse_training import guide_collection, hidden_states, manual_collection, sources
from sparse_training.collection import Collection
from sparse_training.hidden_states import Package

from . import evaluation, pictures, report
from .embedder import DirectEmbedder, Embedder, HttpEmbedder
from .pictures import Sentence

DOMAINS = {
    "held-out manual pages": "manuals",
    "installation guide": "installation",
    "administrator's handbook, never seen": "administration",
}
FONT_PACKAGE, FONT_FILE = "fonts-wqy-zenhei", "wqy-zenhei.ttc"
"""Chinese, Japanese and Korean glyphs for the token picture; a Debian package."""
PICTURED_GROUP = "t-train"
"""The sentence of texts.jsonl whose translations are drawn."""
UNDRAWN = {"ar", "hi", "th"}
"""Languages whose glyphs the fonts lack."""


def run(options: argparse.Namespace) -> None:
    """Collects, asks the server, ranks, writes."""
    package = Package.load(options.package)
    if options.url:
        embedder: Embedder = HttpEmbedder(options.url, package)
    else:
        precision = hidden_states.resolve_precision("auto")
        embedder = DirectEmbedder(package, precision, options.cache)
    if options.choose:
        choose(options.cache, embedder)
        return
    found = collections(options.cache)
    share = evaluation.HYBRID_SHARE
    results = {
        **embedder.described,
        "hybrid_share": share,
        "rank_fusion": asdict(evaluation.RANK_FUSION),
        "collections": {name: collection.digest() for name, collection in found.items()},
        "domains": {},
    }
    for name, source in DOMAINS.items():
        parts = evaluation.embed_parts(found[source], "test", embedder)
        results["domains"][name] = evaluation.summary(evaluation.evaluate(parts, share))
        write(results, options.out)
    draw_tokens(embedder, package, options.cache, options.out / "tokens.png")
    print(report.markdown(results))
    say(f"wrote {options.out}")


def write(results: dict[str, Any], out: Path) -> None:
    """JSON, tables and bars of the domains that are done."""
    out.mkdir(parents=True, exist_ok=True)
    lines = [f"{json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}" for k, v in results.items()]
    stored = "{\n" + ",\n".join(lines) + "\n}\n"
    (out / "results.json").write_text(stored, encoding="utf-8")
    (out / "tables.md").write_text(report.markdown(results), encoding="utf-8")
    pictures.bars(results, out / "scores.png")


def collections(cache: Path) -> dict[str, Collection]:
    """Manual pages and two guides, from Debian's packages."""
    say("reading manual pages and guides")
    manuals = packages.fetch_all((*sources.MANUALS, packages.RENDERER), cache)
    guides = {
        name: guide_collection.make(domain, packages.fetch_all(domain.packages, cache))
        for name, domain in guide_collection.TESTS.items()
    }
    return {"manuals": manual_collection.make(manuals).part("test"), **guides}


def choose(cache: Path, embedder: Embedder) -> None:
    """Says which hybrids the validation texts prefer."""
    manuals = packages.fetch_all((*sources.MANUALS, packages.RENDERER), cache)
    guides = guide_collection.DOMAINS["guides"]
    read = {
        "manuals": manual_collection.make(manuals),
        "guides": guide_collection.make(guides, packages.fetch_all(guides.packages, cache)),
    }
    parts = {
        name: evaluation.embed_parts(collection, "validation", embedder)
        for name, collection in read.items()
    }
    print(json.dumps(asdict(evaluation.choose(parts)), indent=1))


def draw_tokens(embedder: Embedder, package: Package, cache: Path, path: Path) -> None:
    """One sentence in each language that the fonts can show, weights as the server gives them."""
    lines = [
        line for line in texts.load() if line.group == PICTURED_GROUP and line.lang not in UNDRAWN
    ]
    tokenizer = package.tokenizer()
    sentences = []
    for line, found in zip(
        lines, embedder.embed([line.text for line in lines], "passage"), strict=True
    ):
        weights = dict(zip(found.ids.tolist(), found.weights.tolist(), strict=True))
        pieces = [tokenizer.id_to_token(i) for i in found.tokens]
        sentences.append(Sentence(line.lang, pieces, [weights.get(i, 0.0) for i in found.tokens]))
    (fetched,) = packages.fetch_all((FONT_PACKAGE,), cache)
    font = next(fetched.root.rglob(FONT_FILE))
    pictures.tokens(sentences, font, path)
