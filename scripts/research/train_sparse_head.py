#!/usr/bin/env python3
"""Trains the default package's sparse head and writes default_package/sparse_head.json.

    sudo apt-get update
    scripts/research/train_sparse_head.py

What a head is stands in default_package/sparse_head.py; the encoder is frozen. The pairs come from
manual pages, office help and handbooks in eleven languages: a page's summary or a heading and the
paragraphs it stands for; a page's title or an option and the same page in another language; the
first sentence of a section and the rest of it. Several ways of training are compared on validation
pages and guides, which no pair comes from. Debian packages are fetched and unpacked into a
cache folder, hidden states are computed once and kept there; nothing is installed. The same
packages give the same file. Afterwards: make_default_package.py and make_golden.py.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from debian_texts import packages  # noqa: E402
from default_package import command, environment, sparse_head  # noqa: E402


def main() -> int:
    """Exit status: 0 done, 1 failed with one sentence on stderr, 130 interrupted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=sparse_head.PATH, help="file to write")
    parser.add_argument(
        "--package",
        type=Path,
        default=command.DEFAULT_FOLDER,
        help="the default package; its own sparse head plays no part",
    )
    parser.add_argument("--precision", default="auto", choices=("auto", "f32", "bf16"))
    parser.add_argument("--cache", type=Path, default=packages.default_cache())
    lists = environment.TEST_REQUIREMENTS
    return command.run("sparse_training.train", parser.parse_args(), lists)


if __name__ == "__main__":
    sys.exit(main())
