#!/usr/bin/env python3
"""Adds a graph in 8 bits to a package, for the server's --precision int8 or fp8.

    scripts/quantize_package.py --package engines/multilingual-e5-small
    duovec serve --precision int8

    scripts/quantize_package.py --precision fp8
    scripts/build_engine.sh engines/multilingual-e5-small --precision fp8

Weights and inputs of the dense layers are rounded: to whole numbers, for CPUs, or to floating point
(E4M3), for GPUs from compute capability 8.9 on. The sentences of texts.jsonl find the ranges.
nDCG@10 of both graphs on Debian's installation guide is written into the manifest. A graph that
loses more than 1 % of it is not kept. The guide's package is fetched into a cache folder.

That takes minutes. The repository keeps what was found for the default package in whole numbers,
so its graph takes seconds, and is the one that was measured. The package is built and checked in a
folder beside it, then renamed.
"""

import argparse
import sys
from pathlib import Path

from default_package import command


def main() -> int:
    """Exit status: 0 done, 1 failed with one sentence on stderr, 130 interrupted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--package", type=Path, default=command.DEFAULT_FOLDER, help="its model.onnx is in f32"
    )
    parser.add_argument("--precision", choices=("int8", "fp8"), default="int8")
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--quick", action="store_true", help="refuses a package of which nothing is kept"
    )
    how.add_argument(
        "--keep", action="store_true", help="measures, and keeps what it finds in the repository"
    )
    options = parser.parse_args()
    if options.precision == "fp8" and (options.quick or options.keep):
        parser.error("--quick and --keep are for --precision int8: nothing is kept for fp8")
    return command.run("quantization.add", options)


if __name__ == "__main__":
    sys.exit(main())
