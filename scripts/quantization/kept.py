"""Calibration and nDCG@10 of the default package in 8 bits, kept so that nobody measures again."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from default_package.checks import demand

from . import score
from .int8 import PREFIX, Range

PATH = Path(__file__).with_name("default_package.json")
SOURCES = ("model.onnx", "model.onnx.data")
"""The files of a package that the graph in 8 bits is made of."""


@dataclass(frozen=True)
class Kept:
    """What was found for one graph."""

    sources: dict[str, str]
    """SHA-256 of the files that it is of."""
    graph: dict[str, str]
    """SHA-256 of the files that were measured."""
    retrieval: list[dict[str, Any]]
    """As in the manifest."""
    ranges: dict[str, Range]


def of(content: dict[str, Any], ranges: dict[str, Range]) -> Kept:
    """What the manifest of a package with a graph in 8 bits says, with the ranges of its inputs."""
    graph = [name for name in content["files"] if name.startswith(PREFIX)]
    retrieval = content["quantized"]["retrieval"]
    return Kept(_digests(content, SOURCES), _digests(content, graph), retrieval, ranges)


def find(content: dict[str, Any]) -> Kept | None:
    """What is kept for the package of that manifest; None when it has another graph."""
    stored = json.loads(PATH.read_text(encoding="utf-8"))
    ranges = {name: Range(**one) for name, one in stored.pop("ranges").items()}
    found = Kept(**stored, ranges=ranges)
    for entry in found.retrieval:
        score.demand_little_loss(entry, "int8")
    return found if found.sources == _digests(content, SOURCES) else None


def check(kept: Kept, content: dict[str, Any]) -> None:
    """The manifest of a package that was made with `kept` has the graph that was measured."""
    demand(
        of(content, kept.ranges).graph == kept.graph,
        f"the graph in 8 bits is not the one whose nDCG@10 is in {PATH.name}: measure it with "
        "scripts/quantize_package.py --keep",
    )


def save(kept: Kept) -> None:
    """`find` reads it from now on. A range stands on one line."""
    stored = asdict(kept)
    rows = (f"{json.dumps(name)}: {json.dumps(one)}" for name, one in stored.pop("ranges").items())
    head = json.dumps(stored, indent=1).removesuffix("\n}")
    text = f'{head},\n "ranges": {{\n  ' + ",\n  ".join(rows) + "\n }\n}\n"
    PATH.write_text(text, encoding="utf-8")


def _digests(content: dict[str, Any], names: Iterable[str]) -> dict[str, str]:
    files = content["files"]
    return {name: files[name]["sha256"] for name in sorted(names) if name in files}
