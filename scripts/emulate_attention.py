#!/usr/bin/env python3
"""Emulates fused attention in 16 bits on the default package's texts, and prints what it costs.

    scripts/emulate_attention.py --cache FOLDER

No GPU is needed: numpy rounds where a kernel may. The first table has whole runs of the default
package, in which only attention is rounded. The second has single attentions over more keys than
the package takes: queries of a text look at the keys of several texts of 512 tokens at once, and
two heads are one of 64 columns, as BGE-M3's are. Decision 0052 has both tables and what follows.
"""

import argparse
import sys

from default_package import command


def main() -> int:
    """Exit status: 0 done, 1 failed with one sentence on stderr, 130 interrupted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    command.add_wheel_options(parser)
    return command.run("model_export.emulate", parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
