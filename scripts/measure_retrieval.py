#!/usr/bin/env python3
"""Measures nDCG@10 of ways to search with the default package, and prints tables of it.

    scripts/measure_retrieval.py --duovec target/release/duovec

Dense vectors in fewer bytes, and first hits that are ranked again. The command embeds texts of
Debian's packages into the cache folder, which takes a core half an hour.
"""

import argparse
import sys
from pathlib import Path

from debian_texts import packages
from default_package import command, environment


def main() -> int:
    """Exit status: 0 done, 1 failed with one sentence on stderr, 130 interrupted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--duovec", type=Path, required=True, help="the command that embeds")
    parser.add_argument("--package", type=Path, default=command.DEFAULT_FOLDER)
    parser.add_argument("--cache", type=Path, default=packages.default_cache())
    lists = environment.SCRIPTS / "requirements-retrieval.txt"
    return command.run("retrieval.trials", parser.parse_args(), lists)


if __name__ == "__main__":
    sys.exit(main())
