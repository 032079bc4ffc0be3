"""What quantize_package.py does: rounds, checks, measures, puts in place."""

import argparse
from pathlib import Path
from types import ModuleType
from typing import Any

from default_package import manifest
from default_package.checks import Runtime, check_canary, demand
from default_package.command import clear_left, say
from default_package.errors import PackageError

from . import calibration, fp8, guide, int8, kept, score
from .score import Embed, Package, embedder

LANGUAGES = ("de", "en", "ja")
"""Of the texts that graphs are measured with."""


def run(options: argparse.Namespace) -> None:
    """The package at --package is replaced by one that has the graph in 8 bits too."""
    rounding: ModuleType = {"int8": int8, "fp8": fp8}[options.precision]
    place = options.package.resolve()
    clear_left(place)
    package, content = Package.load(place), manifest.read(place)
    known = None if options.keep or rounding is not int8 else kept.find(content)
    if options.quick and known is None:
        raise PackageError(
            f"what the repository keeps is not of the graph in {options.package}: calibrate and "
            f"measure that with scripts/quantize_package.py --package {options.package} (minutes)"
        )
    if known:
        inputs = known.ranges
    else:
        say("calibrating (a minute)")
        inputs = rounding.calibrate(place / "model.onnx", calibration.sequences(package))

    def finish(twin: Path, content: dict[str, Any]) -> dict[str, Any]:
        runtime, tolerances = Runtime(twin / rounding.GRAPH), rounding.TOLERANCES
        check_canary(runtime, content, tolerances)
        if known:
            scores = known.retrieval
        else:
            exact = embedder(package, Runtime(place / "model.onnx"))
            rounded = embedder(package, runtime)
            scores = [measure({"f32": exact, options.precision: rounded})]
        about = {"file": rounding.GRAPH, "method": rounding.METHOD, "tolerances": tolerances}
        found = content | {rounding.FIELD: about | {"retrieval": scores}}
        if known:
            kept.check(known, found)
        return found

    manifest.add_graph(
        place,
        rounding.PREFIX,
        lambda twin: rounding.write(place / "model.onnx", twin / rounding.GRAPH, inputs),
        finish,
    )
    if options.keep:
        kept.save(kept.of(manifest.read(place), inputs))
    say(f"done: duovec serve --package {options.package} --precision {options.precision}")


def measure(graphs: dict[str, Embed]) -> dict[str, Any]:
    """nDCG@10 of both graphs by their names, the exact one first, on texts that no head was trained
    or chosen on."""
    told = f"{guide.TITLE}, {', '.join(LANGUAGES)}"
    say("reading the installation guide")
    part = guide.make(LANGUAGES)
    demand(bool(part.queries), f"there are no texts of {told}")
    say(f"measuring with {told}: {len(part.queries)} queries")
    entry: dict[str, Any] = {"collection": told, "queries": len(part.queries)}
    entry |= {name: score.ndcg(part, graph) for name, graph in graphs.items()}
    say("nDCG@10 " + ", ".join(f"in {name} {entry[name]}" for name in graphs))
    score.demand_little_loss(entry, list(graphs)[-1])
    return entry
