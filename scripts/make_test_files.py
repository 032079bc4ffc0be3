#!/usr/bin/env python3
"""Makes anew what is committed for the tests.

    scripts/make_test_files.py vectors|token-ids|package|families

vectors: tests/golden/multilingual-e5-small.json, what the default package must give. They come from
sentencepiece's own library and the plain numpy forward pass of default_package/reference.py,
straight from the wheel's tensors: nothing of the package, ONNX, OpenVINO or `tokenizers` has a part
in them. Dense vectors are base64 of little-endian f32. Sparse ones leave out the prompt's
positions, the dropped ids and everything that is not above zero, as the server does.

token-ids: those of the hard texts in crates/model/tests/golden/xlm-r-token-ids.json. A new text is
a new line of that file with `rule` and `text`. The ids come from sentencepiece's library and the
wheel's pieces. A row has `escaped_ids` when the ids differ under `--escape-special-tokens true`.

package: tests/fixtures/tiny, a complete package of a few kilobytes for tests that need no model. It
comes from the same code as the default package, at width 8 with seeded weights, so its vectors mean
nothing but react to every token and to order. Every ASCII text tokenizes without `<unk>`.
tests/fixtures/tiny-tokens is the same with vectors of tokens, without the tokenizer, and
tests/fixtures/tiny-words one with lexical weights of any words, whose questions have a table.

families: tests/fixtures/families, a tiny model of each family of networks that can be exported, and
what transformers computes of it. It needs requirements-reference.txt, some gigabytes, and it is the
only one whose last digits another processor may change.

The same bytes come out of every run.
"""

import argparse
import sys
from pathlib import Path

from default_package import command
from fixtures import KINDS


def main() -> int:
    """Exit status: 0 done, 1 failed with one sentence on stderr, 130 interrupted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=KINDS)
    parser.add_argument("--out", type=Path, help="instead of the committed file or folder")
    command.add_wheel_options(parser)
    typed = parser.parse_args()
    module, place = KINDS[typed.what]
    typed.out = (typed.out or place).resolve()
    lists = [Path(__file__).with_name("requirements-reference.txt")] if module == "families" else []
    return command.run(f"fixtures.{module}", typed, *lists)


if __name__ == "__main__":
    sys.exit(main())
