"""What quantize_package.py does: rounds, checks, measures, puts in place."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from debian_texts import packages
from default_package import command, manifest, texts
from default_package.command import say
from default_package.runtime import Runtime
from default_package.verify import demand
from model_export.verify import Limits, check_canary
from sparse_training import guide_collection, manual_collection, sources
from sparse_training.collection import Collection
from sparse_training.hidden_states import Package

from . import rounding, score
from .score import GraphEmbedder

GRAPH = "model.int8.xml"
NUMBERS = "model.int8.bin"
TOLERANCES = {"dense_cosine_min": 0.995, "sparse_max_abs": 0.1}
"""Of the canary. On 1,284 texts the cosine to f32 was at least 0.997, and 99 of 100 weights were
within 0.03."""


def run(options: argparse.Namespace) -> None:
    """The package at --package is replaced by one that has the graph in 8 bits too."""
    place = options.package.resolve()
    package = Package.load(place)
    with command.working_folder(place) as work:
        twin = work / "package"
        twin.mkdir()
        for path in place.iterdir():
            if path.name not in (manifest.NAME, GRAPH, NUMBERS):
                os.link(path, twin / path.name)
        say("rounding to 8 bits (minutes)")
        rounding.write(place / "model.onnx", twin / GRAPH, calibration(package))
        content = json.loads((place / manifest.NAME).read_text(encoding="utf-8"))
        limits = Limits(TOLERANCES["dense_cosine_min"], TOLERANCES["sparse_max_abs"])
        check_canary(Runtime(twin / GRAPH, "f32"), content, limits)
        scores = measure(package, twin, content["pad_token_id"], options)
        manifest.save(described(content, twin, scores), twin / manifest.NAME)
        command.put_in_place(twin, place, work)
    say(f"done: duovec serve --package {options.package} --precision int8")


def calibration(package: Package) -> list[list[int]]:
    """Token ids of the sentences of texts.jsonl, as queries and as passages."""
    sentences = [line.text for line in texts.load()]
    return [row for kind in package.prompts for row in package.encode(sentences, kind)[0]]


def measure(
    package: Package, folder: Path, pad: int, options: argparse.Namespace
) -> list[dict[str, Any]]:
    """nDCG@10 of both graphs on every collection."""
    exact, rounded = (GraphEmbedder(package, folder / n, pad) for n in ("model.onnx", GRAPH))
    found = []
    for name, collection in collections(options.cache).items():
        languages = ", ".join(sorted(options.languages))
        kept = score.in_languages(collection, options.languages)
        demand(bool(kept.queries), f"{name} has no texts in {languages}")
        say(f"measuring with {name}, {languages}: {len(kept.queries)} queries")
        entry = score.compare(f"{name}, {languages}", kept, exact, rounded)
        say(f"nDCG@10 in f32 {entry['f32']}, in 8 bits {entry['int8']}")
        score.demand_little_loss(entry)
        found.append(entry)
    return found


def collections(cache: Path) -> dict[str, Collection]:
    """Those that evaluate_retrieval.py measures the server with."""
    guide = packages.fetch_all(guide_collection.UNSEEN.packages, cache)
    manuals = packages.fetch_all((*sources.MANUALS, packages.RENDERER), cache)
    return {
        "installation guide": guide_collection.make(guide_collection.UNSEEN, guide),
        "held-out manual pages": manual_collection.make(manuals).part("test"),
    }


def described(
    content: dict[str, Any], folder: Path, scores: list[dict[str, Any]]
) -> dict[str, Any]:
    """The manifest with the graph in 8 bits."""
    files = content["files"] | {n: manifest.entry(folder / n) for n in (GRAPH, NUMBERS)}
    about = {"file": GRAPH, "method": rounding.METHOD, "tolerances": TOLERANCES}
    quantized = about | {"retrieval": scores}
    return content | {"files": dict(sorted(files.items())), "quantized": quantized}
