#!/usr/bin/env python3
"""Fits the head that training starts from and writes sparse_training/starting_head.json.

    scripts/research/fit_starting_head.py

The head is linear: weight of a position = relu(w . hidden + b). It learns how informative a token
is in general: its surprisal in the Unigram vocabulary, scaled to the range of published lexical
weights, and zero for punctuation and for the function words in function_words.json. Because it
reads the hidden state and not the id, it carries over to context and to pieces the texts lack. The
same texts and wheel give the same file.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from default_package import command  # noqa: E402

OUT = Path(__file__).parent / "sparse_training/starting_head.json"


def main() -> int:
    """Exit status: 0 done, 1 failed with one sentence on stderr, 130 interrupted."""
    parser = command.wheel_parser(__doc__, OUT)
    return command.run("sparse_training.starting_head", parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
