#!/usr/bin/env python3
"""Measures how well the default package's vectors find passages, and draws two pictures.

    scripts/research/evaluate_retrieval.py

With `--url` the vectors come from a running server, which is slower.

Three domains: manual pages held out by name, and two guides on which nothing was chosen, Debian's
installation guide and the administrator's handbook. Methods: dense, sparse, both, BM25 and
unweighted overlap on the same token ids. The hybrids were chosen on validation pages and guides
with --choose. It writes results.json, tables.md, scores.png and tokens.png.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from debian_texts import packages  # noqa: E402
from default_package import command, environment  # noqa: E402


def main() -> int:
    """Exit status: 0 done, 1 failed with one sentence on stderr, 130 interrupted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", help="a running server; without it OpenVINO runs in this process")
    parser.add_argument(
        "--package",
        type=Path,
        default=command.DEFAULT_FOLDER,
        help="the package, which a running server serves",
    )
    parser.add_argument("--out", type=Path, default=command.ROOT / "docs/retrieval")
    parser.add_argument(
        "--choose", action="store_true", help="print the hybrid's best weight on validation texts"
    )
    parser.add_argument("--cache", type=Path, default=packages.default_cache())
    lists = environment.TEST_REQUIREMENTS
    return command.run("retrieval.evaluate", parser.parse_args(), lists)


if __name__ == "__main__":
    sys.exit(main())
