#!/usr/bin/env python3
"""Writes tests/golden/multilingual-e5-small.json: expected vectors for the default package.

    scripts/make_golden.py

They come from sentencepiece's own library and the plain numpy forward pass of
default_package/reference.py, straight from the wheel's tensors: nothing of the package, ONNX,
OpenVINO or `tokenizers` has a part in them.
Dense vectors are base64 of little-endian f32. Sparse ones leave out the prompt's positions, the
dropped ids and everything that is not above zero, as the server does.
"""

import sys

from default_package import command

OUT = command.ROOT / "tests/golden" / f"{command.DEFAULT_FOLDER.name}.json"


def main() -> int:
    """Exit status: 0 done, 1 failed with one sentence on stderr, 130 interrupted."""
    return command.run("fixtures.vectors", command.wheel_parser(__doc__, OUT).parse_args())


if __name__ == "__main__":
    sys.exit(main())
