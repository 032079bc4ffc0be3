#!/usr/bin/env python3
"""Exports a published encoder, such as BGE-M3, to a model package.

    scripts/export_onnx.py --model BAAI/bge-m3 --precision fp32
    scripts/export_onnx.py --model DIR --out engines/bge-m3
    scripts/export_onnx.py --fp16-of-package engines/multilingual-e5-small
    scripts/export_onnx.py --bf16-of-package engines/multilingual-e5-small

It sets up the Python packages that it needs. --model is the name of a model on the hub, or a folder
with config.json, tokenizer.json, weights (safetensors, or .bin, which is read without being
executed), for lexical weights sparse_linear.pt and for --token-vectors colbert_linear.pt. Without
--out the package is kept in the cache folder, and its path is printed; another run prints it at
once, without a network. The same inputs give the same bytes. The package is built and checked in a
folder beside --out, then renamed.
"""

import argparse
import sys
from pathlib import Path

from default_package import command
from default_package.choices import NORMALIZATIONS, Pooling, Precision
from model_export import kept


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0 done, 1 failed with one sentence on stderr, 130 interrupted."""
    options = _parser().parse_args(arguments)
    return command.run("model_export.export", options, answered=kept.answered)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--model", metavar="NAME[@REVISION]", help="on the hub, or a folder")
    for name in ("fp16", "bf16"):
        help_text = f"add model.{name}.onnx to this f32 package"
        what.add_argument(f"--{name}-of-package", type=Path, help=help_text)
    parser.add_argument("--out", type=Path, help="folder of the package (of --model: the cache)")
    parser.add_argument("--update", action="store_true", help="ask the hub for a newer revision")
    parser.add_argument("--precision", choices=[p.value for p in Precision], default="fp16")
    parser.add_argument("--pooling", choices=[pooling.value for pooling in Pooling])
    parser.add_argument("--max-tokens", type=int, help="of a text; default: as the model says")
    lengths = "shorter vectors that the model was trained for, such as 256,512"
    parser.add_argument("--shorter-vectors", type=_numbers, metavar="LIST", help=lengths)
    parser.add_argument("--no-sparse", action="store_true", help="without a lexical head")
    tokens = "with the vector of each token that BGE-M3's ColBERT head gives"
    parser.add_argument("--token-vectors", action="store_true", help=tokens)
    parser.add_argument("--skip-verify", action="store_true", help="write without running it")
    about = parser.add_argument_group("manifest")
    about.add_argument("--model-id", help="served name (default: the name of --out)")
    about.add_argument("--alias", action="append", default=[], help="further served name")
    about.add_argument("--revision", help="default: the folder's name if it is a commit")
    about.add_argument("--license", help="default: what README.md of the model says")
    about.add_argument(
        "--normalization",
        choices=NORMALIZATIONS,
        default=NORMALIZATIONS[0],
        help="of an XLM-R tokenizer: as the model was trained, or as most other servers have it",
    )
    about.add_argument("--query-prompt", help='such as "query: " for the E5 models')
    about.add_argument("--passage-prompt", help='such as "passage: "')
    return parser


def _numbers(typed: str) -> list[int]:
    return sorted({int(number) for number in typed.split(",")})


if __name__ == "__main__":
    sys.exit(main())
