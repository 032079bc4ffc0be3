#!/usr/bin/env python3
"""Makes tests/fixtures/tiny/: a complete package of a few kilobytes for tests that need no model.

    scripts/make_tiny_package.py

The graph, tokenizer and manifest come from the same code as the default package's, at width 8 with
seeded weights, so its vectors mean nothing but react to every token and to order.
Every ASCII text tokenizes without `<unk>`. The same bytes come out of every run.
"""

import argparse
import sys
from pathlib import Path

from default_package import command

OUT = command.ROOT / "tests/fixtures/tiny"


def main() -> int:
    """Exit status: 0 done, 1 failed with one sentence on stderr, 130 interrupted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=OUT, help="folder of the package")
    return command.run("fixtures.tiny_package", parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
