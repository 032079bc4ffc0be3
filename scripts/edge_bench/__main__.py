"""What scripts/edge_bench.sh runs."""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
from pathlib import Path

from default_package import command
from http_bench import report
from http_bench.__main__ import finite
from server import texts as project_texts

from .sections import Measured, Sizes

SECTIONS = ("flood", "bodies", "deep", "slow")


def main() -> int:
    """Exit status: 0 done, 1 failed with one sentence on stderr, 130 interrupted."""
    parser = argparse.ArgumentParser(
        prog="scripts/edge_bench.sh",
        description="Measures single texts beside floods, huge bodies, deep checks and slow "
        "clients, each against the same server undisturbed. About seven minutes by default.",
    )
    parser.add_argument("--only", action="append", choices=SECTIONS, help="may be repeated")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each load, default 20")
    parser.add_argument("--slow-seconds", type=float, default=60.0, help="of slow, default 60")
    parser.add_argument("--rate", type=float, default=25.0, help="single texts a second")
    parser.add_argument("--deadline-ms", type=int, default=2000, help="of the flood's documents")
    parser.add_argument("--idle", type=int, default=10_000, help="idle connections")
    parser.add_argument("--slow", type=int, default=100, help="slow heads, and as many bodies")
    parser.add_argument("--out", type=Path, help="folder for table.md and results.json")
    parser.add_argument("arguments", nargs="*", help="arguments of duovec serve, behind --")
    typed = parser.parse_args()
    if typed.seconds < 1 or typed.slow_seconds < 1 or typed.rate <= 0:
        parser.error("--seconds and --slow-seconds are at least 1, --rate is above 0")
    return command.guarded(lambda: run(typed))


def run(typed: argparse.Namespace) -> None:
    """Measures, prints, writes."""
    sizes = Sizes(
        typed.seconds,
        typed.slow_seconds,
        typed.rate,
        typed.deadline_ms,
        typed.idle,
        typed.slow,
    )
    texts = [entry["text"] for entry in project_texts() if entry["text"].strip()]
    measured = Measured(sizes, texts, typed.arguments)
    load_before = os.getloadavg()[0]
    chosen = typed.only or SECTIONS
    for name in SECTIONS:
        if name == "slow" and name in chosen:
            with tempfile.TemporaryDirectory(prefix="duovec-edge-") as folder:
                measured.slow(Path(folder))
        elif name in chosen:
            getattr(measured, name)()
    heading = (
        f"{os.cpu_count()} cores, busy with {load_before:.1f} others before; "
        f"{sizes.seconds:g} s each, slow {sizes.slow_seconds:g} s; "
        f"{sizes.rate:g} single texts/s; load and server on the same machine"
    )
    cores = ", ".join(f"{name} {seen['sender_cores']:.2f}" for name, seen in measured.seen.items())
    text = f"{heading}\n\ncores of the senders: {cores}\n\n{report.figures(measured.figures)}"
    print(text, flush=True)
    stored = {
        "machine": platform.platform(),
        "heading": heading,
        "arguments": typed.arguments,
        "figures": [vars(figure) for figure in measured.figures],
        "seen": measured.seen,
    }
    if typed.out:
        typed.out.mkdir(parents=True, exist_ok=True)
        (typed.out / "table.md").write_text(text + "\n", encoding="utf-8")
        results = json.dumps(finite(stored), indent=1)
        (typed.out / "results.json").write_text(results, encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
