#!/usr/bin/env python3
"""Embeds texts in Parquet files on a Ray cluster: dense and sparse vectors, in Parquet again.

Each actor owns a `duovec` process on a Unix socket. A part of the output has some rows of one row
group of the input, with all their columns. It is written whole or not at all, by a name that
depends on the input only: the same command goes on where it was, and no row is lost or twice.

Every node needs the program, the model package and the Python packages (see README.md), and the
folders of input and output under the same paths.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path


def main() -> None:
    """Plan, leave out what is there, embed the rest."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="+", help="Parquet files")
    parser.add_argument("--out", type=Path, required=True, help="folder of the parts")
    parser.add_argument("--text", default="text", help="the column that is embedded")
    parser.add_argument("--input-type", default="passage", choices=("passage", "query"))
    parser.add_argument("--part-rows", type=int, default=50_000, help="rows of a part, at most")
    parser.add_argument("--package", required=True, help="model package")
    parser.add_argument("--duovec", default="duovec", help="the program")
    parser.add_argument("--address", default="auto", help="of the Ray cluster; local starts one")
    parser.add_argument("--actors", type=int, help="a GPU each, or a node each where none has one")
    parser.epilog = "What follows -- goes to duovec serve; paths there must be absolute."
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    typed = parser.parse_args(sys.argv[1:end])
    typed.arguments = sys.argv[end + 1 :]
    # The actors work in other folders than this one.
    typed.files = [os.path.abspath(file) for file in typed.files]
    typed.out, typed.package = typed.out.absolute(), os.path.abspath(typed.package)
    if os.sep in typed.duovec:
        typed.duovec = os.path.abspath(typed.duovec)
    # Not at the head of the file: any Python answers --help.
    import corpus

    parts = corpus.planned(typed.files, typed.text, typed.part_rows)
    settings = ("text", "input_type", "part_rows", "package", "arguments")
    about = {name: getattr(typed, name) for name in settings}
    about["model"] = corpus.model_of(Path(typed.package))
    sizes = {Path(file).name: os.path.getsize(file) for file in sorted(typed.files)}
    corpus.claim(typed.out, about | {"bytes of the inputs": sizes})
    missing = [part for part in parts if not (typed.out / part.name).exists()]
    print(f"{len(missing)} of {len(parts)} parts are to be made", flush=True)
    command = (typed.duovec, "serve", "--package", typed.package, *typed.arguments)
    if missing:
        # Ray takes seconds to import, and what is wrong with the input is known without it.
        import actors

        job = corpus.Job(str(typed.out), typed.text, typed.input_type, command)
        actors.embed(job, missing, typed.address, typed.actors)
    corpus.sweep(typed.out)
    planned, rows = sum(part.rows for part in parts), corpus.rows_in(typed.out, parts)
    print(f"{rows} rows in {len(parts)} parts in {typed.out}; {planned - rows} had no text")


if __name__ == "__main__":
    main()
