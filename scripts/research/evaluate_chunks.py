#!/usr/bin/env python3
"""Measures how well the sections of two guides are found by late chunks, chunks alone, one vector.

    scripts/research/evaluate_chunks.py --url http://localhost:8080

Headings, and sentences that begin a section and are taken out of it, ask for their section among
all sections of their language. A section's score is that of its best chunk. It prints a table.
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
    parser.add_argument("--url", required=True, help="a running server with the default package")
    parser.add_argument("--size", type=int, default=128, help="tokens of a chunk")
    parser.add_argument("--guides", nargs="+", default=["installation", "administration"])
    parser.add_argument("--langs", nargs="+", default=["en", "de"])
    parser.add_argument("--cache", type=Path, default=packages.default_cache())
    lists = environment.TEST_REQUIREMENTS
    return command.run("retrieval.chunks", parser.parse_args(), lists)


if __name__ == "__main__":
    sys.exit(main())
