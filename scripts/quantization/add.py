"""What quantize_package.py does: rounds, checks, measures, puts in place."""

from __future__ import annotations

import argparse
import importlib
import os
from pathlib import Path
from types import ModuleType
from typing import Any

from debian_texts import packages
from default_package import command, manifest, texts
from default_package.checks import Limits, check_canary, demand
from default_package.command import say
from default_package.runtime import Runtime

from . import guide, manuals, score
from .collection import Collection
from .score import GraphEmbedder, Package


def run(options: argparse.Namespace) -> None:
    """The package at --package is replaced by one that has the graph in 8 bits too."""
    # `int8` or `fp8`, each with packages of its own.
    rounding = importlib.import_module(f"quantization.{options.precision}")
    place = options.package.resolve()
    package = Package.load(place)
    with command.working_folder(place) as work:
        twin = work / "package"
        twin.mkdir()
        say("rounding to 8 bits (minutes)")
        # Before the links: the onnx library refuses to read numbers from a file with two names.
        rounding.write(place / "model.onnx", twin / rounding.GRAPH, calibration(package))
        for path in place.iterdir():
            if path.name != manifest.NAME and not path.name.startswith(rounding.PREFIX):
                os.link(path, twin / path.name)
        content = manifest.read(place)
        runtime = Runtime(twin / rounding.GRAPH, "f32")
        tolerances = rounding.TOLERANCES
        limits = Limits(tolerances["dense_cosine_min"], tolerances["sparse_max_abs"])
        check_canary(runtime, content, limits)
        exact = GraphEmbedder(package, Runtime(place / "model.onnx", "f32"))
        rounded = GraphEmbedder(package, runtime)
        scores = measure(exact, rounded, options)
        manifest.save(described(content, twin, rounding, scores), twin / manifest.NAME)
        command.put_in_place(twin, place, work)
    say(f"done: duovec serve --package {options.package} --precision {options.precision}")


def calibration(package: Package) -> list[list[int]]:
    """Token ids of the sentences of texts.jsonl, as queries and as passages."""
    sentences = [line.text for line in texts.load()]
    # Without prompts the two are the same.
    kinds = {package.prompts.get(kind, ""): kind for kind in ("query", "passage")}
    return [row for kind in kinds.values() for row in package.encode(sentences, kind)[0]]


def measure(
    exact: GraphEmbedder, rounded: GraphEmbedder, options: argparse.Namespace
) -> list[dict[str, Any]]:
    """nDCG@10 of both graphs on every collection."""
    found = []
    precision = options.precision
    for name, collection in collections(options.cache).items():
        languages = ", ".join(sorted(options.languages))
        kept = score.in_languages(collection, options.languages)
        demand(bool(kept.queries), f"{name} has no texts in {languages}")
        say(f"measuring with {name}, {languages}: {len(kept.queries)} queries")
        entry = {"collection": f"{name}, {languages}", "queries": len(kept.queries)}
        entry |= score.compare(kept, {"f32": exact, precision: rounded})
        say(f"nDCG@10 in f32 {entry['f32']}, in {precision} {entry[precision]}")
        score.demand_little_loss(entry, precision)
        found.append(entry)
    return found


def collections(cache: Path) -> dict[str, Collection]:
    """Texts that no head was trained or chosen on."""
    say("reading manual pages and the installation guide")
    return {
        "installation guide": guide.make(packages.fetch_all(guide.PACKAGES, cache)),
        "held-out manual pages": manuals.make(packages.fetch_all(manuals.PACKAGES, cache)),
    }


def described(
    content: dict[str, Any], folder: Path, rounding: ModuleType, scores: list[dict[str, Any]]
) -> dict[str, Any]:
    """The manifest with the graph in 8 bits."""
    known = {n: e for n, e in content["files"].items() if not n.startswith(rounding.PREFIX)}
    names = [path.name for path in folder.iterdir() if path.name.startswith(rounding.PREFIX)]
    files = known | {name: manifest.entry(folder / name) for name in names}
    about = {"file": rounding.GRAPH, "method": rounding.METHOD, "tolerances": rounding.TOLERANCES}
    rounded = about | {"retrieval": scores}
    return content | {"files": dict(sorted(files.items())), rounding.FIELD: rounded}
