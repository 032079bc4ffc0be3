"""The chosen measurements, one after the other, then a table and JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
from pathlib import Path

from http_bench import report, servers

from . import SECTIONS, sections
from .measured import Measured, Sizes


def run(typed: argparse.Namespace) -> None:
    """Measures, prints, writes."""
    sizes = Sizes(
        typed.seconds,
        typed.slow_seconds,
        typed.rate,
        typed.deadline_ms,
        typed.idle,
        typed.slow,
        typed.unread,
        typed.rest_seconds,
    )
    texts = [entry["text"] for entry in servers.project_texts() if entry["text"].strip()]
    load_before = os.getloadavg()[0]
    chosen = typed.only or SECTIONS
    with tempfile.TemporaryDirectory(prefix="duovec-edge-") as folder:
        measured = Measured(sizes, texts, typed.arguments, Path(folder))
        for name in SECTIONS:
            if name in chosen:
                getattr(sections, name)(measured)
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
        results = json.dumps(report.finite(stored), indent=1)
        (typed.out / "results.json").write_text(results, encoding="utf-8")
