#!/usr/bin/env python3
"""Adds a graph in 8 bits to a package, for the server's --precision int8.

    scripts/research/quantize_package.py --package engines/multilingual-e5-small
    duovec serve --precision int8

OpenVINO's NNCF rounds weights and inputs of the dense layers, with the sentences of texts.jsonl to
find the ranges. nDCG@10 of both graphs on manual pages and Debian's installation guide is written
into the manifest; a graph that loses more than 1 % of it is not kept. Debian packages are fetched
into a cache folder. The package is built and checked in a folder beside it, then renamed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from debian_texts import packages  # noqa: E402
from default_package import command, environment  # noqa: E402

NEEDS = environment.SCRIPTS / "requirements-quantization.txt"


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
    lists = (environment.TEST_REQUIREMENTS, NEEDS)
    return command.run("quantization.add", parser.parse_args(), *lists)


if __name__ == "__main__":
    sys.exit(main())
