#!/usr/bin/env python3
"""Adds a graph in 8 bits to a package, for the server's --precision int8 or fp8.

    scripts/quantize_package.py --package engines/multilingual-e5-small
    duovec serve --precision int8

    scripts/quantize_package.py --precision fp8
    scripts/build_engine.sh engines/multilingual-e5-small --precision fp8

Weights and inputs of the dense layers are rounded, with the sentences of texts.jsonl to find the
ranges: to whole numbers by OpenVINO's NNCF, for CPUs, or to floating point (E4M3), for GPUs from
compute capability 8.9 on. nDCG@10 of both graphs on manual pages and Debian's installation guide
is written into the manifest; a graph that loses more than 1 % of it is not kept. Debian packages
are fetched into a cache folder. The package is built and checked in a folder beside it, then
renamed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from debian_texts import packages  # noqa: E402
from default_package import command, environment  # noqa: E402

NEEDS = {
    "int8": (environment.TEST_REQUIREMENTS, environment.SCRIPTS / "requirements-quantization.txt"),
    "fp8": (environment.TEST_REQUIREMENTS,),
}
"""Lists of packages besides requirements.txt."""


def main() -> int:
    """Exit status: 0 done, 1 failed with one sentence on stderr, 130 interrupted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--package", type=Path, default=command.DEFAULT_FOLDER, help="its model.onnx is in f32"
    )
    parser.add_argument(
        "--languages",
        default="de,en,ja",
        type=lambda typed: typed.split(","),
        help="of the texts that both graphs are measured with; de,en,ja",
    )
    parser.add_argument("--cache", type=Path, default=packages.default_cache())
    parser.add_argument("--precision", choices=NEEDS, default="int8")
    options = parser.parse_args()
    return command.run("quantization.add", options, *NEEDS[options.precision])


if __name__ == "__main__":
    sys.exit(main())
